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
        "Validation loss of single tasks over the steps, with learned and fixed locations and by "
        "guessing, and the difference over six kinds of tasks; measured",
        _study("training_process", "training_process", **_VERDICTS), draw_training),
    PaperFigure(
        "budget", "Metric against the budget",
        "Metric against the parameter budget; measured",
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
        "Differences between fine-tuning methods over six kinds of small tasks, with bounds and "
        "verdicts; measured", _VERDICTS, draw_comparisons),
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
        "What adapters fitted to the rounding cells of stored weights miss of merged LoRA, and how "
        "much more they retain of fine-tunes by others; measured",
        {"rounded-adapters": "python -m experiments.published.rounded"}, draw_rounded),
    PaperFigure(
        "unmerged", "Adapters that come back from merged models",
        "What fits to the rounding cells and the truncated SVD miss of trained LoRAs that PEFT "
        "merged into bfloat16; measured",
        {"unmerged-adapters": "python -m experiments.unmerged"}, draw_unmerged),
    PaperFigure(
        "first_steps", "The first step in PEFT's comparison",
        "Published training losses by the trained numbers and the measured length of the first "
        "step",
        {"fitted-runs": "python -m experiments.peft_benchmark"}, draw_first_steps),
    PaperFigure(
        "overview", "Overview",
        "Errors on independent entries, and which form retains most of published fine-tunes",
        {"sim_2": "loca-theory figures sim_2",
         "published": "python -m experiments.published --data wheels"}, draw_overview),
)  # fmt: skip
