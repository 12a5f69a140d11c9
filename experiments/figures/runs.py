"""Figures of fine-tuning runs: metric against budget and settings, and loss during training."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.figures.comparisons import (
    difference_in_words,
    kinds_in_words,
    largest_design,
    title_in_words,
)
from experiments.verdicts import student
from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.canvas import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY,
    Canvas,
    styled,
)
from loca_theory.plotting.looks import Look

_LOOKS = {
    "lora": Look(RED),
    "dora": Look(ORANGE, (0, (4, 1))),
    "fourierft": Look(BLACK, (0, (1, 2))),
    "loca": Look(GREEN),
    "loca-charged": Look(PINK, (0, (4, 1))),
    "loca-v1": Look(GREY, (0, (4, 1, 1, 1))),
    "loca-reselect": Look(BLUE),
    "waveft": Look(SKY, (0, (4, 1))),
    "shira": Look("#8c564b", (0, (1, 1))),
    "c3a": Look("#f0e442"),
    "full": Look("#444444", (0, (6, 2))),
    "linear-probing": Look("#999999", (0, (1, 1))),
}
_PERCENT = 100.0
# The settings that the paper recommends: α, and the fraction of steps that learn locations.
_RECOMMENDED = {"scaling": (1.0, 2.0), "alternating": (0.1, 0.2)}
# Classes of the stored tasks, equally frequent: whoever guesses has the loss log(classes).
_CLASSES = {"vision": 5, "text": 6}
_RESELECT = " reselect: regrows the smallest components where the gradient is largest."
# Marks of neighbouring methods are this many octaves of the budget apart.
_APART = 0.07


@styled
def draw_budgets(table: pd.DataFrame) -> Figure:
    """Metric against the budget, one panel per task; bars are 95% intervals over seeds."""
    table = _with_mean(table)
    canvas = _panels(table, 3.3)
    tasks = list(table.groupby("task", sort=False))
    for axis, (task, rows) in zip(canvas.axes.flat, tasks, strict=False):
        for line in rows[rows["r"].isna()].to_dict("records"):
            style = _style(line["method"])
            axis.axhline(_PERCENT * line["mean"], **style, lw=1.2, label=line["title"])
        budgets = rows[rows["r"].notna()]
        methods = list(budgets.groupby("method", sort=False))
        for number, (_, group) in enumerate(methods):
            group = group.sort_values("r", kind="stable")
            # The shift keeps every mark visible.
            shift = 2 ** (_APART * (number - (len(methods) - 1) / 2))
            below, above = group["mean"] - group["low"], group["high"] - group["mean"]
            bars = _PERCENT * np.array([below, above])
            _draw_bars(axis, group["r"] * shift, _PERCENT * group["mean"], bars, group)
        _set_log_scale(axis, budgets["r"], base=2)
        axis.set(xlabel="budget (LoRA rank r)", ylabel="test accuracy, %", title=str(task))
    cells = table.pivot_table(index=["task", "r"], columns="method", values="mean")
    if {"lora", "loca"} <= set(cells):
        pairs = cells[["lora", "loca"]].dropna()
        ahead = (pairs["loca"] > pairs["lora"]).sum()
        canvas.headline(
            f"LoCA is ahead of LoRA at {ahead} of {len(pairs)} budgets of {len(tasks)} tasks"
        )
    _add_legend(canvas, "Bars: 95% confidence intervals over seeds.")
    return canvas.figure


@styled
def draw_sensitivity(table: pd.DataFrame) -> Figure:
    """Metric against each setting, the others fixed, less the mean of the task.

    Thin lines are tasks, thick ones their means, with 95% intervals over tasks (of one: seeds).
    """
    table = _with_mean(table)
    # Two values of a setting make no curve.
    settings = [
        (setting, lines)
        for setting, lines in table.groupby("setting", sort=False)
        if lines["value"].nunique() > 2
    ] or list(table.groupby("setting", sort=False))
    columns = 3 if len(settings) == 3 else 2
    canvas = Canvas.grid(None, len(settings), columns, (3.7, 2.7), sharey=True)
    for axis, (setting, lines) in zip(canvas.axes.flat, settings, strict=False):
        for _, group in lines.groupby("method", sort=False):
            _draw_setting(axis, group.sort_values("value", kind="stable"))
        axis.set_title(_best_and_worst(lines))
        if setting in _RECOMMENDED:
            axis.axvspan(*_RECOMMENDED[str(setting)], color="#e8e8e8", zorder=-1)
        if setting != "alternating":
            _set_log_scale(axis, lines["value"])
        axis.set_xlabel(lines["label"].iloc[0])
    for axis in canvas.axes[:, 0]:
        axis.set_ylabel("points of test accuracy\nabove the mean of the task")
    caption = f"Thin lines: {table['task'].nunique()} tasks; bars: 95% confidence intervals"
    _add_legend(canvas, f"{caption}; grey: what the paper recommends.")
    return canvas.figure


def _best_and_worst(lines: pd.DataFrame) -> str:
    """The best and the worst value of a setting, in the mean over tasks and methods."""
    means = lines.groupby("value")["mean"].mean()
    best, worst = (float(means.index[int(at)]) for at in (means.argmax(), means.argmin()))
    points = _PERCENT * (means.max() - means.min())
    return f"best at {best:g}: {points:.1f} points above {worst:g}" if points else ""


def _draw_setting(axis: Axes, lines: pd.DataFrame) -> None:
    """Draw the metric of one method against a setting, for each task and in the mean over tasks."""
    task_means = lines.groupby("task")["mean"].transform("mean")
    lines = lines.assign(relative=_PERCENT * (lines["mean"] - task_means))
    tasks = list(lines.groupby("task", sort=False))
    if len(tasks) > 1:
        style = _style(lines["method"].iloc[0])
        for _, line in tasks:
            axis.plot(line["value"], line["relative"], **style, linewidth=0.6, alpha=0.4)
        bars = [student(list(values)) for _, values in lines.groupby("value")["relative"]]
        halves = [bar.high - bar.mean for bar in bars]
    else:
        halves = list(_PERCENT * (lines["high"] - lines["mean"]))
    means = lines.groupby("value")["relative"].mean()
    _draw_bars(axis, means.index, means, halves, lines)


@styled
def draw_training(table: pd.DataFrame, verdicts: pd.DataFrame | None = None) -> Figure:
    """Validation loss over the steps: means over seeds with standard errors; a panel per task."""
    if table.empty:
        raise every_run_diverged()
    canvas = _panels(table, 2.6)
    tasks = table.groupby("task", sort=False)
    for axis, (task, rows) in zip(canvas.axes.flat, tasks, strict=False):
        for method, group in rows.groupby("method", sort=False):
            steps = group["validation_loss"].astype(float).groupby(group["step"])
            mean, error = steps.mean(), steps.sem().fillna(0.0)
            style = _style(str(method))
            axis.plot(mean.index, mean, **style, label=group["title"].iloc[0])
            axis.fill_between(
                mean.index, mean - error, mean + error, color=style["color"], alpha=0.15, lw=0
            )
        if task in _CLASSES:
            level = math.log(_CLASSES[str(task)])
            axis.axhline(level, color="#444444", lw=0.8, ls=":", label="guessing")
        axis.set(xlabel="step", ylabel="validation loss", title=str(task))
    canvas.headline(_final_losses(table))
    caption = "Lines: means over seeds; bands: ±1 standard error."
    _add_legend(canvas, caption if verdicts is None else f"{caption} {_over_many_tasks(verdicts)}")
    return canvas.figure


def _final_losses(table: pd.DataFrame) -> str:
    """The method with the smallest and the largest final loss of each task, in the mean."""
    table = table.dropna(subset="validation_loss")
    last = table[table["step"] == table.groupby("task")["step"].transform("max")]
    texts = []
    for task, rows in last.groupby("task", sort=False):
        means = rows["validation_loss"].astype(float).groupby(rows["title"]).mean()
        means = means.sort_values()
        best, worst = (
            f"{title_in_words(str(title))} {loss:.2f}"
            for title, loss in means.iloc[[0, -1]].items()
        )
        texts.append(f"{task}: from {best} to {worst}")
    return f"Final validation loss of the methods, mean over seeds\n{'; '.join(texts)}"


def _over_many_tasks(verdicts: pd.DataFrame) -> str:
    """The result on the loss of the design with the most tasks, in words."""
    rows = largest_design(verdicts[verdicts["measure"] == "loss"])
    if rows.empty:
        return ""
    line = rows.iloc[0]
    methods, difference = title_in_words(line["title"]), difference_in_words(line)
    return (
        f"Over {kinds_in_words(rows)}, the final losses (per cent, {methods}) differ by "
        f"{difference}."
    )


def every_run_diverged() -> InvalidArgumentError:
    """The error of a table without a single finished run."""
    return InvalidArgumentError("every run diverged, so there is nothing to draw")


def _with_mean(table: pd.DataFrame) -> pd.DataFrame:
    """The rows with a mean, that is with at least one run that did not diverge."""
    finite = table[np.isfinite(table["mean"].astype(float))]
    if finite.empty:
        raise every_run_diverged()
    return finite.astype({"mean": float, "low": float, "high": float})


def _style(method: str) -> dict[str, Any]:
    look = _LOOKS.get(method, Look("#bbbbbb"))
    return {"color": look.color, "linestyle": look.dashes}


def _panels(table: pd.DataFrame, height: float) -> Canvas:
    """A panel for each task, at most three in a row, and room for the legend beside them."""
    return Canvas.grid(None, table["task"].nunique(), 3, (2.9, height), (1.9, 0.0))


def _set_log_scale(axis: Axes, values: pd.Series, base: float = 10) -> None:
    """A logarithmic axis with a tick at each value alone."""
    ticks = sorted(set(values))
    axis.set_xscale("log", base=base)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()


def _draw_bars(axis: Axes, x: Any, y: Any, errors: Any, lines: pd.DataFrame) -> None:
    """Draw a line of one method with bars; an unbounded interval has none."""
    bars = np.where(np.isfinite(errors), errors, 0.0)
    style = _style(lines["method"].iloc[0]) | {"elinewidth": 0.8, "marker": "o", "markersize": 3}
    axis.errorbar(x, y, yerr=bars, **style, label=lines["title"].iloc[0])


def _add_legend(canvas: Canvas, caption: str) -> None:
    """Add the legend of all panels and a caption below them."""
    handles: dict[str, Any] = {}
    for axis in canvas.axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(title_in_words(label), handle)
    canvas.caption(caption + (_RESELECT if "LoCA, reselect" in handles else ""))
    layout = {"loc": "outside right center", "handlelength": 3.2}
    canvas.figure.legend(handles.values(), handles.keys(), **layout)
