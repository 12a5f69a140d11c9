"""Templates of the HTML pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup


@dataclass(frozen=True)
class PageTable:
    """A table of a page.

    Attributes:
        title: Heading of the table.
        columns: Explanations of the columns by name; "" for none.
        rows: Texts of the cells, row by row.
        lead: Explanation below the heading.
        ranks: The rank that each row belongs to; empty if rows belong to no rank.
        about: The explanations to list, if several columns share one; empty for those of all.
    """

    title: str
    columns: Mapping[str, str]
    rows: Sequence[Sequence[str]]
    lead: str = ""
    ranks: Sequence[int] = ()
    about: Mapping[str, str] = field(default_factory=dict)


def render(template: str, **content: Any) -> str:
    """Fill in a template of the package; every text is escaped.

    Args:
        template: Name of the file in ``html/``.
        content: Its variables.
    """
    return _environment().get_template(template).render(**content)


@cache
def _environment() -> Environment:
    # Names come from files of unknown origin, so everything is escaped.
    found = Environment(
        loader=PackageLoader("loca_theory.plotting.page", "html"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    found.filters["breakable"] = breakable
    return found


def breakable(name: str) -> Markup:
    """Escape a name and let it break after each dot, so that long names fit narrow screens."""
    return Markup(".<wbr>").join(name.split("."))
