"""Colours and dashes of the methods, their order and their titles."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

from loca_theory.expressivity import METHODS
from loca_theory.plotting.canvas import NAMED_COLORS
from loca_theory.plotting.options import options


@dataclass(frozen=True)
class Look:
    """Colour and dashes of a line."""

    color: str
    dashes: str | tuple[int, tuple[int, ...]] = "-"


TITLES = {name: method.title for name, method in METHODS.items()}
_LINES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
LOOKS = {
    name: Look(NAMED_COLORS.get(color, color), (0, tuple(dashes)) if dashes else "-")
    for name, (color, *dashes) in _LINES.items()
}
# Users' own methods get these in turn: all colours with the first dashes, then with the others.
_COLORS = ("#332288", "#aa4499", "#117733", "#882255", "#44aa99", "#999933")
_DASHES = ((0, (5, 1, 1, 1)), (0, (2, 1)), (0, (8, 2)))
_OWN_LOOKS = [Look(color, dashes) for dashes in _DASHES for color in _COLORS]


def in_order(names: Iterable[str]) -> list[str]:
    """Names of methods without duplicates, in the package's order; unknown names at the end."""
    order = {name: i for i, name in enumerate(METHODS)}
    return sorted(dict.fromkeys(names), key=lambda name: order.get(name, len(order)))


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """The line style of each method; users' own methods get styles of their own."""
    return chosen_looks(in_order(names), LOOKS, _OWN_LOOKS)


def chosen_looks(
    names: Iterable[str], known: Mapping[str, Look], others: Iterable[Look]
) -> dict[str, Look]:
    """The known style of each name, or the others in turn; in the colour that the user chose."""
    other_looks = cycle(others)
    looks = {name: known.get(name) or next(other_looks) for name in names}
    return {
        name: replace(look, color=options().color(name, look.color)) for name, look in looks.items()
    }


def titles_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Titles of the methods of a result by name, including those of the user's own methods."""
    return TITLES | manifest.get("grid", {}).get("titles", {})


def key(names: Iterable[str], titles: Mapping[str, str]) -> str:
    """A sentence that gives the title of each method whose name needs one."""
    entries = []
    for name in names:
        title, label = titles.get(name) or "", options().label(name)
        # A title that begins with the name needs no equation.
        entries.append(
            title if title.startswith(label) else f"{label}: {title}" if title else label
        )
    return f"{'; '.join(entries)}."
