"""Figure of the trainings under which an increment is of low rank, or like independent entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.figures.runs import nothing_to_draw
from loca_theory.plotting.canvas import BLACK, BLUE, Picture, styled
from loca_theory.plotting.lines import LOOKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's and Tol's colours; marks and dashes say the same in grey.
_OPTIMIZERS = {
    "SGD": (BLUE, "o", "-"),
    "Adam": ("#aa4499", "s", "-"),
    "AdamW": ("#332288", "^", (0, (3, 1.5))),
}
_OTHER = ("#444444", "D", "-")
_LOW_RANK, _COSINE = LOOKS["R"].color, LOOKS["D"].color
_TINT = 0.13
# Panels other than the first show the energy at this r/K.
_RATIO = 1 / 8
_FACTORS = {
    "kind": "layer",
    "rate": "learning rate,\nrelative to the default",
    "steps": "steps",
    "batch": "batch",
    "examples": "training examples",
}
_KINDS = {"attention output": "att. out"}
_TICKS = (0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.99, 0.997, 0.999)
_PANEL = (1.75, 2.5)
_EQUAL = "low rank = best cosine coefficients, f + 2zφ(z)"
_INDEPENDENT = "independent normal entries"


@styled
def draw_low_rank(table: pd.DataFrame) -> Figure:
    """Energy fraction of the r largest singular values, by training; a row of panels per task.

    The first panel shows it by r/K for the default training of every optimiser, the others at
    r = K/8 by kind of layer, by accuracy of the training, and by the factor that varies. Dashed:
    independent normal entries, as the paper assumes. The solid edge is the fraction f + 2zφ(z),
    beyond which low rank retains more than the best cosine coefficients of the same budget. The
    vertical axis is linear in the logarithm of the odds.

    Args:
        table: Rows of :mod:`experiments.low_rank`: ``task``, ``factor``, ``label``, ``value``,
            ``optimizer``, ``K``, ``r``, ``retained``, ``low``, ``high``, ``independent``,
            ``threshold``, ``accuracy``.

    Raises:
        InvalidArgumentError: every run diverged.
    """
    table = table[table["retained"].notna()]
    if table.empty:
        raise nothing_to_draw()
    tasks = list(table.groupby("task", sort=False))
    factors = [name for name in _FACTORS if name in set(table["factor"])]
    columns = ["optimizer", "accuracy", *factors]
    figure = Picture(figsize=(_PANEL[0] * len(columns) + 1, _PANEL[1] * len(tasks) + 0.8))
    axes = figure.subplots(len(tasks), len(columns), squeeze=False, sharey=True)
    for row, (task, mine) in zip(axes, tasks, strict=True):
        for axis, name in zip(row, columns, strict=True):
            _draw_panel(axis, name, mine)
        row[0].set_ylabel("energy of the r largest\nsingular values of ΔW")
        row[0].set_title(task)
    axes[0, 0].set_yscale("logit")
    every = table[["retained", "independent"]].to_numpy(float)
    axes[0, 0].set_ylim(*_margins(every.min(), every.max()))
    low, high = axes[0, 0].get_ylim()
    ticks = [tick for tick in _TICKS if low < tick < high]
    axes[0, 0].set_yticks(ticks, [f"{100 * tick:g}%" for tick in ticks])
    for axis in axes.flat:
        axis.yaxis.minorticks_off()
    _add_key(figure, axes)
    return figure


def _margins(low: float, high: float) -> tuple[float, float]:
    """The ends of the axis: half a unit of the logarithm of the odds beyond the values."""
    ends = np.log([low, high]) - np.log1p([-low, -min(high, 1 - 1e-6)]) + [-0.5, 0.5]
    return tuple((1 / (1 + np.exp(-ends))).tolist())


def _draw_panel(axis: Axes, name: str, table: pd.DataFrame) -> None:
    rows = table[table["factor"] == name]
    if name == "accuracy":
        _draw_accuracy(axis, _at_ratio(table[table["factor"] != "kind"]))
    elif rows.empty:
        axis.set_visible(False)
    elif name == "optimizer":
        _draw_ranks(axis, rows)
    elif name == "kind":
        _draw_kinds(axis, _at_ratio(rows))
    else:
        _draw_factor(axis, _at_ratio(rows))
        axis.set_xlabel(_FACTORS[name])


def _draw_ranks(axis: Axes, rows: pd.DataFrame) -> None:
    """By rank, in the default training of each optimiser."""
    rows = rows.assign(ratio=rows["r"] / rows["K"]).sort_values("r", kind="stable")
    for _, own in rows.groupby("optimizer", sort=False):
        _draw_line(axis, own["ratio"], own)
    references = rows.drop_duplicates("r")
    _draw_background(axis, references["ratio"], references)
    low, high = rows["ratio"].min(), rows["ratio"].max()
    axis.set_xscale("log", base=2)
    exponents = [k for k in range(int(-np.log2(low)), 0, -2) if low <= 2.0**-k <= high]
    axis.set_xticks([2.0**-k for k in exponents], [f"1/{2**k}" for k in exponents])
    axis.minorticks_off()
    axis.set_xlim(low, high)
    axis.set_xlabel("r/K")


def _draw_factor(axis: Axes, rows: pd.DataFrame) -> None:
    """By the value of a factor, on a logarithmic axis."""
    rows = rows.sort_values("value", kind="stable")
    for _, own in rows.groupby("optimizer", sort=False):
        _draw_line(axis, own["value"], own)
    axis.set_xscale("log")
    low, high = rows["value"].min(), rows["value"].max()
    pad = (high / low) ** 0.08 if high > low else 2.0
    _draw_background(axis, [low / pad, high * pad], rows.iloc[[0, 0]])
    ticks = rows.drop_duplicates("value")
    axis.set_xticks(ticks["value"], ticks["label"])
    axis.minorticks_off()
    axis.set_xlim(low / pad, high * pad)


def _draw_kinds(axis: Axes, rows: pd.DataFrame) -> None:
    """By kind of layer; the references differ between shapes of matrices."""
    references = rows.drop_duplicates("label")
    kinds = list(references["label"])
    groups = list(rows.groupby("optimizer", sort=False))
    for number, (_, own) in enumerate(groups):
        shift = 0.22 * (number - (len(groups) - 1) / 2)
        _draw_line(axis, own["label"].map(kinds.index) + shift, own, width=0)
    edges = np.arange(len(kinds))[:, None] + [-0.5, 0.5]
    _draw_background(axis, edges.ravel(), references.loc[references.index.repeat(2)])
    axis.set_xticks(range(len(kinds)), [_KINDS.get(kind) or kind for kind in kinds], rotation=90)
    axis.set_xlim(-0.5, len(kinds) - 0.5)


def _draw_accuracy(axis: Axes, rows: pd.DataFrame) -> None:
    """Every training once, by the accuracy that it reaches."""
    for optimizer, own in rows.groupby("optimizer", sort=False):
        color, mark, _ = _OPTIMIZERS.get(str(optimizer), _OTHER)
        axis.plot(100 * own["accuracy"], own["retained"], mark, color=color, ms=3.5, alpha=0.75,
                  mew=0)  # fmt: skip
    low, high = axis.get_xlim()
    _draw_background(axis, [low, high], rows.iloc[[0, 0]])
    axis.set_xlim(low, high)
    axis.set_xlabel("test accuracy, %")
    nearest = rows.iloc[rows["retained"].to_numpy().argmin()]
    at = (100 * nearest["accuracy"], nearest["retained"])
    axis.plot(*at, "o", ms=8, mfc="none", mec=BLACK, mew=0.9)
    axis.annotate(
        f"nearest: {_in_words(nearest)}", at, xytext=(0.5, 0.93), textcoords="axes fraction",
        ha="center", va="top", fontsize=7.5, zorder=4,
        arrowprops={"arrowstyle": "-", "lw": 0.6, "shrinkB": 5},
    )  # fmt: skip


def _in_words(line: pd.Series) -> str:
    """The optimiser, and what differs from its default training."""
    label = line["label"]
    values = {
        "optimizer": "default", "rate": f"{label}× rate", "steps": f"{label} steps",
        "batch": f"batch {label}", "examples": f"{label} examples",
    }  # fmt: skip
    return f"{line['optimizer']},\n{values[line['factor']]}"


def _draw_line(axis: Axes, x: pd.Series, own: pd.DataFrame, *, width: float = 1.3) -> None:
    """Draw the energies of one optimiser; an unbounded interval has no bars."""
    optimizer = own["optimizer"].iloc[0]
    color, mark, dashes = _OPTIMIZERS.get(optimizer, _OTHER)
    y, ends = own["retained"].to_numpy(), own[["low", "high"]].to_numpy(float)
    lengths = np.abs(np.clip(ends, 1e-4, 1 - 1e-4).T - y)
    errors = np.where(np.isfinite(ends).all(axis=1), lengths, 0)
    axis.errorbar(
        x, y, yerr=errors, color=color, marker=mark, ms=3.5, linestyle=dashes, lw=width,
        elinewidth=0.9, label=optimizer, zorder=3,
    )  # fmt: skip


def _draw_background(axis: Axes, x: Any, rows: pd.DataFrame) -> None:
    """Regions where low rank or cosine coefficients retain more, and independent entries."""
    threshold = rows["threshold"]
    axis.fill_between(x, threshold, 1 - 1e-9, color=_LOW_RANK, alpha=_TINT, lw=0, zorder=0)
    axis.fill_between(x, 1e-9, threshold, color=_COSINE, alpha=_TINT, lw=0, zorder=0)
    axis.plot(x, threshold, color=_COSINE, lw=0.9, zorder=1, label=_EQUAL)
    axis.plot(x, rows["independent"], color=BLACK, lw=1.1, linestyle=(0, (4, 2)), zorder=2,
              label=_INDEPENDENT)  # fmt: skip


def _add_key(figure: Figure, axes: Any) -> None:
    """Add the key, and the words for the regions."""
    first = axes[0, 0]
    for position, text, color, look in (
        ((0.06, 0.95), "low rank\nretains more", _LOW_RANK, {"ha": "left", "va": "top"}),
        ((0.94, 0.05), "coefficients\nretain more", _COSINE, {"ha": "right", "va": "bottom"}),
    ):
        first.text(*position, text, color=color, fontsize=7.5, weight="bold",
                   transform=first.transAxes, linespacing=1.1, zorder=4, **look)  # fmt: skip
    found: dict[str, Any] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    references = (_EQUAL, _INDEPENDENT)
    names = [name for name in found if name not in references] + list(references)
    figure.legend([found[name] for name in names], names, loc="outside upper center",
                  ncols=len(names), handlelength=2.6)  # fmt: skip
    caption = "First column: the default training of each optimiser, K = min(p, q). Other columns: "
    caption += "r = K/8; every training, then one factor varies. Means over matrices and seeds; "
    caption += "bars: 95% intervals over seeds"
    figure.supxlabel(caption, fontsize=7, color="#444444")


def _at_ratio(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows whose r/K is nearest to the ratio that is shown."""
    ratios = rows["r"] / rows["K"]
    distances = np.abs(np.log(ratios.to_numpy() / _RATIO))
    return rows[ratios == ratios.iloc[distances.argmin()]]
