"""The figures of measurements: analysed checkpoints, fine-tuning experiments, and the overview."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure

from loca_theory.plotting.comparisons import draw_comparisons
from loca_theory.plotting.finetuning import draw_budgets, draw_sensitivity, draw_training
from loca_theory.plotting.increments import draw_histograms, draw_p_values, draw_spectra
from loca_theory.plotting.low_rank import draw_low_rank
from loca_theory.plotting.overview import draw_overview
from loca_theory.plotting.paper_figure import PaperFigure, Stored
from loca_theory.plotting.patterns import draw_patterns
from loca_theory.plotting.prediction import draw_prediction
from loca_theory.plotting.published import STUDIES, draw_published
from loca_theory.plotting.runs import Lines, as_lines

_ANALYZE = "loca-theory analyze BASE FINETUNED --out DIR"


def _analysis(
    label: str, title: str, shows: str, table: str, draw: Callable[..., Figure]
) -> PaperFigure:
    return PaperFigure(label, title, shows, Stored({f"analyze-{table}": _ANALYZE}), draw)


_ANALYSIS = (
    _analysis(
        "analysis_1",
        "Entries of increments",
        "Fig. 1a: entries of the increments of a query and a value matrix, and the normal density",
        "figure_data",
        draw_histograms,
    ),
    _analysis(
        "analysis_2",
        "Normality by layer",
        "Fig. 1b: p-values of normality by layer, calibrated and as printed",
        "matrices",
        draw_p_values,
    ),
    _analysis(
        "analysis_3",
        "Eigenvalues of increments",
        "Fig. 1c: eigenvalues of the increments and the Marchenko–Pastur law",
        "figure_data",
        draw_spectra,
    ),
    _analysis(
        "spectral_analysis_appendix",
        "Eigenvalues of fine-tuned weights",
        "Eigenvalues of the fine-tuned weights W′ and the Marchenko–Pastur law",
        "figure_data",
        lambda table: draw_spectra(table, "weights"),
    ),
)


def _fine_tuning(
    label: str, title: str, shows: str, table: str, command: str, draw: Callable[[Lines], Figure]
) -> PaperFigure:
    data = Stored({table: f"python -m experiments.{command}"})
    return PaperFigure(label, title, shows, data, lambda rows: draw(as_lines(rows)))


_FINE_TUNING = (
    _fine_tuning(
        "training_process",
        "Loss and metric during training",
        "Validation loss and metric over the steps, with learned and fixed locations; measured",
        "training_process",
        "study training_process",
        draw_training,
    ),
    _fine_tuning(
        "budget",
        "Metric against the budget",
        "Metric against the parameter budget, with 95% intervals over seeds; measured",
        "budgets-summary",
        "study budgets",
        draw_budgets,
    ),
    _fine_tuning(
        "parameter_sen",
        "Sensitivity to the settings",
        "Metric against the scaling and the fraction of alternating steps; measured",
        "sensitivity-summary",
        "study sensitivity",
        draw_sensitivity,
    ),
    _fine_tuning(
        "visualization_W",
        "Learned increments",
        "The increments that each method learns in a few layers; measured",
        "visualization_W",
        "study patterns",
        draw_patterns,
    ),
    PaperFigure(
        "comparisons",
        "Methods compared by fine-tuning",
        "Differences between methods of fine-tuning over small tasks, with the bounds that "
        "decide the claims; measured",
        Stored({"verdicts": "python -m experiments.everything --full"}),
        lambda rows: draw_comparisons(as_lines(rows)),
    ),
    _fine_tuning(
        "prediction",
        "What predicts the better adapter",
        "Rank correlations of predictors with the accuracy; measured",
        "prediction",
        "prediction",
        draw_prediction,
    ),
    _fine_tuning(
        "low_rank",
        "Low rank of full increments",
        "Energy of the largest singular values of full increments, by optimiser, rate, steps, "
        "batch, data and layer, beside that of independent entries; measured",
        "low_rank",
        "low_rank",
        draw_low_rank,
    ),
)

_PUBLISHED = PaperFigure(
    "published",
    "Fine-tunes that others published",
    "Energy of ΔW that LoRA, LoCA and plain entries retain, in 309 fine-tunes by others; measured",
    Stored({f"{name}-retained": "python -m experiments.published" for name in STUDIES}),
    draw_published,
)

_OVERVIEW = PaperFigure(
    "overview",
    "Overview",
    "Theorem 1, a real increment, the toy experiment, fine-tuning, the ledger",
    Stored(
        {
            "sim_2": "loca-theory figures sim_2",
            "analyze-errors": _ANALYZE,
            "toy_recovery": "loca-theory figures toy_recovery",
            "verdicts": "python -m experiments.everything --full",
            "claims": "loca-theory verify",
        }
    ),
    draw_overview,
)

MEASURED = (*_ANALYSIS, *_FINE_TUNING, _PUBLISHED, _OVERVIEW)
