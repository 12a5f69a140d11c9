"""Figure of what predicts the better adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.canvas import Picture, styled

# The scopes that are drawn, and their titles.
_PANELS = {
    "methods at one budget": "All adapters",
    "methods at one budget, without LoRA": "Without LoRA",
}
# Parts of the tasks: label, color, distance from the middle of the row.
_PARTS = {
    "all": ("all tasks, 95% interval", "#0072b2", 0.14),
    "judgement": ("kinds not used to choose", "#d55e00", -0.14),
}


@styled
def draw_prediction(lines: Sequence[Mapping[str, Any]]) -> Figure:
    """Rank correlations of predictors with the accuracy, with their 95% intervals over tasks.

    Args:
        lines: Table of :mod:`experiments.prediction`: ``predictor``, ``title``, ``scope``,
            ``tasks``, ``correlation``, ``low``, ``high``, ``chosen``.

    Raises:
        InvalidArgumentError: there is no correlation.
    """
    names = {line["predictor"]: line["title"] for line in lines if line["scope"] in _PANELS}
    if not names:
        msg = "there are no correlations of methods at one budget, so there is nothing to draw"
        raise InvalidArgumentError(msg)
    row_of = dict(zip(names, np.arange(len(names))[::-1], strict=True))
    figure = Picture(figsize=(7.6, 0.34 * len(names) + 1.3))
    axes = figure.subplots(1, len(_PANELS), sharex=True, sharey=True)
    for axis, (scope, title) in zip(axes, _PANELS.items(), strict=True):
        for part, (label, color, shift) in _PARTS.items():
            own = [line for line in lines if (line["scope"], line["tasks"]) == (scope, part)]
            y = [row_of[line["predictor"]] + shift for line in own]
            low, high = (np.clip([line[key] for line in own], -1, 1) for key in ("low", "high"))
            axis.hlines(y, low, high, color=color, linewidth=1.5)
            axis.plot([line["correlation"] for line in own], y, "o", color=color, label=label)
        axis.axvline(0, color="#444444", linewidth=0.8, zorder=0)
        chosen = {line["predictor"] for line in lines if line["scope"] == scope and line["chosen"]}
        for name in chosen:
            axis.axhspan(row_of[name] - 0.4, row_of[name] + 0.4, color="#e8e8e8", zorder=-1)
        axis.set_title(title)
        axis.set_xlabel("rank correlation with the accuracy")
        axis.grid(visible=False, axis="y")
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(list(row_of.values()), list(names.values()))
    handles, _ = axes[0].get_legend_handles_labels()
    handles.append(Patch(color="#e8e8e8", label="chosen on the other kinds"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure
