"""Figure of how often each search solves the toy experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from loca_theory.plotting.canvas import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY,
    Canvas,
    styled,
)
from loca_theory.plotting.looks import Look, chosen_looks
from loca_theory.plotting.options import options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

_LOOKS = {"coefficients-only": Look(GREY), "central": Look(RED), "reselect": Look(BLUE)}
_COLORS = (GREEN, PINK, ORANGE, SKY, BLACK, "#b8860b", "#8c564b", "#1b9e9e")
_DASHES = ("-", (0, (4, 2)), (0, (1, 1)), (0, (6, 1, 1, 1)))
_OTHER_LOOKS = [Look(color, dashes) for dashes in _DASHES for color in _COLORS]
# The search of the paper.
_PAPERS = "central"
_LABELS = {
    _PAPERS: "central (the paper's)",
    "coefficients-only": "coefficients-only (fixed locations)",
}
_MARKERS = "osD^vP*Xh<>p"
# Up to this percentage there is room for a number to the right of its mark.
_RIGHTMOST = 90.0
# Marks of the first and the last search of one size are this factor of the size apart.
_APART = 1.12
# What tells one panel from the others.
_KIND = ["interpretation", "components", "condition"]


@styled
def draw_recovery(rows: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Fraction of problems solved, with exact intervals: against the size, or by search.

    ``rows``: ``rows`` of a :class:`~loca_theory.convergence.study.ConvergenceStudy`.
    """
    if len(set(rows["size"])) > 1:
        return _draw_over_sizes(rows, ax)
    kinds = rows.groupby(_KIND, sort=False, dropna=False)
    searches = list(dict.fromkeys(rows["search"]))
    panel = (3.2 if len(kinds) > 1 else 5.4, 0.24 * len(searches) + 0.75)
    canvas = Canvas.grid(ax, len(kinds), 4, panel, (1.2, 0), sharey=True, sharex=True)
    for axis, (kind, of_kind) in zip(canvas.axes.flat, kinds, strict=False):
        heights = [searches.index(name) for name in of_kind["search"]]
        percent, errors = _percent(of_kind)
        axis.errorbar(percent[:, 0], heights, xerr=errors, fmt="o", color=BLUE, capsize=2, ms=4)
        axis.set_title(_title(kind, rows))
        for (value, low, high), y in zip(percent, heights, strict=True):
            # Print the number on that side of the interval where there is room.
            side, align = (high + 1.5, "left") if high < _RIGHTMOST else (low - 1.5, "right")
            axis.text(side, y, f"{value:.1f}", va="center", ha=align, fontsize="x-small")
        axis.set(ylim=(len(searches) - 0.5, -0.5), xlim=(-3, 103))
    labels = [search_label(name) for name in searches]
    for axis in canvas.axes[:, 0]:
        axis.set_yticks(range(len(searches)), labels)
    if len(kinds) == 1:
        canvas.headline(_headline(rows))
    edge, count = int(rows["size"].iloc[0]), int(rows["problems"].max())
    canvas.caption(f"{count} problems of {edge}×{edge}, exact 95% intervals.")
    canvas.label("problems solved, %", "")
    return canvas.figure


def _headline(rows: pd.DataFrame) -> str:
    """How much the paper's search solves, if it is among them, and how much the best one."""
    best = rows.iloc[int(rows["recovered"].argmax())]
    fractions = {str(best["search"]): best["recovered"]}
    papers = rows[rows["search"] == _PAPERS]["recovered"]
    if len(papers):
        fractions = {"the paper's search": papers.iloc[0]} | fractions
    words = (f"{name} {100 * fraction:.1f}%" for name, fraction in fractions.items())
    return f"Problems solved: {', '.join(words)}"


def _draw_over_sizes(rows: pd.DataFrame, ax: Axes | None) -> Figure:
    kinds = rows.groupby(_KIND, sort=False, dropna=False)
    canvas = Canvas.grid(ax, len(kinds), 3, (3.4, 2.6), (0.6, 0.8), sharey=True, sharex=True)
    searches = list(dict.fromkeys(rows["search"]))
    looks = search_looks(searches)
    sizes = sorted(rows["size"].unique())
    for axis, (kind, of_kind) in zip(canvas.axes.flat, kinds, strict=False):
        for k, name in enumerate(searches):
            line = of_kind[of_kind["search"] == name].sort_values("size")
            percent, errors = _percent(line)
            # Shift the searches so that no mark hides another.
            shift = _APART ** ((k - (len(searches) - 1) / 2) / max(len(searches) - 1, 1))
            style = {"color": looks[name].color, "linestyle": looks[name].dashes, "ms": 3.5}
            style |= {"marker": _MARKERS[k % len(_MARKERS)], "label": options().label(name)}
            axis.errorbar(line["size"] * shift, percent[:, 0], errors, **style)
        axis.set_xscale("log")
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.set_xticks([], minor=True)
        axis.set(title=_title(kind, rows), xlabel="size K")
    for axis in canvas.axes[:, 0]:
        axis.set_ylabel("problems solved, %")
    canvas.legend(5)
    return canvas.figure


def _percent(rows: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Percentage of problems solved with the ends of its interval, and the distances to these."""
    percent = 100 * rows[["recovered", "low", "high"]].to_numpy()
    return percent, np.abs(percent[:, 1:] - percent[:, :1]).T


def _title(kind: tuple[Any, ...], rows: pd.DataFrame) -> str:
    """The title of a panel: the settings in which it differs from the other panels."""
    interpretation, components, condition = kind
    parts = {
        "interpretation": str(interpretation),
        "components": f"{components} components",
        "condition": "Gaussian weights" if pd.isna(condition) else f"condition {condition:g}",
    }
    differing = [text for name, text in parts.items() if len(rows[name].drop_duplicates()) > 1]
    return ", ".join(differing) or f"{parts['components']}, {parts['condition']}"


def search_label(search: str) -> str:
    """The user's label of a search, or its name and what it is."""
    return _LABELS.get(label := options().label(search), label)


def search_looks(searches: Iterable[str]) -> dict[str, Look]:
    """The line style of each search; the main searches have the same in every figure."""
    return chosen_looks(searches, _LOOKS, _OTHER_LOOKS)
