"""The figures that the package draws: what each shows, and the data that it is drawn from."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loca_theory._lookup import find
from loca_theory.convergence.study import ConvergenceStudy
from loca_theory.dependence.design import Protocol
from loca_theory.dependence.structures import find_structures
from loca_theory.dependence.study import Study
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.methods.engine import Engine
from loca_theory.expressivity.methods.registry import METHODS, find_methods
from loca_theory.expressivity.simulation import Simulation, squares
from loca_theory.expressivity.theorem1.ordering import ORDERING_ACCOUNTINGS, Ordering
from loca_theory.plotting.paper_figure import Computed, PaperFigure
from loca_theory.plotting.results.analysis import draw_histograms, draw_p_values, draw_spectra
from loca_theory.plotting.results.convergence import draw_loss, draw_spectrum
from loca_theory.plotting.results.dependence import draw_crossings, draw_losses, draw_phase
from loca_theory.plotting.results.methods import draw_expected
from loca_theory.plotting.results.ordering import draw_margins
from loca_theory.plotting.results.recovery import draw_recovery
from loca_theory.plotting.results.rounding import draw_laws, draw_survival
from loca_theory.plotting.results.separable import draw_separable_map
from loca_theory.plotting.results.simulation import draw_errors
from loca_theory.rounding.study import RoundingStudy

if TYPE_CHECKING:
    import pandas as pd

_METHODS = find_methods(("LoRA", "printed line", "upper bound", "lower bound", "LoCA"))
_SIZE = 300
# The structures whose crossings are drawn; the other separable ones have a map.
_CROSSING = ("shared-mean", "equicorrelated", "row-equicorrelated", "ar1", "spiked", "power-law")


# Low rank, DCT and entries at ranks from 1 to 3K/8, without the tests' power.
_SEPARABLE = Study(
    256,
    256,
    (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96),
    structures=find_structures(("ar1", "blocks", "scaled")),
    protocols=(Protocol.SAME_DRAW,),
    methods=find_methods(("entries",)),
    rho=tuple(round(0.05 * i, 10) for i in range(20)),
    exponent=tuple(round(0.1 * i, 10) for i in range(13)),
    draws=50,
)


def _errors(sizes: Iterable[int], ranks: Iterable[int]) -> Computed:
    """Exact errors of square matrices."""
    return Computed(Simulation(squares(sizes), tuple(ranks), _METHODS, (Engine.EXACT,)))


def _study(*structures: str, table: str = "rows") -> Computed:
    """The appendix's sweep under the given structures."""
    chosen = find_structures(structures)
    return Computed(Study(_SIZE, _SIZE, (8, 16, 24, 32), structures=chosen), table)


