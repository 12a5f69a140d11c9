"""Figure of what every method retains for what it costs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.method_table import costs
from loca_theory.expressivity.methods.names import display_name
from loca_theory.expressivity.methods.registry import METHODS
from loca_theory.plotting.canvas import BLACK, BLUE, Canvas, styled
from loca_theory.plotting.method_errors import MethodErrors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from loca_theory.checkpoints import Analysis

# The rank of the budget that is drawn, or the largest one below it.
_RANK = 8
# Bits of a trained number.
_WIDTH = 16
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_ROW, _WIDE = 0.2, 7.2


def draw_measured(result: Analysis, *, ax: Axes | None = None) -> Figure:
    """Draw the costs for independent entries, with errors of analysed matrices marked on them.

    The marks are means over the matrices of the most frequent shape, at the smallest rank.
    """
    errors = result.to_frame("errors")
    fitting = set(errors["name"])
    shapes = Counter(matrix.shape for matrix in result.matrices if matrix.name in fitting)
    (p, q), count = shapes.most_common(1)[0]
    mine = {matrix.name for matrix in result.matrices if matrix.shape == (p, q)}
    errors = errors[errors["name"].isin(mine)]
    rank = int(errors["r"].min())
    marks = errors[errors["r"] == rank].groupby("method", sort=False)["error"].mean().reset_index()
    table = MethodErrors(p, q, (rank,), simulated_ranks=()).run().to_frame()
    marks = marks[marks["method"].isin(table["method"])].assign(p=p, q=q, r=rank)
    return draw_catalogue(table, marks, f"{count} matri{'x' if count == 1 else 'ces'}", ax=ax)


@styled
def draw_catalogue(
    table: pd.DataFrame,
    marks: pd.DataFrame | None = None,
    marked: str = "matrices",
    *,
    ax: Axes | None = None,
) -> Figure:
    """Draw a row per method: the energy that it retains, relative to its cost.

    The unit is what as many coordinates retain that are chosen without looking: a method with m
    trained parameters retains the gain times m/pq of the energy. A second dot has the cost in bits,
    16 for a parameter and the exact bits of the indices that are chosen.

    Args:
        table: Rows of :class:`MethodErrors`; those of rank 8 are drawn, or of the next smaller one.
        marks: Errors of real matrices at one rank: columns ``method``, ``p``, ``q``, ``r``,
            ``error``.
        marked: What the marks are means of.
        ax: Axes to draw into; None for a new figure.

    Returns:
        The figure, not yet saved.
    """
    ranks = table["r"].unique()
    rank = max(ranks[ranks <= _RANK], default=ranks.min())
    found = _gains(table[table["r"] == rank]).sort_values(["parameters", "bits"], kind="stable")
    rows = {name: height for height, name in enumerate(found["method"])}
    canvas = Canvas.of(ax, (_WIDE, _ROW * len(rows) + 1.5))
    axis = canvas.axes[0, 0]
    axis.axvline(1, color="#888888", linewidth=0.8)
    for is_oracle, color in ((True, BLUE), (False, BLACK)):
        mine = found[found["is_oracle"] == is_oracle]
        heights = mine["method"].map(rows)
        kind = "looks at the matrix to choose" if is_oracle else "attainable by training"
        axis.plot(mine["parameters"], heights, "o", ms=5, color=color, label=kind)
        axis.plot(mine["bits"], heights, "o", ms=5, mfc="#ffffff", mec=color, zorder=1.9)
    axis.plot([], [], "o", ms=5, mfc="#ffffff", mec=BLACK, label="the same, by stored bits")
    values = found
    if marks is not None:
        values = _gains(marks)
        axis.plot(values["parameters"], values["method"].map(rows), "D", ms=5, mfc="#ffd24d",
                  mec=BLACK, mew=0.8, zorder=3, label=f"measured, {marked}")  # fmt: skip
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    ticks = [tick for tick in _TICKS if low < tick < high]
    axis.set_xticks(ticks, [f"×{tick:g}" for tick in ticks])
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_yticks(range(len(rows)), [display_name(name) for name in rows])
    axis.set_ylim(-0.6, len(rows) - 0.4)
    p, q = table["p"].iloc[0], table["q"].iloc[0]
    axis.set_xlabel("energy retained, relative to as many parameters at random coordinates\n"
                    f"({p} × {q}, budget of LoRA of rank {rank}, independent entries)")  # fmt: skip
    canvas.headline(_headline(values))
    canvas.legend(2)
    return canvas.figure


def _gains(table: pd.DataFrame) -> pd.DataFrame:
    """What each method retains, in units of its fraction of all parameters and of all bits."""
    found = table.assign(is_oracle=[METHODS[name].is_oracle for name in table["method"]])
    budgets = zip(table["method"], table["p"], table["q"], table["r"], strict=True)
    paid = [costs(METHODS[name], Budget(p, q, r)) for name, p, q, r in budgets]
    found[["parameters", "bits"]] = np.array(paid, dtype=float)
    energy = (1 - found["error"]) * found["p"] * found["q"]
    found["parameters"] = energy / found["parameters"]
    found["bits"] = _WIDTH * energy / found["bits"]
    return found[found["parameters"].notna()]


def _headline(found: pd.DataFrame) -> str:
    """The gains of LoRA and LoCA, as far as they are shown."""
    gains = found.set_index("method")["parameters"]
    shown = [f"{display_name(name)} ×{gains[name]:.1f}" for name in ("R", "D") if name in gains]
    return f"Energy per trained parameter (random coordinates ×1): {', '.join(shown)}"
