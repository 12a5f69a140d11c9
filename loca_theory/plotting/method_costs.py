"""Figure of every method's error against what it costs."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.method_table import costs
from loca_theory.expressivity.methods.method import Engine
from loca_theory.expressivity.methods.names import display_name
from loca_theory.expressivity.methods.registry import METHODS
from loca_theory.plotting.canvas import BLACK, BLUE, GREY, PINK, RED, Canvas, styled
from loca_theory.plotting.lines import in_order, spread
from loca_theory.plotting.method_errors import MethodErrors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from loca_theory.checkpoints import Analysis

_LINEAR_NAME, _SIMULATED = "linear families", Engine.MONTE_CARLO
# Ranks of the lines behind measured errors.
_RANKS = (1, 2, 4, 8, 16, 32)
# Methods whose retained energies differ by less share a line.
_SAME = 0.03
_ERRORS = (0.999, 0.997, 0.99, 0.97, 0.9, 0.7, 0.4, 0.0)
_SIZE, _LABEL_GAP, _KEY_CHARACTERS = (11.0, 5.2), 0.036, 190


class _End(NamedTuple):
    """The end of a line, with its label."""

    x: float
    height: float
    label: str
    color: str


def draw_measured(result: Analysis, *, ax: Axes | None = None) -> Figure:
    """Draw the catalogue for independent entries, with errors of analysed matrices marked on it.

    The marks are means over the matrices of the most frequent shape.
    """
    shapes = Counter(matrix.shape for matrix in result.matrices)
    (p, q), count = shapes.most_common(1)[0]
    mine = {matrix.name for matrix in result.matrices if matrix.shape == (p, q)}
    errors = result.to_frame("errors")
    marks = errors[errors["name"].isin(mine)].groupby(["method", "r"])["error"].mean().reset_index()
    ranks = sorted({*_RANKS, *marks["r"]})
    existing = tuple(r for r in ranks if (p + q) * r <= p * q)
    table = MethodErrors(p, q, existing, simulated_ranks=()).run().to_frame()
    marks = marks.merge(table[["method", "r", "p", "q"]], on=["method", "r"])
    what = "one matrix" if count == 1 else f"mean of {count} matrices"
    return draw_catalogue(table, marks, what, ax=ax)


@styled
def draw_catalogue(
    table: pd.DataFrame,
    marks: pd.DataFrame | None = None,
    marked: str = "measured",
    *,
    ax: Axes | None = None,
) -> Figure:
    """Draw the error against the trained parameters and against the stored bits.

    The axis of the error is logarithmic in the retained energy, 1 − error. Methods that coincide to
    a line's width share a line and a label. Dashed lines are oracles, which look at the matrix to
    choose; the points of simulated methods are marked.

    Args:
        table: Rows of :class:`MethodErrors`.
        marks: Errors of real matrices: columns ``method``, ``p``, ``q``, ``r``, ``error``.
        marked: What the marks are, for the key.
        ax: Not supported, because the figure has two panels.

    Returns:
        The figure, not yet saved.
    """
    table = _with_costs(table.sort_values("r"))
    priced = table[table["parameters"].notna()]
    groups = _groups(priced)
    canvas = Canvas.of(ax, _SIZE, 1, 2, sharey=True)
    left, right = canvas.axes.flat
    p, q = table["p"].iloc[0], table["q"].iloc[0]
    left.set_title(f"{p} × {q}: trained parameters")
    right.set_title("stored bits, with the indices that are chosen")
    left.set_xlabel("trained parameters")
    right.set_xlabel("bits of the stored adapter")
    left.set_ylabel("relative error ‖W − Ŵ‖² / ‖W‖²")
    ends = _draw(left, priced, groups, "parameters")
    ends_of_bits = _draw(right, priced, groups, "stored_bits") + _draw_bound(right, table)
    ticks = [error for error in _ERRORS if error <= priced["error"].max()]
    left.set_yticks(_height(pd.Series(ticks)), [f"{error:g}" for error in ticks])
    left.set_ylim(left.get_ylim()[::-1])
    for axis, labelled in ((left, ends), (right, ends_of_bits)):
        axis.set_xscale("log")
        axis.xaxis.set_minor_formatter(NullFormatter())
        _label(axis, labelled)
    key = _key(priced, groups)
    if marks is not None:
        marks = _with_costs(marks)
        _mark(left, marks, "parameters")
        _mark(right, marks, "stored_bits")
        key += f"\ndiamonds: measured errors ({marked}); lines: expected for independent entries"
    canvas.caption(key, x=0.01, ha="left", linespacing=1.4)
    return canvas.figure


def _with_costs(table: pd.DataFrame) -> pd.DataFrame:
    """The table with what each method costs and whether it is an oracle."""
    found = table.assign(is_oracle=[METHODS[name].is_oracle for name in table["method"]])
    budgets = zip(table["method"], table["p"], table["q"], table["r"], strict=True)
    found[["parameters", "stored_bits"]] = [
        costs(METHODS[name], Budget(p, q, r)) for name, p, q, r in budgets
    ]
    return found


def _height(error: pd.Series) -> NDArray[np.float64]:
    return np.log10(1 - error.to_numpy(float))


def _groups(table: pd.DataFrame) -> dict[str, list[str]]:
    """The methods of each line, by its label."""
    groups: list[list[str]] = []
    linear = []
    for name in in_order(table["method"]):
        rows = table[table["method"] == name]
        dimension = (1 - rows["error"]) * rows["p"] * rows["q"]
        if not rows["is_oracle"].any() and np.allclose(dimension, rows["parameters"], rtol=_SAME):
            linear.append(name)
            continue
        alike = [one for one in groups if _coincide(table[table["method"] == one[0]], rows)]
        if alike:
            alike[0].append(name)
        else:
            groups.append([name])
    found = {_names(group): group for group in groups}
    return {_LINEAR_NAME: linear, **found} if linear else found


def _names(methods: Iterable[str]) -> str:
    return ", ".join(map(display_name, methods))


def _coincide(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Whether two lines coincide where both are drawn."""
    first, second = np.log(one["parameters"]), np.log(other["parameters"])
    inside = (second >= first.min() - 1e-9) & (second <= first.max() + 1e-9)
    differ = any(one[key].iloc[0] != other[key].iloc[0] for key in ("is_oracle", "engine"))
    if differ or not inside.any():
        return False
    expected = np.interp(second[inside], first, np.log(1 - one["error"]))
    return bool(np.allclose(np.log(1 - other["error"][inside]), expected, atol=_SAME))


