"""Figures of the fine-tuning experiments, drawn from their stored tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from scipy.special import stdtrit

from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.canvas import Picture, styled
from loca_theory.plotting.runs import (
    ACCURACY,
    LOOKS,
    NOTHING,
    PERCENT,
    PLAIN,
    Lines,
    has_no_budget,
    legend,
    panels,
    with_mean,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Marks of neighbouring methods are this many octaves of the budget apart.
_APART = 0.07
_BARS = "Bars: 95% confidence intervals over seeds"


@styled
def draw_budgets(lines: Lines) -> Figure:
    """Metric against the budget, one panel per task; bars are 95% intervals over seeds.

    Args:
        lines: Summary of ``experiments.study budgets``: ``task``, ``method``, ``title``, ``r``,
            ``measure``, ``mean``, ``low``, ``high``; r is null for methods without a budget.

    Raises:
        InvalidArgumentError: every run diverged.
    """
    lines = with_mean(lines)
    tasks = list(dict.fromkeys(line["task"] for line in lines))
    figure, axes = panels(len(tasks), 3.3)
    for axis, task in zip(axes, tasks, strict=False):
        mine = [line for line in lines if line["task"] == task]
        ranks = sorted({int(line["r"]) for line in mine if not has_no_budget(line)})
        for line in mine:
            if has_no_budget(line):
                look = LOOKS.get(line["method"], PLAIN)
                axis.axhline(
                    PERCENT * line["mean"], color=look.color, linestyle=look.dashes, linewidth=1.2,
                    label=line["title"],
                )  # fmt: skip
        methods = dict.fromkeys(line["method"] for line in mine if not has_no_budget(line))
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
        axis.set_ylabel(ACCURACY)
        axis.set_title(str(task))
    legend(figure, axes, _BARS)
    return figure


@styled
def draw_sensitivity(lines: Lines) -> Figure:
    """Metric against each setting, the others fixed, less the mean of the task.

    Thin lines are tasks. Thick lines are their means, with 95% intervals over tasks, or over seeds
    if there is one task.

    Args:
        lines: Summary of ``experiments.study sensitivity``: ``task``, ``setting``, ``label``,
            ``value``, ``method``, ``title``, ``measure``, ``mean``, ``low``, ``high``.

    Raises:
        InvalidArgumentError: every run diverged.
    """
    lines = with_mean(lines)
    settings = list(dict.fromkeys(line["setting"] for line in lines))
    columns = 3 if len(settings) == 3 else 2
    rows = -(-len(settings) // columns)
    figure = Picture(figsize=(3.7 * columns, 2.7 * rows))
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    axes = list(grid.flat)
    for axis, setting in zip(axes, settings, strict=False):
        mine = [line for line in lines if line["setting"] == setting]
        for method in dict.fromkeys(line["method"] for line in mine):
            _means_and_tasks(axis, method, [line for line in mine if line["method"] == method])
        if setting != "alternating":
            values = sorted({line["value"] for line in mine})
            axis.set_xscale("log")
            axis.set_xticks(values, [f"{value:g}" for value in values])
            axis.minorticks_off()
        axis.set_xlabel(mine[0]["label"])
    for axis in grid[:, 0]:
        axis.set_ylabel("points of test accuracy\nabove the mean of the task")
    for axis in axes[len(settings) :]:
        axis.set_visible(False)
    tasks = ", ".join(dict.fromkeys(str(line["task"]) for line in lines))
    legend(figure, axes, f"{tasks}. Thin lines: tasks; bars: 95% confidence intervals")
    return figure


def _means_and_tasks(axis: Axes, method: str, lines: Lines) -> None:
    """The metric of one method against a setting, for each task and in the mean over tasks."""
    look = LOOKS.get(method, PLAIN)
    style = {"color": look.color, "linestyle": look.dashes}
    tasks = list(dict.fromkeys(line["task"] for line in lines))
    relative: dict[float, list[float]] = {}
    for task in tasks:
        own = sorted((line for line in lines if line["task"] == task), key=lambda x: x["value"])
        mean = np.mean([line["mean"] for line in own])
        found = [PERCENT * (line["mean"] - mean) for line in own]
        for line, value in zip(own, found, strict=True):
            relative.setdefault(line["value"], []).append(value)
        if len(tasks) > 1:
            axis.plot([line["value"] for line in own], found, **style, linewidth=0.6, alpha=0.4)
    values = sorted(relative)
    means = np.array([np.mean(relative[value]) for value in values])
    halves = [_half_length(relative[value]) for value in values]
    if len(tasks) == 1:
        own = sorted(lines, key=lambda line: line["value"])
        halves = [PERCENT * (line["high"] - line["mean"]) for line in own]
    bars = np.where(np.isfinite(halves), halves, 0.0)
    axis.errorbar(
        values, means, yerr=bars, **style, elinewidth=0.8, marker="o", markersize=3,
        label=lines[0]["title"],
    )  # fmt: skip


def _half_length(values: Sequence[float]) -> float:
    """Half the length of Student's 95% interval of a mean; infinite for a single value."""
    if len(values) < 2:
        return np.inf
    error = np.std(values, ddof=1) / len(values) ** 0.5
    return float(-stdtrit(len(values) - 1, 0.025) * error)


