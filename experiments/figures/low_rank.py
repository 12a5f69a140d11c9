"""Figure of the energy that rank K/8 retains of full increments, by training setting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.figures.runs import every_run_diverged
from loca_theory.plotting.canvas import BLACK, BLUE, Canvas, styled
from loca_theory.plotting.looks import LOOKS

# Okabe and Ito's and Tol's colours; marks say the same in grey.
_OPTIMIZERS = {"SGD": (BLUE, "o"), "Adam": ("#aa4499", "s"), "AdamW": ("#332288", "^")}
_OTHER = ("#444444", "D")
# The energy is shown at this r/K.
_RATIO = 1 / 8
# The factors in the order of the rows, and the label of a row.
_FACTORS = {
    "optimizer": "default training",
    "kind": "{} matrices",
    "rate": "learning rate × {}",
    "steps": "{} steps",
    "batch": "batches of {}",
    "examples": "{} examples",
}


@styled
def draw_low_rank(table: pd.DataFrame) -> Figure:
    """Energy of the K/8 largest singular values by training: a panel per task, a row per training.

    Vertical marks: what the best cosine coefficients retain of the same ΔW at the same budget, and
    what low rank retains of independent normal entries.
    """
    table = table[table["retained"].notna()]
    if table.empty:
        raise every_run_diverged()
    tasks = {task: _in_rows(_at_ratio(part)) for task, part in table.groupby("task", sort=False)}
    shown = pd.concat(tasks.values())
    rows = {name: height for height, name in enumerate(dict.fromkeys(shown["row"]))}
    size = (2.6 * len(tasks) + 1.9, 0.24 * len(rows) + 1.5)
    canvas = Canvas.of(None, size, 1, len(tasks), sharex=True, sharey=True)
    axes = canvas.axes[0]
    for axis, (task, part) in zip(axes, tasks.items(), strict=True):
        _draw_task(axis, part, rows)
        axis.set_title(str(task))
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(rows)), list(rows))
    axes[0].set(ylim=(len(rows) - 0.5, -0.5), xlim=(0, 1))
    axes[0].set_xticks([0, 0.5, 1], ["0", "50%", "100%"])
    above = (shown["retained"] > shown["cosine"]).sum()
    canvas.headline(f"Low rank retains more of ΔW than cosines in {above} of {len(shown)} cases")
    text = "energy retained at the budget of rank K/8, K the smaller side of a matrix\n"
    axes[len(axes) // 2].set_xlabel(f"{text}lines: 95% intervals over seeds")
    marks = axes[0].get_legend_handles_labels()
    if list(tasks.values())[-1]["row"].nunique() < len(rows) / 2:
        axes[-1].legend(*marks, loc="lower center")  # below a task with few trainings
    else:
        canvas.legend(len(marks[0]))
    return canvas.figure


def _in_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The table in the order of the factors, with the label of each row."""
    order = list(_FACTORS)
    table = table[table["factor"].isin(order)]
    table = table.sort_values("factor", key=lambda column: column.map(order.index), kind="stable")
    words = zip(table["factor"], table["label"], strict=True)
    return table.assign(row=[_FACTORS[factor].format(label) for factor, label in words])


def _draw_task(axis: Axes, table: pd.DataFrame, rows: dict[str, int]) -> None:
    heights = table["row"].map(rows)
    for column, color, label in (
        ("independent", BLACK, "independent entries, rank K/8"),
        ("cosine", LOOKS["LoCA"].color, "ΔW, best cosines"),
    ):
        axis.plot(table[column], heights, "|", color=color, ms=9, mew=1.2, label=label)
    for optimizer, runs in table.groupby("optimizer", sort=False):
        color, mark = _OPTIMIZERS.get(str(optimizer), _OTHER)
        y = heights[runs.index]
        finite: Any = np.isfinite(runs[["low", "high"]].to_numpy(float)).all(axis=1)
        axis.hlines(y[finite], runs["low"][finite], runs["high"][finite], color=color, lw=0.9)
        axis.plot(runs["retained"], y, mark, color=color, ms=4, label=f"ΔW, rank K/8, {optimizer}")
    axis.grid(visible=False)
    border = max(heights) + 0.5
    axis.vlines([0.5, 1], -0.5, border, color="0.9", linewidth=0.8, zorder=0)
    axis.spines["left"].set_bounds(-0.5, border)


def _at_ratio(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows whose r/K is nearest to the ratio that is shown."""
    ratios = rows["r"] / rows["K"]
    distances = np.abs(np.log(ratios.to_numpy() / _RATIO))
    return rows[ratios == ratios.iloc[distances.argmin()]]
