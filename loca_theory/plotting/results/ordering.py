"""Heat maps of the margin by which the ordering of Theorem 1 holds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure

from loca_theory.expressivity import Accounting, Budget
from loca_theory.expressivity.limits import limit_crossings
from loca_theory.expressivity.methods.registry import find_methods
from loca_theory.expressivity.theorem1.ordering import THEOREM_1_ORDER
from loca_theory.plotting.canvas import BLACK, RED, Canvas, NamedPicture, styled

if TYPE_CHECKING:
    from loca_theory.expressivity.theorem1.ordering import OrderingResult

_MAP = "cividis"
# Smaller gaps have the same colour.
_SMALLEST_SHOWN = 2e-3
# Pixels of r/K; the largest size has a third of its ranks below 1/3.
_PIXELS = 400
# Beyond the sizes of the table, the accounting in bits is searched up to this one.
_MOST_SEARCHED = 1024
_TITLES = {
    Accounting.PAPER: "paper: a chosen index costs 1",
    Accounting.MAIN_TEXT: "main-text: N2 = 2/3 N0 locations",
    Accounting.TRAINABLE: "trainable: indices are free",
    Accounting.DOF: "dof: LoRA counted as r(2K - r)",
    Accounting.BITS: "bits: 16-bit numbers, exact index bits",
}


def views(result: OrderingResult) -> list[NamedPicture]:
    """The picture of a result."""
    return [
        NamedPicture("margins", "Margin of Theorem 1", partial(draw_margins, result.to_frame()))
    ]


@styled
def draw_margins(table: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Draw the margins of an ordering of errors: a heat map per accounting.

    The colour is the smallest gap between neighbours in the ordering; orange cells are pairs (K, r)
    at which the ordering fails. A line marks where it first fails in the limit of large K; in bits,
    where there is no limit, a text says at which size it first fails.

    ``table``: Rows with the columns of an ordering.
    """
    panels = table.groupby("accounting", sort=False)
    canvas = Canvas.grid(ax, len(panels), 2, (3.7, 2.9), (0.8, 0), sharex=True)
    margin = table["worse_error"] - table["better_error"]
    norm = LogNorm(_SMALLEST_SHOWN, margin.max(), clip=True)
    for axis, (name, mine) in zip(canvas.axes.flat, panels, strict=False):
        accounting = Accounting(str(name))
        _draw_panel(axis, mine, margin[mine.index], norm)
        if accounting is Accounting.BITS:
            _draw_larger_sizes(axis, int(mine["K"].max()))
        else:
            _draw_limit(axis, accounting)
        axis.set_title(_TITLES[accounting])
    canvas.label("K", "r/K")
    bar = canvas.figure.colorbar(
        ScalarMappable(norm, _MAP), ax=list(canvas.axes.flat), shrink=0.9, pad=0.02, extend="min"
    )
    order = " > ".join(THEOREM_1_ORDER)
    bar.set_label("smallest gap between neighbours")
    canvas.headline(f"Where the errors are in the order {order}, for r < K/3 (orange: not)")
    return canvas.figure


def _draw_panel(axis: Axes, table: pd.DataFrame, margin: pd.Series, norm: LogNorm) -> None:
    sizes = np.arange(table["K"].min(), table["K"].max() + 1)
    grid = np.full((len(sizes), (sizes[-1] - 1) // 3 + 1), np.nan)
    grid[table["K"] - sizes[0], table["r"]] = margin
    # Each pixel of r/K shows the nearest rank of its size.
    heights = (np.arange(_PIXELS) + 0.5) / _PIXELS / 3
    rank = np.clip(np.rint(heights[:, None] * sizes), 1, (sizes - 1) // 3).astype(int)
    shown = grid[np.arange(len(sizes)), rank]
    where: dict[str, Any] = {
        "extent": (sizes[0] - 0.5, sizes[-1] + 0.5, 0, 1 / 3), "origin": "lower", "aspect": "auto",
        "interpolation": "nearest",
    }  # fmt: skip
    axis.imshow(np.where(shown > 0, shown, np.nan), norm=norm, cmap=_MAP, **where)
    axis.imshow(np.where(shown <= 0, 1.0, np.nan), cmap=ListedColormap([RED]), **where)
    axis.grid(visible=False)
    count, pairs = int((margin <= 0).sum()), f"{len(margin):,} pairs up to K = {sizes[-1]}"
    text = f"fails at {count:,} of {pairs}" if count else f"holds at all {pairs}"
    if count == 1:
        only = table[margin <= 0].iloc[0]
        text = f"fails at (K, r) = ({only['K']}, {only['r']}) alone"
        axis.plot(only["K"], only["r"] / only["K"], "<", color=RED, ms=7, mec="#ffffff", mew=0.7)
    _write(axis, 0.05, text, RED if count else BLACK)


def _draw_limit(axis: Axes, accounting: Accounting) -> None:
    """Draw where the ordering first fails in the limit of large K, if it does below r/K = 1/3."""
    first = min((one.ratio for one in limit_crossings(accounting)), default=1.0)
    if first < 1 / 3:
        axis.axhline(first, color="#ffffff", lw=1)
        text = f"fails above r/K = {first:.5f} in the limit"
        _write(axis, 3 * first - 0.035, text, BLACK, va="top")


def _draw_larger_sizes(axis: Axes, largest: int) -> None:
    """Say at which K beyond the table LoCA is first not the last, at the largest r below K/3.

    An index costs more bits in a larger matrix, so that there is no limit.
    """
    third, last = find_methods(THEOREM_1_ORDER[-2:])
    for size in range(largest + 1, _MOST_SEARCHED):
        budget = [Budget(size, size, (size - 1) // 3, Accounting.BITS)]
        if third.expected_errors(budget)[0] <= last.expected_errors(budget)[0]:
            _write(axis, 0.95, f"beyond, it first fails at K = {size}, r near K/3", RED, va="top")
            return


def _write(axis: Axes, height: float, text: str, back: str, **look: Any) -> None:
    """Write white text at the right edge, on a coloured ground."""
    box = {"facecolor": back, "alpha": 0.75, "lw": 0, "pad": 2.5}
    axis.text(0.97, height, text, transform=axis.transAxes, ha="right", color="#ffffff", bbox=box,
              **look)  # fmt: skip
