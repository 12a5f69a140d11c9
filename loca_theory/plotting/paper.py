"""The paper's figures: the contents of each, and the data that it is drawn from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loca_theory._lookup import find
from loca_theory.expressivity.methods.method import Engine
from loca_theory.expressivity.methods.registry import find_methods
from loca_theory.expressivity.ordering import ORDERING_ACCOUNTINGS, Ordering
from loca_theory.expressivity.simulation import Simulation, squares
from loca_theory.plotting.catalogue import MethodCurves, draw_catalogue
from loca_theory.plotting.convergence import draw_loss, draw_recovery, draw_spectrum
from loca_theory.plotting.dependence import draw_crossings, draw_losses, draw_phase
from loca_theory.plotting.error_curves import draw_errors
from loca_theory.plotting.measured import MEASURED
from loca_theory.plotting.ordering import draw_margins
from loca_theory.plotting.paper_figure import Computed, PaperFigure
from loca_theory.plotting.separable import draw_separable_map

if TYPE_CHECKING:
    from loca_theory.convergence.study import ConvergenceStudy
    from loca_theory.dependence.study import Study

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
    from loca_theory.dependence.structures import find_structures
    from loca_theory.dependence.study import Study

    return Study(_SIZE, _SIZE, (8, 16, 24, 32), structures=find_structures(structures))


def _separable_study() -> Study:
    """Low rank, DCT and entries at ranks from 1 to 3K/8, K = 256, without the tests' power."""
    from loca_theory.dependence.protocols import Protocol
    from loca_theory.dependence.structures import find_structures
    from loca_theory.dependence.study import Study

    return Study(
        256,
        256,
        (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96),
        structures=find_structures(("ar1", "blocks", "scaled")),
        protocols=(Protocol.SAME_DRAW,),
        methods=find_methods(("S",)),
        rho=tuple(round(0.05 * i, 10) for i in range(20)),
        exponent=tuple(round(0.1 * i, 10) for i in range(13)),
        draws=50,
        null_draws=400,
    )


def _convergence() -> ConvergenceStudy:
    """The toy experiment at the paper's size, under every search."""
    from loca_theory.convergence.study import ConvergenceStudy

    return ConvergenceStudy()


FIGURES: dict[str, PaperFigure] = {
    figure.label: figure
    for figure in (
        PaperFigure(
            "sim_1",
            "Error against the size of the matrix",
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
            "Error against the rank",
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
            "Margin of Theorem 1",
            "Margin by which the ordering of Theorem 1 holds, at every K from 4 to 300 and "
            "r < K/3, under four accountings; exact",
            Computed(lambda: Ordering(tuple(range(4, 301)), ORDERING_ACCOUNTINGS)),
            draw_margins,
        ),
        PaperFigure(
            "sim_3",
            "Error under equal correlation",
            "Reconstruction error if every two entries have the correlation ρ, K = 300, in both "
            "protocols; the printed line (at independence also LoCA and the bounds) exact, "
            "the rest simulated",
            Computed(lambda: _study("equicorrelated")),
            lambda table: draw_losses(table, "equicorrelated"),
        ),
        PaperFigure(
            "sim_3_as_printed",
            "Error under equal correlation, as printed",
            "The same with the covariance as printed, which adds ρ to every entry of the identity "
            "matrix; the printed line (at independence also LoCA and the bounds) exact, "
            "the rest simulated",
            Computed(lambda: _study("shared-mean")),
            lambda table: draw_losses(table, "shared-mean"),
        ),
        PaperFigure(
            "crossings",
            "Where LoRA and LoCA cross",
            "Where the errors of LoRA and LoCA cross under six kinds of dependence, "
            "K = 300, in both protocols; simulated",
            Computed(lambda: _study(*_CROSSING), "crossings"),
            draw_crossings,
        ),
        PaperFigure(
            "phase",
            "Phase diagram",
            "Which method retains more, by the budget and by the energy of the r largest singular "
            "values: boundaries in closed form, crossings with one spike simulated at K = 300",
            Computed(lambda: _study("spiked"), "crossings"),
            lambda table: draw_phase(table, (_SIZE, _SIZE)),
        ),
        PaperFigure(
            "separable_map",
            "Map of separable dependence",
            "Which of LoRA, LoCA and entries retains most under separable dependence, by "
            "its strength and r/K, K = 256, blocks of 16; simulated",
            Computed(_separable_study),
            draw_separable_map,
        ),
        PaperFigure(
            "toy_experiment",
            "Toy experiment: learned spectra",
            "The learned spectrum of single 6×6 problems over the steps: one that central "
            "differences recover, one that they do not, and the latter with reselection",
            Computed(_convergence, "traces"),
            draw_spectrum,
        ),
        PaperFigure(
            "toy_experiment_loss",
            "Toy experiment: loss",
            "Loss of the same problems with learned and with fixed locations",
            Computed(_convergence, "traces", shared_with="toy_experiment"),
            draw_loss,
        ),
        PaperFigure(
            "toy_recovery",
            "Toy experiment: searches that find the locations",
            "How often each search finds all true locations of random 6×6 problems",
            Computed(_convergence),
            draw_recovery,
        ),
        PaperFigure(
            "methods",
            "All methods by their costs",
            "Error of every method against its trained parameters and its stored bits, K = 768, "
            "r = 1 to 64; exact, the limit, or simulated, as its key says",
            Computed(MethodCurves),
            draw_catalogue,
        ),
        *MEASURED,
    )
}


def find_figure(label: str) -> PaperFigure:
    """The figure with a label.

    Raises:
        InvalidArgumentError: there is no such figure; the message lists all labels.
    """
    return find("figure", label, FIGURES)
