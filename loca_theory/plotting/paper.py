"""The paper's figures: the contents of each, and the data that it is drawn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from loca_theory._lookup import find
from loca_theory.expressivity import (
    ORDERING_ACCOUNTINGS,
    Catalogue,
    Engine,
    Ordering,
    Simulation,
    find_methods,
    squares,
)
from loca_theory.plotting.catalogue import draw_catalogue
from loca_theory.plotting.comparisons import draw_comparisons
from loca_theory.plotting.convergence import draw_loss, draw_recovery, draw_spectrum
from loca_theory.plotting.dependence import draw_crossings, draw_losses, draw_phase
from loca_theory.plotting.error_curves import draw_errors
from loca_theory.plotting.finetuning import draw_budgets, draw_sensitivity, draw_training
from loca_theory.plotting.increments import draw_histograms, draw_p_values, draw_spectra
from loca_theory.plotting.low_rank import draw_low_rank
from loca_theory.plotting.ordering import draw_margins
from loca_theory.plotting.overview import draw_overview
from loca_theory.plotting.patterns import draw_patterns
from loca_theory.plotting.prediction import draw_prediction
from loca_theory.plotting.runs import Lines, as_lines
from loca_theory.plotting.separable import draw_separable_map

if TYPE_CHECKING:
    from loca_theory.convergence import ConvergenceStudy
    from loca_theory.dependence import Study

    Source = Simulation | Ordering | Catalogue | Study | ConvergenceStudy


@dataclass(frozen=True)
class Computed:
    """Data that are computed unless they are stored.

    Attributes:
        source: Creates the simulation or study.
        table: Name of the table in its result.
        shared_with: Label of the figure under whose name the table is stored; None for this one's.
    """

    source: Callable[[], Source]
    table: str = "rows"
    shared_with: str | None = None


@dataclass(frozen=True)
class Stored:
    """Tables that other commands write.

    Attributes:
        tables: The command that writes each table, by the table's name.
    """

    tables: Mapping[str, str]


@dataclass(frozen=True)
class PaperFigure:
    """A figure that this package can draw.

    Attributes:
        label: The label of the figure in the paper's source, or a name if the paper has no such
            figure.
        shows: What the figure shows, and which parts are exact.
        data: The data that it is drawn from.
        draw: Draws the figure from the tables, which are passed in the order of ``data``.
    """

    label: str
    shows: str
    data: Computed | Stored
    draw: Callable[..., Figure]


_METHODS = find_methods(("R", "U", "M1", "M2", "D"))
# Enough to make the simulated line as smooth as the exact ones.
_SIZE = 300
# The structures whose crossings are drawn; the other separable ones have a map.
_CROSSING = (
    "shared-mean", "equicorrelated", "row-equicorrelated", "ar1", "spiked", "power-law",
)  # fmt: skip


def _study(*structures: str) -> Study:
    """The appendix's sweep under the given structures."""
    # This imports torch, which the other figures do not need.
    from loca_theory.dependence import Study

    return Study(_SIZE, _SIZE, (8, 16, 24, 32), structures=structures)


def _separable_study() -> Study:
    """Low rank, DCT and entries at ranks from 1 to 3K/8, K = 256, without the tests' power."""
    from loca_theory.dependence import Protocol, Study

    return Study(
        256,
        256,
        (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96),
        structures=("ar1", "blocks", "scaled"),
        protocols=(Protocol.SAME_DRAW,),
        methods=find_methods(("S",)),
        rho=tuple(round(0.05 * i, 10) for i in range(20)),
        exponent=tuple(round(0.1 * i, 10) for i in range(13)),
        draws=50,
        null_draws=400,
    )


def _convergence() -> ConvergenceStudy:
    """The toy experiment at the paper's size, under every search."""
    from loca_theory.convergence import ConvergenceStudy

    return ConvergenceStudy()


_ANALYZE = "loca-theory analyze BASE FINETUNED --out DIR"


def _analysis(label: str, shows: str, table: str, draw: Callable[..., Figure]) -> PaperFigure:
    return PaperFigure(label, shows, Stored({f"analyze-{table}": _ANALYZE}), draw)


_ANALYSIS = (
    _analysis(
        "analysis_1",
        "Fig. 1a: entries of the increments of a query and a value matrix, and the normal density",
        "figure_data",
        draw_histograms,
    ),
    _analysis(
        "analysis_2",
        "Fig. 1b: p-values of normality by layer, calibrated and as printed",
        "matrices",
        draw_p_values,
    ),
    _analysis(
        "analysis_3",
        "Fig. 1c: eigenvalues of the increments and the Marchenko–Pastur law",
        "figure_data",
        draw_spectra,
    ),
    _analysis(
        "spectral_analysis_appendix",
        "Eigenvalues of the fine-tuned weights W′ and the Marchenko–Pastur law",
        "figure_data",
        lambda table: draw_spectra(table, "weights"),
    ),
)


def _fine_tuning(
    label: str, shows: str, table: str, command: str, draw: Callable[[Lines], Figure]
) -> PaperFigure:
    data = Stored({table: f"python -m experiments.{command}"})
    return PaperFigure(label, shows, data, lambda rows: draw(as_lines(rows)))


