"""Draw by how much the order of errors in Theorem 1 holds or fails."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loca_theory.expressivity import Accounting, Budget
from loca_theory.expressivity.methods.registry import find_methods
from loca_theory.expressivity.theorem1.ordering import THEOREM_1_ORDER
from loca_theory.plotting.canvas import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    RED,
    Canvas,
    NamedPicture,
    styled,
)

if TYPE_CHECKING:
    from loca_theory.expressivity.theorem1.ordering import OrderingResult

# More failures are only counted.
_MOST_MARKED = 3
# Beyond the sizes of the table, the accounting in bits is searched below this one.
_MOST_SEARCHED = 1024
_TITLES = {
    Accounting.PAPER: "a chosen index costs one number",
    Accounting.MAIN_TEXT: "the main text's 2/3 N0 locations",
    Accounting.TRAINABLE: "indices are free",
    Accounting.DOF: "LoRA counted as r(2K − r)",
    Accounting.BITS: "everything in bits",
}
_LOOKS = {
    Accounting.PAPER: (BLUE, "-"),
    Accounting.MAIN_TEXT: (ORANGE, "-."),
    Accounting.TRAINABLE: (GREEN, (0, (5, 1))),
    Accounting.DOF: (RED, (0, (2, 1))),
    Accounting.BITS: (BLACK, ":"),
}


def pictures_of(result: OrderingResult) -> list[NamedPicture]:
    """The picture of a result."""
    return [
        NamedPicture(
            "margins", "Margin of Theorem 1", partial(draw_margins, result.to_frame()), ("ranks",)
        )
    ]


@styled
def draw_margins(table: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Draw the smallest gap between neighbours in an ordering of errors, a line per accounting.

    The lines are of the largest size. If the ordering fails at few pairs (K, r), they are marked.

    ``table``: Rows with the columns of an ordering.
    """
    canvas = Canvas.of(ax, (6.4, 4.0))
    axis = canvas.axes[0, 0]
    table = table.assign(
        ratio=table["r"] / table["K"], margin=table["worse_error"] - table["better_error"]
    )
    largest, captions, failures = int(table["K"].max()), [], {}
    axis.axhline(0, color=BLACK, lw=0.8)
    for name, rows in table.groupby("accounting", sort=False):
        accounting = Accounting(str(name))
        color, dashes = _LOOKS[accounting]
        failing, line = rows[rows["margin"] <= 0], rows[rows["K"] == largest].sort_values("r")
        failures[accounting] = f"{len(failing):,} of {len(rows):,}"
        label = f"{_TITLES[accounting]}: fails at {failures[accounting]}"
        axis.plot(line["ratio"], line["margin"], color=color, linestyle=dashes, label=label)
        if len(failing) <= _MOST_MARKED:
            _mark(axis, failing, color)
        if accounting is Accounting.BITS and (size := _first_failure(largest)):
            captions.append(f"In bits it first fails at K = {size}, at the largest r below K/3.")
    axis.set_xlabel(f"rank / size, r/K (lines: K = {largest})")
    axis.set_ylabel("smallest gap of two neighbours\nin the order of errors")
    axis.annotate(
        "below 0 the order fails",
        (0.01, 0),
        (4, -10),
        textcoords="offset points",
        xycoords=("axes fraction", "data"),
        fontsize="x-small",
    )
    order = " > ".join(THEOREM_1_ORDER)
    sentences = f"Lines: K = {largest}; numbers of failures: of all pairs (K, r) up to it."
    canvas.caption(" ".join([f"The order of errors {order}.", sentences, *captions]))
    if Accounting.PAPER in failures:
        failed = failures[Accounting.PAPER]
        canvas.headline(
            f"If an index costs a number, the order of Theorem 1 fails at {failed} sizes and ranks"
        )
    canvas.legend(1)
    return canvas.figure


def _mark(axis: Axes, failing: pd.DataFrame, color: str) -> None:
    """Mark pairs at which the ordering fails, and name them."""
    axis.plot(failing["ratio"], failing["margin"], "x", ms=6, color=color)
    for row in failing.itertuples():
        text = f"fails at K = {row.K}, r = {row.r}"
        axis.annotate(
            text,
            (row.ratio, row.margin),
            (-8, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize="small",
            color=color,
        )


def _first_failure(largest: int) -> int | None:
    """The first size beyond the table at which LoCA is not the last, at the largest r below K/3.

    An index costs more bits in a larger matrix, so a limit does not exist.
    """
    third, last = find_methods(THEOREM_1_ORDER[-2:])
    for size in range(largest + 1, _MOST_SEARCHED):
        budget = [Budget(size, size, (size - 1) // 3, Accounting.BITS)]
        if third.expected_errors(budget)[0] <= last.expected_errors(budget)[0]:
            return size
    return None
