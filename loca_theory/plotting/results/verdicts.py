"""Figure of the verdicts on the claims."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from loca_theory.claims.role import Role
from loca_theory.plotting.canvas import GREEN, RED, SKY, Canvas, NamedPicture, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from loca_theory.claims import VerificationResult

# The verdicts of the ledger, from supported to open.
_COLORS = {
    "supported": GREEN,
    "supported under assumptions": "#8fd3bf",
    "equivalent within a margin": SKY,
    "not supported": RED,
    "inconclusive": "#bdbdbd",
    "not run": "#eeeeee",
}


def pictures_of(result: VerificationResult) -> list[NamedPicture]:
    """The pictures of a verification: one, of the verdicts by question."""
    draw = partial(draw_verdicts, result.to_frame(), questions=result.ledger.questions)
    return [NamedPicture("verdicts", "Verdicts by question", draw)]


@styled
def draw_verdicts(
    table: pd.DataFrame, *, questions: Sequence[str] = (), ax: Axes | None = None
) -> Figure:
    """Number of claims by verdict: one bar per question, and below them one per other role.

    ``table``: One row per claim: ``role``, ``question``, ``section`` (used where
    ``question`` is empty) and ``verdict``. ``questions``: Their order.
    """
    is_doubtful = table["role"] == Role.DOUBTFUL
    titles = table["role"].map(lambda role: Role(role).heading)
    questioned = table["question"].where(table["question"] != "", table["section"])
    bars = titles.mask(is_doubtful, questioned)
    order = [*questions, *bars[is_doubtful], *(role.heading for role in Role)]
    shown = [bar for bar in dict.fromkeys(order) if bar in set(bars)][::-1]
    numbers = pd.crosstab(bars, table["verdict"]).loc[shown]
    canvas = Canvas.of(ax, (7.2, 0.3 * len(shown) + 1.3))
    axis = canvas.axes[0, 0]
    left, labels = np.zeros(len(shown)), [fill(bar, 40) for bar in shown]
    for verdict in [verdict for verdict in _COLORS if verdict in numbers]:
        counts, color = numbers[verdict], _COLORS[verdict]
        drawn = axis.barh(labels, counts, left=left, color=color, height=0.7, label=verdict)
        axis.bar_label(
            drawn, [str(count or "") for count in counts], label_type="center", fontsize="x-small"
        )
        left += counts.to_numpy()
    if is_doubtful.any() and not is_doubtful.all():
        axis.axhline(titles[~is_doubtful].nunique() - 0.5, color="0.6", linewidth=0.8)
    axis.grid(visible=False, axis="y")
    doubtful, remaining = is_doubtful.sum(), (~is_doubtful).sum()
    title = f"{doubtful} statements that somebody could doubt, and {remaining} others"
    axis.set(xlabel="claims", title=title)
    canvas.legend(3)
    return canvas.figure
