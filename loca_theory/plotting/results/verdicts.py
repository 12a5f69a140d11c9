"""Figure of the verdicts on the claims."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from loca_theory.plotting.canvas import GREEN, RED, SKY, Canvas, View, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from loca_theory.claims import VerificationResult

_ERRATUM = "not supported: an erratum"
# The verdicts of the ledger, from supported to open.
_COLORS = {
    "supported": GREEN,
    "supported under assumptions": "#8fd3bf",
    "equivalent within a margin": SKY,
    _ERRATUM: "#f3c19b",
    "not supported": RED,
    "inconclusive": "#bdbdbd",
    "not run": "#eeeeee",
}


def views(result: VerificationResult) -> list[View]:
    """The picture of the verdicts."""
    draw = partial(draw_verdicts, result.to_frame())
    return [View("verdicts", "Verdicts by section of the paper", draw)]


@styled
def draw_verdicts(table: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Number of claims by verdict, one bar per section.

    ``table``: One row per claim: ``section``, ``verdict``, and ``erratum``, whether the claim
    is a typo of the paper.
    """
    is_erratum = table["erratum"] & (table["verdict"] == "not supported")
    table = table.assign(verdict=table["verdict"].where(~is_erratum, _ERRATUM))
    sections = list(dict.fromkeys(table["section"]))[::-1]
    canvas = Canvas.of(ax, (7.2, 0.26 * len(sections) + 1.3))
    axis = canvas.axes[0, 0]
    left = np.zeros(len(sections))
    numbers = pd.crosstab(table["section"], table["verdict"]).loc[sections]
    for verdict in [one for one in _COLORS if one in numbers]:
        counts, color = numbers[verdict], _COLORS[verdict]
        bars = axis.barh(sections, counts, left=left, color=color, height=0.7, label=verdict)
        axis.bar_label(
            bars, [str(one or "") for one in counts], label_type="center", fontsize="x-small"
        )
        left += counts.to_numpy()
    axis.grid(visible=False, axis="y")
    axis.set(xlabel="claims", title=f"{len(table)} claims by section and verdict")
    canvas.legend(3)
    return canvas.figure
