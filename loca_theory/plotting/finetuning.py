"""Figures of the fine-tuning experiments, drawn from their stored tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.canvas import Picture, styled
from loca_theory.plotting.lines import Look

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_LOOKS = {
    "lora": Look("#d55e00"),
    "dora": Look("#e69f00", (0, (4, 1))),
    "fourierft": Look("#000000", (0, (1, 2))),
    "loca": Look("#009e73"),
    "loca-charged": Look("#cc79a7", (0, (4, 1))),
    "loca-v1": Look("#7f7f7f", (0, (4, 1, 1, 1))),
    "loca-reselect": Look("#0072b2"),
    "waveft": Look("#56b4e9", (0, (4, 1))),
    "shira": Look("#8c564b", (0, (1, 1))),
    "c3a": Look("#f0e442"),
    "full": Look("#444444", (0, (6, 2))),
    "linear-probing": Look("#999999", (0, (1, 1))),
}
_PLAIN = Look("#bbbbbb")
# Marks of neighbouring methods are this many octaves of the budget apart.
_APART = 0.07
_BARS = "Bars: 95% confidence intervals over seeds"

_NOTHING = "every run diverged, so there is nothing to draw"

Lines = Sequence[Mapping[str, Any]]


def as_lines(table: pd.DataFrame) -> list[Any]:
    """The rows of a stored table, with None for missing values."""
    return table.astype(object).where(table.notna(), None).to_dict("records")


@styled
def draw_budgets(lines: Lines) -> Figure:
    """Metric against the budget, one panel per task; bars are 95% intervals over seeds.

    Args:
        lines: Summary of :mod:`experiments.budgets`: ``task``, ``method``, ``title``, ``r``,
            ``measure``, ``mean``, ``low``, ``high``; r is null for methods without a budget.

    Raises:
        InvalidArgumentError: every run diverged.
    """
    lines = _with_mean(lines)
    tasks = list(dict.fromkeys(line["task"] for line in lines))
    figure = Picture(figsize=(4.2 * len(tasks) + 1.7, 3.4))
    axes = figure.subplots(1, len(tasks), squeeze=False)[0]
    for axis, task in zip(axes, tasks, strict=True):
        mine = [line for line in lines if line["task"] == task]
        ranks = sorted({int(line["r"]) for line in mine if not _no_budget(line)})
        for line in mine:
            if _no_budget(line):
                look = _LOOKS.get(line["method"], _PLAIN)
                factor = _factor(line)
                axis.axhline(
                    factor * line["mean"], color=look.color, linestyle=look.dashes, linewidth=1.2,
                    label=line["title"],
                )  # fmt: skip
        methods = dict.fromkeys(line["method"] for line in mine if not _no_budget(line))
        for number, method in enumerate(methods):
            own = sorted(
                (line for line in mine if line["method"] == method), key=lambda line: line["r"]
            )
            shift = _shift(number, len(methods))
            _line(axis, method, [line["r"] * shift for line in own], own)
        axis.set_xscale("log", base=2)
        axis.set_xticks(ranks, [str(r) for r in ranks])
        axis.minorticks_off()
        axis.set_xlabel("budget (LoRA rank r)")
        axis.set_ylabel(_measure(mine[0]))
        axis.set_title(str(task))
    _legend(figure, axes, _BARS)
    return figure


@styled
def draw_sensitivity(lines: Lines) -> Figure:
    """Metric against each setting, the others fixed; bars are 95% intervals over seeds.

    Args:
        lines: Summary of :mod:`experiments.sensitivity`: ``setting``, ``label``, ``value``,
            ``method``, ``title``, ``measure``, ``mean``, ``low``, ``high``.

    Raises:
        InvalidArgumentError: every run diverged.
    """
    lines = _with_mean(lines)
    settings = list(dict.fromkeys(line["setting"] for line in lines))
    figure = Picture(figsize=(7.4, 2.7 * ((len(settings) + 1) // 2)))
    grid = figure.subplots((len(settings) + 1) // 2, 2, squeeze=False, sharey=True)
    axes = list(grid.flat)
    for axis, setting in zip(axes, settings, strict=False):
        mine = [line for line in lines if line["setting"] == setting]
        for method in dict.fromkeys(line["method"] for line in mine):
            own = sorted(
                (line for line in mine if line["method"] == method), key=lambda line: line["value"]
            )
            _line(axis, method, [line["value"] for line in own], own)
        if setting != "alternating":
            values = sorted({line["value"] for line in mine})
            axis.set_xscale("log")
            axis.set_xticks(values, [f"{value:g}" for value in values])
            axis.minorticks_off()
        axis.set_xlabel(mine[0]["label"])
    for axis in grid[:, 0]:
        axis.set_ylabel(_measure(lines[0]))
    for axis in axes[len(settings) :]:
        axis.set_visible(False)
    _legend(
        figure, axes, f"{', '.join(dict.fromkeys(str(line['task']) for line in lines))}. {_BARS}"
    )
    return figure


@styled
def draw_training(lines: Lines) -> Figure:
    """Validation loss and metric over the steps: means over seeds with standard errors.

    Args:
        lines: Evaluations on the validation set: ``task``, ``method``, ``title``, ``seed``,
            ``step``, ``validation_loss``, ``validation``, ``measure``.

    Raises:
        InvalidArgumentError: every run diverged.
    """
    if not lines:
        raise InvalidArgumentError(_NOTHING)
    tasks = list(dict.fromkeys(line["task"] for line in lines))
    figure = Picture(figsize=(7.6, 2.7 * len(tasks) + 0.3))
    axes = figure.subplots(len(tasks), 2, squeeze=False)
    for row, task in zip(axes, tasks, strict=True):
        mine = [line for line in lines if line["task"] == task]
        for axis, name in zip(row, ("validation_loss", "validation"), strict=True):
            for method in dict.fromkeys(line["method"] for line in mine):
                own = [line for line in mine if line["method"] == method]
                _band(
                    axis, method, own, name, 1.0 if name == "validation_loss" else _factor(own[0])
                )
            axis.set_xlabel("step")
        row[0].set_ylabel("validation loss")
        row[1].set_ylabel(_measure(mine[0]).replace("test", "validation"))
        row[0].set_title(str(task))
    _legend(figure, axes.flat, "Lines: means over seeds; bands: ±1 standard error")
    return figure


@styled
def draw_prediction(lines: Lines) -> Figure:
    """What was predicted against what was reached, one panel per predictor.

    Both are shown as differences from their means over the methods of the same task and budget,
    the prediction in units of its standard deviation over them. Titles give the mean rank
    correlation over tasks and budgets.

    Args:
        lines: Table of :mod:`experiments.prediction`: ``predictor``, ``predictor_title``, ``task``,
            ``method``, ``title``, ``r``, ``value``, ``mean``, ``correlation``, ``low``, ``high``,
            ``judged``, ``judged_low``, ``judged_high``, ``chosen``.

    Raises:
        InvalidArgumentError: every run diverged.
    """
    lines = _with_mean(lines)
    names = list(dict.fromkeys(line["predictor"] for line in lines))
    columns = min(len(names), 3)
    rows = -(-len(names) // columns)
    figure = Picture(figsize=(2.9 * columns + 1.5, 2.7 * rows + 0.3))
    axes = list(figure.subplots(rows, columns, squeeze=False, sharey=True).flat)
    for axis, name in zip(axes, names, strict=False):
        cells: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
        for line in lines:
            if line["predictor"] == name:
                cells.setdefault((line["task"], line["r"]), []).append(line)
        points: dict[str, list[tuple[float, float]]] = {}
        for own in cells.values():
            value, mean = (np.array([x[key] for x in own], float) for key in ("value", "mean"))
            x = (value - value.mean()) / (value.std() or 1.0)
            y = 100 * (mean - mean.mean())
            for line, *point in zip(own, x, y, strict=True):
                points.setdefault(line["title"], []).append((point[0], point[1]))
        of_title = {line["title"]: line["method"] for line in lines}
        for title, where in points.items():
            color = _LOOKS.get(of_title[title], _PLAIN).color
            axis.scatter(*zip(*where, strict=True), s=10, color=color, label=title, linewidths=0)
        first = next(iter(cells.values()))[0]
        axis.set_title(f"{first['predictor_title']}\n{_correlations(first)}", fontsize=7)
        axis.set_xlabel("predicted, standard deviations")
    for axis in axes[::columns]:
        axis.set_ylabel("reached: accuracy, points")
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    caption = "Dots: a method at one budget on one task, minus the mean over methods. "
    caption += "ρ: mean rank correlation, with 95% intervals over tasks and seeds"
    _legend(figure, axes, caption)
    return figure


def _correlations(line: Mapping[str, Any]) -> str:
    text = f"ρ = {line['correlation']:.2f} ({line['low']:.2f} to {line['high']:.2f})"
    if line["chosen"] and line["judged"] is not None:
        text += f"; on tasks\nit was not chosen on: {line['judged']:.2f} "
        text += f"({line['judged_low']:.2f} to {line['judged_high']:.2f})"
    return text


@styled
def draw_patterns(lines: Lines) -> Figure:
    """The increments of each method in a few layers; each panel has its own scale.

    Args:
        lines: Rows of the images, which are block means of the increments: ``title`` of the
            method, ``layer``, ``values``, from top to bottom.

    Raises:
        InvalidArgumentError: every run diverged.
    """
    if not lines:
        raise InvalidArgumentError(_NOTHING)
    pictures: dict[tuple[str, str], list[Any]] = {}
    for line in lines:
        pictures.setdefault((line["title"], line["layer"]), []).append(list(line["values"]))
    methods, layers = (list(dict.fromkeys(key[i] for key in pictures)) for i in range(2))
    figure = Picture(figsize=(1.55 * len(methods) + 0.8, 1.65 * len(layers) + 0.5))
    axes = figure.subplots(len(layers), len(methods), squeeze=False)
    for row, layer in zip(axes, layers, strict=True):
        for axis, method in zip(row, methods, strict=True):
            values = np.asarray(pictures[method, layer], dtype=float)
            limit = float(np.quantile(np.abs(values), 0.995)) or 1.0
            axis.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
            axis.set_xticks([])
            axis.set_yticks([])
            axis.grid(visible=False)
        row[0].set_ylabel(_layer(layer), fontsize=8)
    for axis, method in zip(axes[0], methods, strict=True):
        axis.set_title(method, fontsize=8)
    caption = "Block means of the increments; red positive, blue negative; "
    caption += "each panel has its own scale"
    figure.supxlabel(caption, fontsize=7, color="#444444")
    return figure


def _layer(name: str) -> str:
    """The number and the kind of a layer, from its full name."""
    parts = name.removesuffix(".weight").split(".")
    numbers = [part for part in parts if part.isdigit()]
    return f"layer {numbers[-1]}\n{parts[-1]}" if numbers else parts[-1]


def _shift(number: int, count: int) -> float:
    """Factor that shifts the marks of a method along the budget axis, so that none is hidden."""
    return 2 ** (_APART * (number - (count - 1) / 2))


def _line(axis: Axes, method: str, x: Sequence[float], own: Lines) -> None:
    look = _LOOKS.get(method, _PLAIN)
    factor = _factor(own[0])
    mean = np.array([factor * line["mean"] for line in own])
    low = np.array([factor * line["low"] for line in own])
    high = np.array([factor * line["high"] for line in own])
    errors = np.vstack([mean - low, high - mean])
    axis.errorbar(
        x, mean, yerr=np.where(np.isfinite(errors), errors, 0), color=look.color,
        linestyle=look.dashes, elinewidth=0.8, marker="o", markersize=3,
        label=own[0]["title"],
    )  # fmt: skip


def _band(axis: Axes, method: str, own: Lines, name: str, factor: float) -> None:
    look = _LOOKS.get(method, _PLAIN)
    steps = sorted({line["step"] for line in own})
    values = [
        [factor * line[name] for line in own if line["step"] == step and line[name] is not None]
        for step in steps
    ]
    mean = np.array([np.mean(found) if found else np.nan for found in values])
    error = np.array(
        [np.std(found, ddof=1) / len(found) ** 0.5 if len(found) > 1 else 0.0 for found in values]
    )
    axis.plot(steps, mean, color=look.color, linestyle=look.dashes, label=own[0]["title"])
    axis.fill_between(steps, mean - error, mean + error, color=look.color, alpha=0.15, linewidth=0)


def _legend(figure: Figure, axes: Iterable[Axes], caption: str) -> None:
    """Add the legend of all panels and a caption below them."""
    figure.supxlabel(caption, fontsize=7, color="#444444")
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(found.values(), found.keys(), loc="outside right upper", handlelength=3.2)


def _with_mean(lines: Lines) -> Lines:
    """The lines with a mean, that is with at least one run that did not diverge."""
    found = [line for line in lines if line["mean"] is not None and np.isfinite(line["mean"])]
    if not found:
        raise InvalidArgumentError(_NOTHING)
    return found


def _no_budget(line: Mapping[str, Any]) -> bool:
    return line["r"] is None or line["r"] != line["r"]


def _factor(line: Mapping[str, Any]) -> float:
    return 100.0 if line["measure"] == "accuracy" else 1.0


def _measure(line: Mapping[str, Any]) -> str:
    if line["measure"] == "accuracy":
        return "test accuracy, %"
    return f"test {line['measure']} (lower is better)"
