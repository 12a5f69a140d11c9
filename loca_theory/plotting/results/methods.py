"""Figures of the energy that each method retains at one budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.ticker import PercentFormatter

from loca_theory.expressivity.methods.registry import METHODS
from loca_theory.expressivity.spending import off_budget
from loca_theory.plotting.canvas import BLACK, BLUE, Canvas, styled
from loca_theory.plotting.looks import TITLES, key
from loca_theory.plotting.options import options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW, _WIDE = 0.2, 7.2


@styled
def draw_expected(table: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Draw a row per method: the energy that it retains of independent entries.

    ``table``: Rows of :class:`~loca_theory.expressivity.simulation.Simulation` of one shape and
    rank. Bounds have no row.
    """
    p, q, r = map(int, table[["p", "q", "r"]].iloc[0])
    table = table[table["spent"].notna()]
    table = table.sort_values("error", ascending=False, kind="stable", ignore_index=True)
    canvas = Canvas.of(ax, (_WIDE, _ROW * len(table) + 1.3))
    axis = canvas.axes[0, 0]
    is_oracle = table["method"].isin([name for name in METHODS if METHODS[name].is_oracle])
    for color, kind, rows in (
        (
            BLUE,
            "looks at the matrix to choose locations, which the budget pays for",
            table[is_oracle],
        ),
        (BLACK, "does not", table[~is_oracle]),
    ):
        axis.plot(1 - rows["error"], rows.index, "o", ms=5, color=color, label=kind)
    costs = {name: off_budget([spent]) for name, spent in table[["method", "spent"]].to_numpy()}
    _label_rows(axis, [_with_cost(options().label(n), costs[n]) for n in table["method"]])
    axis.set_xlim(left=0)
    where = f"{p} × {q} independent entries, budget of LoRA of rank {r}"
    axis.set_xlabel(f"energy retained of {where}{_COSTS if any(costs.values()) else ''}")
    canvas.headline(_headline(dict(zip(table["method"], 1 - table["error"], strict=True))))
    canvas.legend(2)
    return canvas.figure


_COSTS = "\nin brackets: what a method spends of the budget, if not 100%"


def _with_cost(name: str, spent: str) -> str:
    """A name, and how much of the budget the method spends if that is not all of it."""
    return f"{name} ({spent})" if spent else name


@styled
def draw_measured(
    errors: pd.DataFrame,
    r: int,
    titles: Mapping[str, str],
    costs: Mapping[str, str],
    *,
    ax: Axes | None = None,
) -> Figure:
    """Draw a row per method: the energy that it retains of analysed matrices, with their spread.

    A dot is the median over the matrices, a bar the middle half of them, and a white dot the median
    for independent entries. ``errors``: table ``errors`` of an analysis; ``titles``: those of the
    methods that do not ship with the package; ``costs``: what methods spend of the budget, if not
    all.
    """
    at_rank = errors[errors["r"] == r]
    independent = 1 - at_rank["iid_error"].astype(float)
    at_rank = at_rank.assign(retained=1 - at_rank["error"], independent=independent)
    medians = at_rank.groupby("method")["retained"].median().sort_values(kind="stable")
    canvas = Canvas.of(ax, (_WIDE, _ROW * len(medians) + 1.5))
    axis = canvas.axes[0, 0]
    count = at_rank.groupby("method").size().max()
    label = f"median of {count} matri{'x' if count == 1 else 'ces'}"
    axis.plot(medians, range(len(medians)), "o", ms=5, color=BLUE, label=label)
    for height, name in enumerate(medians.index):
        color = options().color(name, BLUE)
        if color != BLUE:
            axis.plot(medians[name], height, "o", ms=5, color=color)
        rows = at_rank[at_rank["method"] == name]
        half, other = ("the middle half of them", "independent entries") if not height else ("", "")
        low, high = rows["retained"].quantile([0.25, 0.75])
        axis.plot([low, high], [height] * 2, color=color, lw=4, alpha=0.35, label=half)
        axis.plot(
            rows["independent"].median(),
            height,
            "o",
            ms=5,
            mfc="#ffffff",
            mec=BLACK,
            zorder=1.9,
            label=other,
        )
    names = [(options().label(name), costs.get(name, "")) for name in medians.index]
    _label_rows(axis, [_with_cost(label, spent) for label, spent in names])
    canvas.caption(key(medians.index, {**TITLES, **titles}))
    axis.set_xlim(0, 1)
    what = f"energy of ΔW retained at the budget of LoRA of rank {r}"
    axis.set_xlabel(f"{what}{_COSTS if any(spent for _, spent in names) else ''}")
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
        f"{options().label(name)} {retained[name]:.1%}"
        for name in ("LoRA", "LoCA")
        if name in retained
    ]
    return ": ".join(filter(None, ("Energy retained at the same budget", ", ".join(words))))
