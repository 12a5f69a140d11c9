"""Templates of the HTML pages."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

if TYPE_CHECKING:
    from loca_theory.checkpoints.report.column import Column


def render(template: str, **content: Any) -> str:
    """Fill in a template in ``html/``; every text is escaped."""
    return _environment().get_template(template).render(**content)


@cache
def _environment() -> Environment:
    # Names come from files of unknown origin, so everything is escaped.
    environment = Environment(
        loader=PackageLoader("loca_theory.plotting.page", "html"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.filters["breakable"] = breakable
    environment.filters["unbroken"] = unbroken
    return environment


def breakable(name: str) -> Markup:
    """Escape a name and let it break after each dot, so that long names fit narrow screens."""
    return Markup(".<wbr>").join(name.split("."))


def unbroken(column: Column) -> str:
    """The heading of a column, which breaks before its rank but not inside the name of a method."""
    if column.r is None:
        return column.title
    return f"{column.title}, r = {column.r}".replace(" ", "\u00a0").replace(",\u00a0", ", ")
