"""Figure of what predicts the better adapter."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.canvas import BLUE, GREY, HEADLINE, Picture, styled

# The scopes that are drawn, and their titles.
_PANELS = {
    "methods at one budget": "All adapters",
    "methods at one budget, without LoRA": "Without LoRA",
}


@styled
def draw_prediction(table: pd.DataFrame) -> Figure:
    """Rank correlations of predictors with the accuracy, with their 95% intervals over tasks.

    Intervals without 0 are coloured.
    """
    table = table[table["scope"].isin(list(_PANELS)) & (table["tasks"] == "all")]
    if table.empty:
        raise InvalidArgumentError(
            "there are no correlations of methods at one budget, so there is nothing to draw"
        )
    titles = table.drop_duplicates("predictor").set_index("predictor")["title"]
    # The stored correlations have the sign of the reversed loss.
    titles = titles.where(~titles.index.str.startswith("loss"), "low " + titles)
    heights = pd.Series(range(len(titles))[::-1], titles.index)
    figure = Picture(figsize=(7.6, 0.28 * len(titles) + 1.1))
    axes = figure.subplots(1, len(_PANELS), sharex=True, sharey=True)
    for axis, (scope, title) in zip(axes, _PANELS.items(), strict=True):
        rows = table[table["scope"] == scope]
        differs = rows["low"] * rows["high"] > 0
        for color, part in ((GREY, rows[~differs]), (BLUE, rows[differs])):
            y = heights.loc[part["predictor"]]
            axis.hlines(y, part["low"].clip(-1, 1), part["high"].clip(-1, 1), color=color)
            axis.plot(part["correlation"], y, "o", color=color)
        axis.axvline(0, color="#444444", linewidth=0.8, zorder=0)
        axis.set_title(f"{title}: {differs.sum()} of {len(rows)} differ from 0", fontsize=9)
        axis.set_xlabel("rank correlation with the accuracy")
        axis.grid(visible=False, axis="y")
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(heights, titles)
    last = table[(table["scope"] == [*_PANELS][-1]) & (table["low"] * table["high"] > 0)]
    named = "; ".join(titles[last["predictor"]]) or "nothing"
    figure.suptitle(f"Predictive without LoRA: {named}", **HEADLINE)
    return figure
