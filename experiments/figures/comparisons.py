"""Figure of the comparisons that decide the claims on fine-tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.canvas import BLUE, GREEN, GREY, RED, Picture, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLORS = {
    "supported": GREEN,
    "equivalent within a margin": BLUE,
    "not supported": RED,
    "inconclusive": GREY,
}
_MARGIN, _TASKS = "#e8e8e8", "#777777"
_ROW, _WIDTH = 0.27, 7.6
# More tasks than these are spread over the height of the row.
_MANY, _GOLDEN = 12, 0.618
_UNITS = {"accuracy": "difference, points of accuracy", "loss": "difference, per cent of the loss"}


@styled
def draw_comparisons(table: pd.DataFrame) -> Figure:
    """Mean differences with the bounds that decide, one row per comparison.

    The bar of a row goes from −margin to the margin. Small dots are the differences of the tasks.
    The comparisons over the most tasks come first.

    Args:
        table: Rows of ``python -m experiments.design --out``: ``title``, ``family_title``,
            ``measure``, ``margin``, ``verdict``, ``difference``, ``low``, ``high``,
            ``task_differences``.

    Raises:
        InvalidArgumentError: no comparison has a verdict.
    """
    table = table[table["verdict"].notna()]
    if table.empty:
        msg = "no comparison has a verdict yet, so there is nothing to draw"
        raise InvalidArgumentError(msg)
    most_first = (-table["task_differences"].map(len)).sort_values(kind="stable").index
    groups = list(table.loc[most_first].groupby(["family_title", "measure"], sort=False))
    heights = [len(rows) + 1.1 for _, rows in groups]
    figure = Picture(figsize=(_WIDTH, _ROW * sum(heights) + 0.55 * len(groups) + 0.6))
    axes = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, ((title, measure), rows) in zip(axes, groups, strict=True):
        draw_group(axis, rows)
        axis.set_title(f"{title} By the loss" if measure == "loss" else title)
        axis.set_xlabel(_UNITS[str(measure)], fontsize=8)
    points = [axis for axis, ((_, unit), _) in zip(axes, groups, strict=True) if unit != "loss"]
    reach = max((abs(end) for axis in points for end in axis.get_xlim()), default=1.0)
    for axis in points:
        axis.set_xlim(-reach, reach)
    marks = [
        Line2D([], [], color=color, marker="o", markersize=4, label=verdict)
        for verdict, color in _COLORS.items()
        if verdict in set(table["verdict"])
    ]
    marks.append(Line2D([], [], color=_TASKS, marker=".", linestyle="none", label="one task"))
    marks.append(Line2D([], [], color=_MARGIN, linewidth=6, label="within the margin"))
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks), fontsize=7)
    return figure


def draw_group(axis: Axes, table: pd.DataFrame) -> None:
    """Draw comparisons into axes, one row each; see :func:`draw_comparisons`."""
    heights = range(len(table))[::-1]
    for height, line in zip(heights, table.to_dict("records"), strict=True):
        color = _COLORS[line["verdict"]]
        axis.barh(height, 2 * line["margin"], left=-line["margin"], height=0.8, color=_MARGIN)
        found = np.array(line["task_differences"])
        is_many = len(found) > _MANY
        # A few are above the bounds, so that these do not hide them.
        spread = 0.5 * ((np.arange(len(found)) * _GOLDEN) % 1 - 0.5) if is_many else 0.25
        size = 3 if is_many else 5
        axis.plot(found, height + spread + 0 * found, ".", color=_TASKS, ms=size, zorder=3)
        axis.plot([line["low"], line["high"]], [height] * 2, color=color, linewidth=2.5, zorder=4)
        axis.plot(line["difference"], height, "o", color=color, markersize=6, zorder=5)
    axis.axvline(0, color="#444444", linewidth=0.8, zorder=2)
    axis.set_yticks(heights, table["title"])
    axis.set_ylim(-0.6, len(table) - 0.4)
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)
