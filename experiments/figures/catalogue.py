"""The figures that are drawn from the tables of experiments: what each shows, and its data."""

from __future__ import annotations

from experiments.figures.comparisons import draw_comparisons
from experiments.figures.first_steps import draw_first_steps
from experiments.figures.low_rank import draw_low_rank
from experiments.figures.overview import draw_overview
from experiments.figures.patterns import draw_patterns
from experiments.figures.prediction import draw_prediction
from experiments.figures.published import draw_published
from experiments.figures.rounded import draw_rounded
from experiments.figures.runs import draw_budgets, draw_sensitivity, draw_training
from experiments.figures.unmerged import draw_unmerged
from loca_theory.plotting.paper_figure import PaperFigure

_VERDICTS = {"verdicts": "python -m experiments.everything --full"}


def _study(name: str, table: str, **tables: str) -> dict[str, str]:
    return {table: f"python -m experiments.study {name}", **tables}


FIGURES = (
    PaperFigure(
        "training_process", "Loss during training",
        "Validation loss over the steps of single tasks, with learned and fixed locations, beside "
        "that of guessing, and the difference over six kinds of tasks; measured",
        _study("training_process", "training_process", **_VERDICTS), draw_training),
    PaperFigure(
        "budget", "Metric against the budget",
        "Metric against the parameter budget, with 95% intervals over seeds; measured",
        _study("budgets", "budgets-summary"), draw_budgets),
    PaperFigure(
        "parameter_sen", "Sensitivity to the settings",
        "Metric against the scaling and the fraction of alternating steps; measured",
        _study("sensitivity", "sensitivity-summary"), draw_sensitivity),
    PaperFigure(
        "visualization_W", "Learned increments",
        "The increments that each method learns in two layers; measured",
        _study("patterns", "visualization_W"), draw_patterns),
    PaperFigure(
        "comparisons", "Methods compared by fine-tuning",
        "Differences between methods of fine-tuning over six kinds of small tasks, with the bounds "
        "and the verdicts on the claims; measured", _VERDICTS, draw_comparisons),
    PaperFigure(
        "prediction", "What predicts the better adapter",
        "Rank correlations of predictors with the accuracy; measured",
        {"prediction": "git checkout 2cb37cb6 && python -m experiments.prediction"},
        draw_prediction),
    PaperFigure(
        "low_rank", "Low rank of full increments",
        "Energy of the largest eighth of the singular values of full increments, by optimiser, "
        "rate, steps, batch, data and layer, beside that of independent entries; measured",
        {"low_rank": "git checkout 2cb37cb6 && python -m experiments.low_rank"}, draw_low_rank),
    PaperFigure(
        "published", "Fine-tunes that others published",
        "Which of LoRA, LoCA and plain entries retains most energy of ΔW in published fine-tunes, "
        "by three accountings, beside controls; measured",
        {"published": "python -m experiments.published"}, draw_published),
    PaperFigure(
        "rounded", "Adapters inside rounding cells",
        "What adapters miss of merged LoRA, and how much more they retain of fine-tunes by others, "
        "if they are fitted to the rounding cells of what is stored; measured",
        {"rounded-adapters": "python -m experiments.published.rounded"}, draw_rounded),
    PaperFigure(
        "unmerged", "Adapters that come back from merged models",
        "What the cells of rounding and the truncated SVD leave of trained LoRAs that PEFT merged "
        "into bfloat16; measured",
        {"unmerged-adapters": "python -m experiments.unmerged"}, draw_unmerged),
    PaperFigure(
        "first_steps", "The first step in PEFT's comparison",
        "Training losses of published runs over their trained numbers and the length of their "
        "first step; the losses are as published, the steps measured",
        {"fitted-runs": "python -m experiments.peft_benchmark"}, draw_first_steps),
    PaperFigure(
        "overview", "Overview",
        "Errors on independent entries, and which form retains most of published fine-tunes",
        {"sim_2": "loca-theory figures sim_2",
         "published": "python -m experiments.published --data wheels"}, draw_overview),
)  # fmt: skip
