"""Figure of the trainings under which an increment is of low rank, or like independent entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.canvas import Picture, styled
from loca_theory.plotting.lines import LOOKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Lines = Sequence[Mapping[str, Any]]

# Okabe and Ito's and Tol's colours; marks and dashes say the same in grey.
_OPTIMIZERS = {
    "SGD": ("#0072b2", "o", "-"),
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
def draw_low_rank(lines: Lines) -> Figure:
    """Energy fraction of the r largest singular values, by training; a row of panels per task.

    The first panel shows it by r/K for the default training of every optimiser, the others at
    r = K/8 by kind of layer, by accuracy of the training, and by the factor that varies. Dashed:
    independent normal entries, as the paper assumes. The solid edge is the fraction f + 2zφ(z),
    beyond which low rank retains more than the best cosine coefficients of the same budget. The
    vertical axis is linear in the logarithm of the odds.

    Args:
        lines: Rows of :mod:`experiments.low_rank`: ``task``, ``factor``, ``label``, ``value``,
            ``optimizer``, ``K``, ``r``, ``retained``, ``low``, ``high``, ``independent``,
            ``threshold``, ``accuracy``.

    Raises:
        InvalidArgumentError: every run diverged.
    """
    lines = [line for line in lines if line["retained"] is not None]
    if not lines:
        msg = "every run diverged, so there is nothing to draw"
        raise InvalidArgumentError(msg)
    tasks = list(dict.fromkeys(line["task"] for line in lines))
    factors = [name for name in _FACTORS if any(line["factor"] == name for line in lines)]
    columns = ["optimizer", "accuracy", *factors]
    figure = Picture(figsize=(_PANEL[0] * len(columns) + 1, _PANEL[1] * len(tasks) + 0.8))
    axes = figure.subplots(len(tasks), len(columns), squeeze=False, sharey=True)
    for row, task in zip(axes, tasks, strict=True):
        mine = [line for line in lines if line["task"] == task]
        for axis, name in zip(row, columns, strict=True):
            _draw_panel(axis, name, mine)
        row[0].set_ylabel("energy of the r largest\nsingular values of ΔW")
        row[0].set_title(task)
    axes[0, 0].set_yscale("logit")
    every = [line[name] for line in lines for name in ("retained", "independent")]
    axes[0, 0].set_ylim(*_margins(min(every), max(every)))
    low, high = axes[0, 0].get_ylim()
    ticks = [tick for tick in _TICKS if low < tick < high]
    axes[0, 0].set_yticks(ticks, [f"{100 * tick:g}%" for tick in ticks])
    for axis in axes.flat:
        axis.yaxis.minorticks_off()
    _finish(figure, axes)
    return figure


def _margins(low: float, high: float) -> tuple[float, float]:
    """The ends of the axis: half a unit of the logarithm of the odds beyond the values."""
    ends = np.log([low, high]) - np.log1p([-low, -min(high, 1 - 1e-6)]) + [-0.5, 0.5]
    return tuple((1 / (1 + np.exp(-ends))).tolist())


def _draw_panel(axis: Axes, name: str, lines: Lines) -> None:
    if name == "accuracy":
        _draw_accuracy(axis, lines)
        return
    mine = [line for line in lines if line["factor"] == name]
    if name != "optimizer":
        mine = _at_ratio(mine)
    if not mine:
        axis.set_visible(False)
    elif name == "optimizer":
        _draw_ranks(axis, mine)
    elif name == "kind":
        _draw_kinds(axis, mine)
    else:
        _draw_factor(axis, mine)
        axis.set_xlabel(_FACTORS[name])


def _draw_ranks(axis: Axes, lines: Lines) -> None:
    """By rank, in the default training of each optimiser."""
    for optimizer, own in _by_optimizer(lines):
        own = sorted(own, key=lambda line: line["r"])
        x = [line["r"] / line["K"] for line in own]
        _line(axis, optimizer, x, own)
    _background(axis, x, own)
    axis.set_xscale("log", base=2)
    exponents = range(int(-np.log2(x[0])), 0, -2)
    exponents = [k for k in exponents if x[0] <= 2.0**-k <= x[-1]]
    axis.set_xticks([2.0**-k for k in exponents], [f"1/{2**k}" for k in exponents])
    axis.minorticks_off()
    axis.set_xlim(x[0], x[-1])
    axis.set_xlabel("r/K")


def _draw_factor(axis: Axes, lines: Lines) -> None:
    """By the value of a factor, on a logarithmic axis."""
    values = dict(sorted({line["value"]: line["label"] for line in lines}.items()))
    for optimizer, own in _by_optimizer(lines):
        own = sorted(own, key=lambda line: line["value"])
        _line(axis, optimizer, [line["value"] for line in own], own)
    axis.set_xscale("log")
    low, high = min(values), max(values)
    pad = (high / low) ** 0.08 if high > low else 2.0
    _background(axis, [low / pad, high * pad], [lines[0], lines[0]])
    axis.set_xticks(list(values), list(values.values()))
    axis.minorticks_off()
    axis.set_xlim(low / pad, high * pad)


def _draw_kinds(axis: Axes, lines: Lines) -> None:
    """By kind of layer; the references differ between shapes of matrices."""
    kinds = list(dict.fromkeys(line["label"] for line in lines))
    groups = list(_by_optimizer(lines))
    for number, (optimizer, own) in enumerate(groups):
        shift = 0.22 * (number - (len(groups) - 1) / 2)
        _line(
            axis, optimizer, [kinds.index(line["label"]) + shift for line in own], own, joined=False
        )
    first = {line["label"]: line for line in reversed(lines)}
    edges = [(i - 0.5, i + 0.5) for i in range(len(kinds))]
    _background(
        axis, [x for edge in edges for x in edge], [first[kind] for kind in kinds for _ in range(2)]
    )
    axis.set_xticks(range(len(kinds)), [_KINDS.get(kind, kind) for kind in kinds], rotation=90)
    axis.set_xlim(-0.5, len(kinds) - 0.5)


def _draw_accuracy(axis: Axes, lines: Lines) -> None:
    """Every training once, by the accuracy that it reaches."""
    mine = _at_ratio([line for line in lines if line["factor"] != "kind"])
    for optimizer, own in _by_optimizer(mine):
        color, mark, _ = _OPTIMIZERS.get(optimizer, _OTHER)
        x = [100 * line["accuracy"] for line in own]
        axis.plot(x, [line["retained"] for line in own], mark, color=color, ms=3.5, alpha=0.75,
                  mew=0)  # fmt: skip
    low, high = axis.get_xlim()
    _background(axis, [low, high], [mine[0], mine[0]])
    axis.set_xlim(low, high)
    axis.set_xlabel("test accuracy, %")
    nearest = min(mine, key=lambda line: line["retained"])
    at = (100 * nearest["accuracy"], nearest["retained"])
    axis.plot(*at, "o", ms=8, mfc="none", mec="#000000", mew=0.9)
    axis.annotate(
        f"nearest: {_in_words(nearest)}", at, xytext=(0.5, 0.93), textcoords="axes fraction",
        ha="center", va="top", fontsize=7.5, zorder=4,
        arrowprops={"arrowstyle": "-", "lw": 0.6, "shrinkB": 5},
    )  # fmt: skip


def _in_words(line: Mapping[str, Any]) -> str:
    """The optimiser, and what differs from its default training."""
    label = line["label"]
    values = {
        "optimizer": "default", "rate": f"{label}× rate", "steps": f"{label} steps",
        "batch": f"batch {label}", "examples": f"{label} examples",
    }  # fmt: skip
    return f"{line['optimizer']},\n{values[line['factor']]}"


def _line(
    axis: Axes, optimizer: str, x: Sequence[float], own: Lines, *, joined: bool = True
) -> None:
    color, mark, dashes = _OPTIMIZERS.get(optimizer, _OTHER)
    y = np.array([line["retained"] for line in own])
    ends = np.clip([[line["low"], line["high"]] for line in own], 1e-4, 1 - 1e-4).T
    known = np.isfinite([[line["low"], line["high"]] for line in own]).all(1)
    errors = np.where(known, np.abs(ends - y), 0)
    axis.errorbar(
        x, y, yerr=errors, color=color, marker=mark, ms=3.5, linestyle=dashes,
        lw=1.3 if joined else 0, elinewidth=0.9, label=optimizer, zorder=3,
    )  # fmt: skip


def _background(axis: Axes, x: Sequence[float], own: Lines) -> None:
    """Regions where low rank or cosine coefficients retain more, and independent entries."""
    threshold = [line["threshold"] for line in own]
    axis.fill_between(x, threshold, 1 - 1e-9, color=_LOW_RANK, alpha=_TINT, lw=0, zorder=0)
    axis.fill_between(x, 1e-9, threshold, color=_COSINE, alpha=_TINT, lw=0, zorder=0)
    axis.plot(x, threshold, color=_COSINE, lw=0.9, zorder=1, label=_EQUAL)
    axis.plot(x, [line["independent"] for line in own], color="#000000", lw=1.1,
              linestyle=(0, (4, 2)), zorder=2, label=_INDEPENDENT)  # fmt: skip


def _finish(figure: Figure, axes: Any) -> None:
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


def _by_optimizer(lines: Lines) -> Iterator[tuple[str, Lines]]:
    for optimizer in dict.fromkeys(line["optimizer"] for line in lines):
        yield optimizer, [line for line in lines if line["optimizer"] == optimizer]


def _at_ratio(lines: Lines) -> list[Mapping[str, Any]]:
    """The lines whose r/K is nearest to the ratio that is shown."""
    if not lines:
        return []
    ratios = {line["r"] / line["K"] for line in lines}
    nearest = min(ratios, key=lambda ratio: abs(np.log(ratio / _RATIO)))
    return [line for line in lines if line["r"] / line["K"] == nearest]
