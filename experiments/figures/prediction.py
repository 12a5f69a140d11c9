"""Figure of what predicts the better adapter."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.canvas import BLUE, RED, Picture, styled

# The scopes that are drawn, and their titles.
_PANELS = {
    "methods at one budget": "All adapters",
    "methods at one budget, without LoRA": "Without LoRA",
}
# Parts of the tasks: label, color, distance from the middle of the row.
_PARTS = {
    "all": ("all tasks, 95% interval", BLUE, 0.14),
    "judgement": ("kinds not used to choose", RED, -0.14),
}


@styled
def draw_prediction(table: pd.DataFrame) -> Figure:
    """Rank correlations of predictors with the accuracy, with their 95% intervals over tasks.

    Args:
        table: Table of :mod:`experiments.prediction`: ``predictor``, ``title``, ``scope``,
            ``tasks``, ``correlation``, ``low``, ``high``, ``chosen``.

    Raises:
        InvalidArgumentError: there is no correlation.
    """
    table = table[table["scope"].isin(list(_PANELS))]
    if table.empty:
        msg = "there are no correlations of methods at one budget, so there is nothing to draw"
        raise InvalidArgumentError(msg)
    titles = table.drop_duplicates("predictor").set_index("predictor")["title"]
    heights = pd.Series(range(len(titles))[::-1], titles.index)
    figure = Picture(figsize=(7.6, 0.34 * len(titles) + 1.3))
    axes = figure.subplots(1, len(_PANELS), sharex=True, sharey=True)
    for axis, (scope, title) in zip(axes, _PANELS.items(), strict=True):
        rows = table[table["scope"] == scope]
        for part, (label, color, shift) in _PARTS.items():
            own = rows[rows["tasks"] == part]
            y = heights.loc[own["predictor"]].to_numpy() + shift
            low, high = own["low"].clip(-1, 1), own["high"].clip(-1, 1)
            axis.hlines(y, low, high, color=color, linewidth=1.5)
            axis.plot(own["correlation"], y, "o", color=color, label=label)
        axis.axvline(0, color="#444444", linewidth=0.8, zorder=0)
        for name in set(rows["predictor"][rows["chosen"]]):
            axis.axhspan(heights[name] - 0.4, heights[name] + 0.4, color="#e8e8e8", zorder=-1)
        axis.set_title(title)
        axis.set_xlabel("rank correlation with the accuracy")
        axis.grid(visible=False, axis="y")
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(heights, titles)
    handles, _ = axes[0].get_legend_handles_labels()
    handles.append(Patch(color="#e8e8e8", label="chosen on the other kinds"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure
