"""Figure of what predicts the better adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from loca_theory.plotting.canvas import Picture, styled
from loca_theory.plotting.runs import LOOKS, PLAIN, Lines, legend, with_mean


@styled
def draw_prediction(lines: Lines) -> Figure:
    """What was predicted against what was reached, one panel per predictor.

    Both are shown as differences from their means over the methods of the same task and budget,
    the prediction in units of its standard deviation over them. Titles give the mean rank
    correlation over tasks and budgets.

    Args:
        lines: Table of :mod:`experiments.prediction`: ``predictor``, ``predictor_title``, ``task``,
            ``method``, ``title``, ``r``, ``value``, ``mean``, ``correlation``, ``low``, ``high``,
            ``judged``, ``judged_low``, ``judged_high``, ``chosen``.

    Raises:
        InvalidArgumentError: every run diverged.
    """
    lines = with_mean(lines)
    names = list(dict.fromkeys(line["predictor"] for line in lines))
    columns = min(len(names), 3)
    rows = -(-len(names) // columns)
    figure = Picture(figsize=(2.9 * columns + 1.5, 2.7 * rows + 0.3))
    axes = list(figure.subplots(rows, columns, squeeze=False, sharey=True).flat)
    for axis, name in zip(axes, names, strict=False):
        cells: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
        for line in lines:
            if line["predictor"] == name:
                cells.setdefault((line["task"], line["r"]), []).append(line)
        points: dict[str, list[tuple[float, float]]] = {}
        for own in cells.values():
            value, mean = (np.array([x[key] for x in own], float) for key in ("value", "mean"))
            x = (value - value.mean()) / (value.std() or 1.0)
            y = 100 * (mean - mean.mean())
            for line, *point in zip(own, x, y, strict=True):
                points.setdefault(line["title"], []).append((point[0], point[1]))
        of_title = {line["title"]: line["method"] for line in lines}
        for title, where in points.items():
            color = LOOKS.get(of_title[title], PLAIN).color
            axis.scatter(*zip(*where, strict=True), s=10, color=color, label=title, linewidths=0)
        first = next(iter(cells.values()))[0]
        axis.set_title(f"{first['predictor_title']}\n{_correlations(first)}", fontsize=7)
        axis.set_xlabel("predicted, standard deviations")
    for axis in axes[::columns]:
        axis.set_ylabel("reached: accuracy, points")
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    caption = "Dots: a method at one budget on one task, minus the mean over methods. "
    caption += "ρ: mean rank correlation, with 95% intervals over tasks and seeds"
    legend(figure, axes, caption)
    return figure


def _correlations(line: Mapping[str, Any]) -> str:
    text = f"ρ = {line['correlation']:.2f} ({line['low']:.2f} to {line['high']:.2f})"
    if line["chosen"] and line["judged"] is not None:
        text += f"; on tasks\nit was not chosen on: {line['judged']:.2f} "
        text += f"({line['judged_low']:.2f} to {line['judged_high']:.2f})"
    return text