def _of_end_ranks(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the smallest and the largest rank."""
    return table[table["r"].isin((table["r"].min(), table["r"].max()))]


def _analysis(table: str) -> dict[str, str]:
    return {f"analyze-{table}": "analyze(base, finetuned).save(folder)"}


def _figures_of_experiments() -> tuple[PaperFigure, ...]:
    """The figures of ``experiments/figures``, which only a checkout of the project has."""
    if not (Path(__file__).parents[2] / "experiments" / "figures").is_dir():
        return ()
    try:
        catalogue: Any = import_module("experiments.figures.catalogue")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("experiments"):  # another package hides ours
            return ()
        raise
    return catalogue.FIGURES


EXPERIMENTS = _figures_of_experiments()
"""The figures of the experiments; empty outside a checkout of the project."""
WITHOUT_EXPERIMENTS = "the figures of the experiments are in a checkout of the project only"

FIGURES: dict[str, PaperFigure] = {
    figure.label: figure
    for figure in (
        PaperFigure(
            "sim_1",
            "Error against the size of the matrix",
            "Error at r = 8, 16, 24, 32 and K from 100 to 300; exact",
            _errors(range(100, 301, 5), (8, 16, 24, 32)),
            draw_errors,
        ),
        PaperFigure(
            "sim_2",
            "Error against the rank",
            "Error at K = 768 and 4096 and r from 8 to 32; exact",
            _errors((768, 4096), range(8, 33)),
            draw_errors,
        ),
        PaperFigure(
            "theorem1_margin",
            "Margin of Theorem 1",
            "Margin of the order of Theorem 1 at every K from 4 to 300 and r < K/3, under four "
            "accountings; exact",
            Computed(Ordering(tuple(range(4, 301)), ORDERING_ACCOUNTINGS)),
            draw_margins,
        ),
        PaperFigure(
            "sim_3",
            "Error under equal correlation",
            "Error if every two entries have the correlation ρ, K = 300, r = 8 and 32; "
            "simulated, except for the paper's line and, at independence, LoCA and the bounds",
            _study("equicorrelated"),
            lambda table: draw_losses(_of_end_ranks(table), "equicorrelated"),
        ),
        PaperFigure(
            "crossings",
            "Where LoRA and LoCA cross",
            "Where the errors of LoRA and LoCA cross under six kinds of dependence, "
            "K = 300; simulated",
            _study(*_CROSSING, table="crossings"),
            draw_crossings,
        ),
        PaperFigure(
            "phase",
            "Phase diagram",
            "Which method retains more, by budget and energy of the r largest singular values; "
            "boundaries in closed form, crossings with one spike simulated at K = 300",
            _study("spiked", table="crossings"),
            lambda table: draw_phase(table, (_SIZE, _SIZE)),
        ),
        PaperFigure(
            "separable_map",
            "Map of separable dependence",
            "Which of LoRA, LoCA and entries retains most under separable dependence, by "
            "its strength and r/K, K = 256, blocks of 16; simulated",
            Computed(_SEPARABLE),
            draw_separable_map,
        ),
        PaperFigure(
            "toy_experiment",
            "Toy experiment: learned spectra",
            "Learned spectra of 6×6 problems over the steps: one that central differences "
            "recover, one that they do not, and the latter with reselection",
            Computed(ConvergenceStudy(), "traces"),
            draw_spectrum,
        ),
        PaperFigure(
            "toy_experiment_loss",
            "Toy experiment: loss",
            "Loss of the same problems with learned and with fixed locations",
            Computed(ConvergenceStudy(), "traces", shared_with="toy_experiment"),
            draw_loss,
        ),
        PaperFigure(
            "toy_recovery",
            "Toy experiment: searches that find the locations",
            "How often each search finds all true locations of a random problem",
            Computed(ConvergenceStudy()),
            draw_recovery,
        ),
        PaperFigure(
            "methods",
            "What every method retains at one budget",
            "Energy of independent entries that every method retains at the budget of r = 8, "
            "K = 768; exact, except for DoRA, VeRA, LoHa, HiRA, GLoRA, Uni-LoRA, VB-LoRA and "
            "RandLoRA, which are simulated",
            Computed(Simulation(squares([768]), (8,), tuple(METHODS.values()), draws=2)),
            draw_expected,
        ),
        PaperFigure(
            "rounding",
            "What rounding leaves",
            "Fraction of numbers that change, and error of the stored change, by the size of "
            "independent normal changes of normal weights, in four formats; exact",
            Computed(RoundingStudy(), "laws"),
            draw_laws,
        ),
        PaperFigure(
            "rounding_low_rank",
            "Low rank below the step",
            "Errors of LoRA, LoCA and entries on a rounded change of rank 8 of bfloat16 weights, "
            "and of LoRA inside the rounding cells, against its size in steps; simulated",
            Computed(RoundingStudy(), "survival"),
            draw_survival,
        ),
        PaperFigure(
            "analysis_1",
            "Entries of increments",
            "Fig. 1a: entries of the increments of a query and a value matrix, and the normal "
            "density",
            _analysis("figure_data"),
            draw_histograms,
        ),
        PaperFigure(
            "analysis_2",
            "Normality by layer",
            "Fig. 1b: p-values of normality by layer, calibrated and as printed",
            _analysis("matrices"),
            draw_p_values,
        ),
        PaperFigure(
            "analysis_3",
            "Eigenvalues of increments",
            "Fig. 1c: eigenvalues of the increments and the Marchenko–Pastur law",
            _analysis("figure_data"),
            draw_spectra,
        ),
        PaperFigure(
            "spectral_analysis_appendix",
            "Eigenvalues of fine-tuned weights",
            "Eigenvalues of the fine-tuned weights W′ and the Marchenko–Pastur law",
            _analysis("figure_data"),
            lambda table: draw_spectra(table, "weights"),
        ),
        *EXPERIMENTS,
    )
}


def find_figure(label: str) -> PaperFigure:
    """The figure with a label."""
    try:
        return find("figure", label, FIGURES)
    except InvalidArgumentError as error:
        if EXPERIMENTS:
            raise
        raise InvalidArgumentError(f"{error}; {WITHOUT_EXPERIMENTS}") from None