@styled
def draw_training(lines: Lines) -> Figure:
    """Validation loss over the steps: means over seeds with standard errors; a panel per task.

    Args:
        lines: Evaluations on the validation set: ``task``, ``method``, ``title``, ``seed``,
            ``step``, ``validation_loss``.

    Raises:
        InvalidArgumentError: every run diverged.
    """
    if not lines:
        raise InvalidArgumentError(NOTHING)
    tasks = list(dict.fromkeys(line["task"] for line in lines))
    figure, axes = panels(len(tasks), 2.6)
    for axis, task in zip(axes, tasks, strict=False):
        mine = [line for line in lines if line["task"] == task]
        for method in dict.fromkeys(line["method"] for line in mine):
            own = [line for line in mine if line["method"] == method]
            _band(axis, method, own, "validation_loss")
        axis.set_xlabel("step")
        axis.set_ylabel("validation loss")
        axis.set_title(str(task))
    legend(figure, axes, "Lines: means over seeds; bands: ±1 standard error")
    return figure


def _shift(number: int, count: int) -> float:
    """Factor that shifts the marks of a method along the budget axis, so that none is hidden."""
    return 2 ** (_APART * (number - (count - 1) / 2))


def _line(axis: Axes, method: str, x: Sequence[float], own: Lines) -> None:
    look = LOOKS.get(method, PLAIN)
    mean = np.array([PERCENT * line["mean"] for line in own])
    low = np.array([PERCENT * line["low"] for line in own])
    high = np.array([PERCENT * line["high"] for line in own])
    errors = np.vstack([mean - low, high - mean])
    axis.errorbar(
        x, mean, yerr=np.where(np.isfinite(errors), errors, 0), color=look.color,
        linestyle=look.dashes, elinewidth=0.8, marker="o", markersize=3,
        label=own[0]["title"],
    )  # fmt: skip


def _band(axis: Axes, method: str, own: Lines, name: str) -> None:
    look = LOOKS.get(method, PLAIN)
    steps = sorted({line["step"] for line in own})
    values = [
        [line[name] for line in own if line["step"] == step and line[name] is not None]
        for step in steps
    ]
    mean = np.array([np.mean(found) if found else np.nan for found in values])
    error = np.array(
        [np.std(found, ddof=1) / len(found) ** 0.5 if len(found) > 1 else 0.0 for found in values]
    )
    axis.plot(steps, mean, color=look.color, linestyle=look.dashes, label=own[0]["title"])
    axis.fill_between(steps, mean - error, mean + error, color=look.color, alpha=0.15, linewidth=0)
