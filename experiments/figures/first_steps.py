"""Figure of training loss against trained numbers and first steps in PEFT's public comparison."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loca_theory.plotting.canvas import BLUE, GREY, HEADLINE, RED, Picture, styled

_TASKS = {"MetaMathQA": "mathematics\n(Llama-3.2-3B)", "image-gen": "images\n(FLUX.2-klein)"}
_PREDICTORS = {
    "trained": "numbers that the adapter trains",
    "frobenius": "length of its first step, ‖ΔW‖",
}
_NAMED = {"FOURIERFT": "FourierFT", "WAVEFT": "WaveFT"}
_MESSAGE = "The first step orders the losses no better than the trained numbers do"


@styled
def draw_first_steps(runs: pd.DataFrame) -> Figure:
    """A point per published run: training loss against its trained numbers and its first step.

    ``runs``: the fitted runs of ``experiments.peft_benchmark``.
    """
    figure = Picture(figsize=(7.6, 5.2))
    figure.suptitle(_MESSAGE, fontsize=10.5, fontweight="bold", **HEADLINE)
    panels = figure.subplots(len(_TASKS), len(_PREDICTORS), sharex="col", sharey="row")
    for row, (task, title) in zip(panels, _TASKS.items(), strict=True):
        of_task = runs[runs["task"] == task]
        for axis, predictor in zip(row, _PREDICTORS, strict=True):
            _scatter(axis, of_task, predictor)
        row[0].set_ylabel(f"training loss, {title}")
    panels[0, 0].legend(
        fontsize=7.5, loc="lower left", title="a published run of", title_fontsize=7.5
    )
    for axis, label in zip(panels[-1], _PREDICTORS.values(), strict=True):
        axis.set_xlabel(label)
    return figure


def _scatter(axis: Axes, runs: pd.DataFrame, predictor: str) -> None:
    """Draw the runs, LoRA's apart, name two extremes, and write the rank correlation above."""
    is_lora = runs["peft_type"] == "LORA"
    for rows, color, label in (
        (runs[~is_lora], GREY, "another method"),
        (runs[is_lora], BLUE, "LoRA"),
    ):
        axis.plot(rows[predictor], rows["train_loss"], "o", color=color, markersize=4, label=label)
    for kind, name in _NAMED.items():
        rows = runs[runs["peft_type"] == kind]
        label = " or ".join(_NAMED.values()) if kind == next(iter(_NAMED)) else None
        axis.plot(rows[predictor], rows["train_loss"], "o", color=RED, markersize=4, label=label)
        for _, run in rows.iterrows():
            point = (run[predictor], run["train_loss"])
            axis.annotate(name, point, xytext=(5, 2), textcoords="offset points", fontsize=7.5)
    axis.set_xscale("log")
    correlation = runs[predictor].corr(runs["train_loss"], method="spearman")
    axis.set_title(f"rank correlation {correlation:+.2f}".replace("-", "−"), fontsize=9)
