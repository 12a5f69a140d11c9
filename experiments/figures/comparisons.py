"""Figure of the comparisons that decide the claims on fine-tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.canvas import BLUE, GREEN, GREY, RED, Picture, headline, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLORS = {
    "supported": GREEN,
    "equivalent within a margin": BLUE,
    "not supported": RED,
    "inconclusive": GREY,
}
_ROW = 0.36
_MARGIN, _TASKS = "#e8e8e8", "#777777"
# More tasks than these are spread over the height of the row.
_MANY, _GOLDEN = 12, 0.618
_UNITS = {"accuracy": "difference, points of accuracy", "loss": "difference, per cent of the loss"}


@styled
def draw_comparisons(table: pd.DataFrame, *, largest: bool = True) -> Figure:
    """Mean differences of one design, with the bounds that decide and the verdicts.

    The bar of a row goes from −margin to the margin. Small dots are the differences of the tasks.

    Args:
        table: Rows of ``python -m experiments.design --out``: ``title``, ``measure``, ``tasks``,
            ``margin``, ``verdict``, ``difference``, ``low``, ``high``, ``task_differences``.
        largest: Whether to draw the comparisons over the most tasks, or the others.
    """
    most = largest_design(table)
    table = most if largest else table[table["verdict"].notna()].drop(index=most.index)
    if table.empty:
        msg = "no comparison has a verdict yet, so there is nothing to draw"
        raise InvalidArgumentError(msg)
    groups = list(table.groupby("measure", sort=True))
    heights = [len(rows) for _, rows in groups]
    figure = Picture(figsize=(9.5, _ROW * sum(heights) + 0.5 * len(groups) + 0.7))
    axes = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, (measure, rows) in zip(axes, groups, strict=True):
        draw_group(axis, rows)
        axis.set_xlabel(_UNITS[str(measure)], fontsize=8)
        for height, line in zip(axis.get_yticks(), rows.to_dict("records"), strict=True):
            verdict = line["verdict"].replace("a margin", f"±{line['margin']:g}")
            text = f"{line['difference']:+.1f}: {verdict}".replace("-", "−")
            axis.text(1.02, height, text, va="center",
                      transform=axis.get_yaxis_transform(), fontsize=8, weight="bold",
                      color=_COLORS[line["verdict"]])  # fmt: skip
    marks = [
        Line2D([], [], color=_TASKS, marker=".", linestyle="none", label="one task"),
        Line2D([], [], color="#222222", marker="o", ms=4, label="mean, with the bounds"),
        Line2D([], [], color=_MARGIN, linewidth=6, label="within the margin fixed beforehand"),
    ]
    tasks = " or ".join(map(str, sorted(set(table["tasks"]))))
    title = f"Differences between methods over {tasks} tasks"
    headline(figure, title)
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks), fontsize=7)
    return figure


def largest_design(table: pd.DataFrame) -> pd.DataFrame:
    """The decided comparisons over the most tasks."""
    table = table[table["verdict"].notna()]
    return table[table["tasks"] == table["tasks"].max()]


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
    titles = table["title"].str.replace("V1, random locations", "random locations (V1)")
    axis.set_yticks(heights, titles)
    axis.set_ylim(-0.6, len(table) - 0.4)
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)