_FINE_TUNING = (
    _fine_tuning(
        "training_process",
        "Validation loss and metric over the steps, with learned and fixed locations; measured",
        "training_process",
        "training_process",
        draw_training,
    ),
    _fine_tuning(
        "budget",
        "Metric against the parameter budget, with 95% intervals over seeds; measured",
        "budgets-summary",
        "budgets",
        draw_budgets,
    ),
    _fine_tuning(
        "parameter_sen",
        "Metric against the scaling and the fraction of alternating steps; measured",
        "sensitivity-summary",
        "sensitivity",
        draw_sensitivity,
    ),
    _fine_tuning(
        "visualization_W",
        "The increments that each method learns in a few layers; measured",
        "visualization_W",
        "patterns",
        draw_patterns,
    ),
    PaperFigure(
        "comparisons",
        "Differences between methods of fine-tuning over small tasks, with the bounds that "
        "decide the claims; measured",
        Stored({"verdicts": "python -m experiments.everything --full"}),
        lambda rows: draw_comparisons(as_lines(rows)),
    ),
    _fine_tuning(
        "prediction",
        "What predicts the better adapter: predicted against reached accuracy, with rank "
        "correlations; measured",
        "prediction",
        "prediction",
        draw_prediction,
    ),
    _fine_tuning(
        "low_rank",
        "Energy of the largest singular values of full increments, by optimiser, rate, steps, "
        "batch, data and layer, beside that of independent entries; measured",
        "low_rank",
        "low_rank",
        draw_low_rank,
    ),
)

_OVERVIEW = PaperFigure(
    "overview",
    "Overview: Theorem 1, a real increment, the toy experiment, fine-tuning, the ledger",
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

FIGURES: dict[str, PaperFigure] = {
    figure.label: figure
    for figure in (
        PaperFigure(
            "sim_1",
            "Reconstruction error for r = 8, 16, 24, 32 and K from 100 to 300; exact",
            Computed(
                lambda: Simulation(
                    squares(range(100, 301, 5)), (8, 16, 24, 32), _METHODS, (Engine.EXACT,)
                )
            ),
            draw_errors,
        ),
        PaperFigure(
            "sim_2",
            "Reconstruction error for K = 768 and 4096 and r from 8 to 32; exact",
            Computed(
                lambda: Simulation(
                    squares((768, 4096)), tuple(range(8, 33)), _METHODS, (Engine.EXACT,)
                )
            ),
            draw_errors,
        ),
        PaperFigure(
            "theorem1_margin",
            "Margin by which the ordering of Theorem 1 holds, at every K from 4 to 300 and "
            "r < K/3, under four accountings; exact",
            Computed(lambda: Ordering(tuple(range(4, 301)), ORDERING_ACCOUNTINGS)),
            draw_margins,
        ),
        PaperFigure(
            "sim_3",
            "Reconstruction error under (1-rho) I + rho 11', K = 300, in both protocols; U (and at "
            "independence D, M1, M2) exact, the rest simulated",
            Computed(lambda: _study("equicorrelated")),
            lambda table: draw_losses(table, "equicorrelated"),
        ),
        PaperFigure(
            "sim_3_as_printed",
            "The same under the printed I + rho 11'; U (and at independence D, M1, M2) exact, the "
            "rest simulated",
            Computed(lambda: _study("shared-mean")),
            lambda table: draw_losses(table, "shared-mean"),
        ),
        PaperFigure(
            "crossings",
            "Where the errors of low rank and DCT selection cross under six kinds of dependence, "
            "K = 300, in both protocols; simulated",
            Computed(lambda: _study(*_CROSSING), "crossings"),
            draw_crossings,
        ),
        PaperFigure(
            "phase",
            "Which method retains more, by the budget and by the energy of the r largest singular "
            "values: boundaries in closed form, crossings with one spike simulated at K = 300",
            Computed(lambda: _study("spiked"), "crossings"),
            lambda table: draw_phase(table, (_SIZE, _SIZE)),
        ),
        PaperFigure(
            "separable_map",
            "Which of low rank, DCT and plain entries retains most under separable dependence, by "
            "its strength and r/K, K = 256, blocks of 16; simulated",
            Computed(_separable_study),
            draw_separable_map,
        ),
        PaperFigure(
            "toy_experiment",
            "The learned spectrum of single 6×6 problems over the steps: one that central "
            "differences recover, one that they do not, and the latter with reselection",
            Computed(_convergence, "traces"),
            draw_spectrum,
        ),
        PaperFigure(
            "toy_experiment_loss",
            "Loss of the same problems with learned and with fixed locations",
            Computed(_convergence, "traces", shared_with="toy_experiment"),
            draw_loss,
        ),
        PaperFigure(
            "toy_recovery",
            "How often each search finds all true locations of random 6×6 problems",
            Computed(_convergence),
            draw_recovery,
        ),
        PaperFigure(
            "methods",
            "Error of every method against its trained numbers and its stored bits, K = 768, "
            "r = 1 to 64; exact, the limit, or simulated, as its key says",
            Computed(Catalogue),
            draw_catalogue,
        ),
        *_ANALYSIS,
        *_FINE_TUNING,
        _OVERVIEW,
    )
}


def find_figure(label: str) -> PaperFigure:
    """The figure with a label.

    Raises:
        InvalidArgumentError: there is no such figure; the message lists all labels.
    """
    return find("figure", label, FIGURES)