def _draw(axis: Axes, table: pd.DataFrame, groups: dict[str, list[str]], cost: str) -> list[_End]:
    """Draw a line per group and return their ends."""
    ends = []
    for label, methods in groups.items():
        rows = table[table["method"] == methods[0]]
        is_oracle, is_simulated = rows["is_oracle"].iloc[0], rows["engine"].iloc[0] == _SIMULATED
        if label == _LINEAR_NAME:
            color = BLACK
        elif is_oracle:
            color = BLUE
        else:
            color = PINK if is_simulated else RED
        x, height = rows[cost].to_numpy(float), _height(rows["error"])
        axis.plot(x, height, color=color, linestyle=(0, (4, 1.5)) if is_oracle else "-",
                  marker="o" if is_simulated else None, ms=3.5, lw=1.3)  # fmt: skip
        ends.append(_End(x[-1], height[-1], label, color))
    return ends


def _draw_bound(axis: Axes, table: pd.DataFrame) -> list[_End]:
    """Draw the rate–distortion bound at the bits of LoRA's ranks, if the table has both."""
    bits = table[table["method"] == "R"].set_index("r")["stored_bits"]
    bound = table[table["method"] == "RD"].set_index("r")["error"]
    ranks = bits.index.intersection(bound.index)
    heights = _height(bound[ranks])
    axis.plot(bits[ranks], heights, color=GREY, linestyle=(0, (1, 1)))
    if ranks.empty:
        return []
    return [_End(bits[ranks].max(), float(heights.max()), "rate–distortion bound", GREY)]


def _mark(axis: Axes, marks: pd.DataFrame, cost: str) -> None:
    """Mark measured errors, with the name of the method beside its smallest budget."""
    firsts = []
    for name in in_order(marks["method"]):
        rows = marks[marks["method"] == name].sort_values(cost)
        x, height = rows[cost].to_numpy(float), _height(rows["error"])
        axis.plot(x, height, "D", ms=4, mfc="#ffffff", mec=BLACK, mew=0.9, zorder=5)
        firsts.append(_End(x[0], height[0], display_name(name), BLACK))
    low, high = axis.get_ylim()
    for first, position in _apart(axis, firsts):
        axis.annotate(
            first.label, (first.x, low + position * (high - low)), xytext=(-7, 0),
            textcoords="offset points", ha="right", va="center", fontsize=8, zorder=4,
            bbox={"facecolor": "#ffffff", "alpha": 0.8, "lw": 0, "pad": 0.5},
        )  # fmt: skip


def _label(axis: Axes, ends: list[_End]) -> None:
    """Write the labels at the right edge, apart from each other, and lead a thin line to each."""
    for end, position in _apart(axis, ends):
        axis.annotate(
            end.label, (end.x, end.height), xytext=(1.03, position), textcoords="axes fraction",
            va="center", fontsize=8, color=end.color, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "lw": 0.4, "color": end.color, "relpos": (0, 0.5),
                        "shrinkA": 1, "shrinkB": 0},
        )  # fmt: skip


def _apart(axis: Axes, ends: list[_End]) -> Iterator[tuple[_End, float]]:
    """The ends from below, and where their labels are: fractions of the axis' height."""
    low, high = axis.get_ylim()
    ends = sorted(ends, key=lambda end: end.height, reverse=bool(low > high))
    yield from zip(ends, spread(axis, [end.height for end in ends], _LABEL_GAP), strict=True)


def _key(table: pd.DataFrame, groups: dict[str, list[str]]) -> str:
    engines = table.drop_duplicates("method").set_index("method")["engine"]
    limits = _names(name for name in in_order(engines.index) if engines[name] == "asymptotic")
    styles = "dashed: oracles, which choose by looking at the matrix; solid: attainable by training"
    lines = [f"{styles}; points: simulated. Lines within 3% of each other are drawn as one"]
    if _LINEAR_NAME in groups:
        names = _names(groups[_LINEAR_NAME])
        lines.insert(0, f"{_LINEAR_NAME} (error 1 − trained parameters / pq): {names}")
    if limits:
        lines.append(f"limits of large matrices: {limits}")
    return "\n".join(part for line in lines for part in textwrap.wrap(line, _KEY_CHARACTERS))
