"""Figures of the energy that each method retains at one budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.ticker import PercentFormatter

from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.methods.names import display_name
from loca_theory.expressivity.methods.registry import METHODS
from loca_theory.plotting.canvas import BLACK, BLUE, Canvas, styled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# A method that trains more, or much less, than the budget has the fraction beside its name.
_SPENT = 0.9, 1.01
_ROW, _WIDE = 0.2, 7.2


@styled
def draw_catalogue(table: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Draw a row per method: the energy that it retains of independent entries.

    ``table``: Rows of :class:`~loca_theory.expressivity.simulation.Simulation` of one shape and
    rank. Bounds have no row.
    """
    p, q, r = map(int, table[["p", "q", "r"]].iloc[0])
    budget = Budget(p, q, r)
    trained = {name: METHODS[name].parameters(budget) for name in METHODS}
    spent = {name: count for name, count in trained.items() if count is not None}
    table = table[table["method"].isin(list(spent))]
    table = table.sort_values("error", ascending=False, kind="stable", ignore_index=True)
    canvas = Canvas.of(ax, (_WIDE, _ROW * len(table) + 1.3))
    axis = canvas.axes[0, 0]
    is_oracle = table["method"].isin([name for name in METHODS if METHODS[name].is_oracle])
    for color, kind, mine in (
        (BLUE, "looks at the matrix to choose locations, which the budget pays for",
         table[is_oracle]),
        (BLACK, "does not", table[~is_oracle]),
    ):  # fmt: skip
        axis.plot(1 - mine["error"], mine.index, "o", ms=5, color=color, label=kind)
    _label_rows(axis, [_with_cost(name, spent[name], budget) for name in table["method"]])
    axis.set_xlim(left=0)
    where = f"{budget.p} × {budget.q} independent entries, budget of LoRA of rank {budget.r}"
    axis.set_xlabel(f"energy retained of {where}")
    canvas.headline(_headline(dict(zip(table["method"], 1 - table["error"], strict=True))))
    canvas.legend(2)
    return canvas.figure


def _with_cost(name: str, parameters: float, budget: Budget) -> str:
    """The name of a method, and how much of the budget it trains if that is not all of it."""
    spent = parameters / budget.numbers
    is_whole = _SPENT[0] < spent < _SPENT[1] or METHODS[name].is_oracle
    return display_name(name) + ("" if is_whole else f" ({spent:.0%} of the budget)")


@styled
def draw_measured(
    errors: pd.DataFrame, r: int, titles: Mapping[str, str], *, ax: Axes | None = None
) -> Figure:
    """Draw a row per method: the energy that it retains of analysed matrices, with their spread.

    A dot is the median over the matrices, a bar the middle half of them, and a white dot the median
    for independent entries. ``errors``: table ``errors`` of an analysis; ``titles``: those of the
    methods that do not ship with the package.
    """
    mine = errors[errors["r"] == r]
    mine = mine.assign(retained=1 - mine["error"], independent=1 - mine["iid_error"].astype(float))
    medians = mine.groupby("method")["retained"].median().sort_values(kind="stable")
    canvas = Canvas.of(ax, (_WIDE, _ROW * len(medians) + 1.5))
    axis = canvas.axes[0, 0]
    count = mine.groupby("method").size().max()
    label = f"median of {count} matri{'x' if count == 1 else 'ces'}"
    axis.plot(medians, range(len(medians)), "o", ms=5, color=BLUE, label=label)
    for height, name in enumerate(medians.index):
        rows = mine[mine["method"] == name]
        half, other = ("the middle half of them", "independent entries") if not height else ("", "")
        low, high = rows["retained"].quantile([0.25, 0.75])
        axis.plot([low, high], [height] * 2, color=BLUE, lw=4, alpha=0.35, label=half)
        axis.plot(rows["independent"].median(), height, "o", ms=5, mfc="#ffffff", mec=BLACK,
                  zorder=1.9, label=other)  # fmt: skip
    _label_rows(axis, [titles.get(name) or display_name(name) for name in medians.index])
    axis.set_xlim(0, 1)
    axis.set_xlabel(f"energy of ΔW retained at the budget of LoRA of rank {r}")
    canvas.headline(f"{_headline(dict(zip(medians.index, medians, strict=True)))} (medians)")
    canvas.legend(3)
    return canvas.figure


def _label_rows(axis: Axes, names: Sequence[str]) -> None:
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(-0.6, len(names) - 0.4)
    axis.xaxis.set_major_formatter(PercentFormatter(1))


def _headline(retained: Mapping[str, float]) -> str:
    """What LoRA and LoCA retain, as far as they are shown."""
    words = [
        f"{display_name(name)} {retained[name]:.1%}" for name in ("R", "D") if name in retained
    ]
    return f"Energy retained at the same budget: {', '.join(words)}"
