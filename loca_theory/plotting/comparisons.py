"""Figure of the comparisons that decide the claims on fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.canvas import Picture, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Lines = Sequence[Mapping[str, Any]]

_COLORS = {
    "supported": "#009e73",
    "equivalent within a margin": "#0072b2",
    "not supported": "#d55e00",
    "inconclusive": "#7f7f7f",
}
_MARGIN, _TASKS = "#e8e8e8", "#777777"
_ROW, _WIDTH = 0.27, 7.6
# More tasks than these are spread over the height of the row.
_MANY, _GOLDEN = 12, 0.618
_UNITS = {"accuracy": "difference, points of accuracy", "loss": "difference, per cent of the loss"}


@styled
def draw_comparisons(lines: Lines) -> Figure:
    """Mean differences with the bounds that decide, one row per comparison.

    The bar of a row goes from −margin to the margin. Small dots are the differences of the tasks.
    The comparisons over the most tasks come first.

    Args:
        lines: Rows of ``python -m experiments.design --out``: ``title``, ``family_title``,
            ``measure``, ``margin``, ``verdict``, ``difference``, ``low``, ``high``,
            ``task_differences``.

    Raises:
        InvalidArgumentError: no comparison has a verdict.
    """
    lines = [line for line in lines if line["verdict"] is not None]
    if not lines:
        msg = "no comparison has a verdict yet, so there is nothing to draw"
        raise InvalidArgumentError(msg)
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for line in sorted(lines, key=lambda line: -len(line["task_differences"])):
        groups.setdefault((line["family_title"], line["measure"]), []).append(line)
    heights = [len(group) + 1.1 for group in groups.values()]
    figure = Picture(figsize=(_WIDTH, _ROW * sum(heights) + 0.55 * len(groups) + 0.6))
    axes = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, ((title, measure), group) in zip(axes, groups.items(), strict=True):
        draw_group(axis, group)
        axis.set_title(f"{title} By the loss" if measure == "loss" else title)
        axis.set_xlabel(_UNITS[measure], fontsize=8)
    points = [axis for axis, (_, measure) in zip(axes, groups, strict=True) if measure != "loss"]
    reach = max((abs(end) for axis in points for end in axis.get_xlim()), default=1.0)
    for axis in points:
        axis.set_xlim(-reach, reach)
    marks = [
        Line2D([], [], color=color, marker="o", markersize=4, label=verdict)
        for verdict, color in _COLORS.items()
        if any(line["verdict"] == verdict for line in lines)
    ]
    marks.append(Line2D([], [], color=_TASKS, marker=".", linestyle="none", label="one task"))
    marks.append(Line2D([], [], color=_MARGIN, linewidth=6, label="within the margin"))
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks), fontsize=7)
    return figure


def draw_group(axis: Axes, lines: Lines) -> None:
    """Draw comparisons into axes, one row each; see :func:`draw_comparisons`."""
    rows = np.arange(len(lines))[::-1]
    for row, line in zip(rows, lines, strict=True):
        color = _COLORS[line["verdict"]]
        axis.barh(row, 2 * line["margin"], left=-line["margin"], height=0.8, color=_MARGIN)
        found = list(line["task_differences"])
        is_many = len(found) > _MANY
        # A few are above the bounds, so that these do not hide them.
        spread = 0.5 * ((np.arange(len(found)) * _GOLDEN) % 1 - 0.5) if is_many else 0.25
        size = 3 if is_many else 5
        axis.plot(found, row + spread + np.zeros(len(found)), ".", color=_TASKS, ms=size, zorder=3)
        axis.plot([line["low"], line["high"]], [row, row], color=color, linewidth=2.5, zorder=4)
        axis.plot(line["difference"], row, "o", color=color, markersize=6, zorder=5)
    axis.axvline(0, color="#444444", linewidth=0.8, zorder=2)
    axis.set_yticks(rows, [line["title"] for line in lines])
    axis.set_ylim(-0.6, len(lines) - 0.4)
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)
