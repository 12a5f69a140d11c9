"""The paper's figures: what each shows, and the data it is drawn from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from loca_theory._lookup import find
from loca_theory.expressivity import Simulation, squares
from loca_theory.plotting.convergence import draw_loss, draw_recovery, draw_spectrum
from loca_theory.plotting.dependence import draw_crossings, draw_losses, draw_phase
from loca_theory.plotting.error_curves import draw_errors

if TYPE_CHECKING:
    from loca_theory.convergence import ConvergenceStudy
    from loca_theory.dependence import Study


@dataclass(frozen=True)
class PaperFigure:
    """A figure that can be made here.

    Attributes:
        label: The label of the figure in the paper's source, or a name where the paper has none.
        shows: What it shows, and what is exact in it.
        source: Makes the simulation or study whose table it is drawn from.
        draw: From the stored table to the figure.
        table: Which table of a study; None for a simulation, which has one.
    """

    label: str
    shows: str
    source: Callable[[], Simulation | Study | ConvergenceStudy]
    draw: Callable[[pd.DataFrame], Figure]
    table: str | None = None


_CURVES = ("R", "U", "M1", "M2", "D")
# Enough to make the simulated line as smooth as the exact ones.
_DRAWS = 400
_SIZE = 300


def _study(*structures: str) -> Study:
    """The appendix's sweep under some structures, by default all."""
    # Imports torch, which the other figures do without.
    from loca_theory.dependence import STRUCTURES, Study

    return Study(_SIZE, _SIZE, (8, 16, 24, 32), structures=structures or tuple(STRUCTURES))


def _convergence() -> ConvergenceStudy:
    """The toy experiment at its printed size, under every search."""
    from loca_theory.convergence import ConvergenceStudy

    return ConvergenceStudy()


FIGURES: dict[str, PaperFigure] = {
    figure.label: figure
    for figure in (
        PaperFigure(
            "sim_1",
            "Reconstruction error for r = 8, 16, 24, 32 and K from 100 to 300; U, M1, M2, D exact, "
            "R simulated",
            lambda: Simulation(squares(range(100, 301, 5)), (8, 16, 24, 32), _CURVES, draws=_DRAWS),
            draw_errors,
        ),
        PaperFigure(
            "sim_2",
            "Reconstruction error for K = 768 and 4096 and r from 8 to 32; U, M1, M2, D exact, "
            "R simulated",
            lambda: Simulation(squares((768, 4096)), tuple(range(8, 33)), _CURVES, draws=_DRAWS),
            draw_errors,
        ),
        PaperFigure(
            "sim_3",
            "Reconstruction error under (1-rho) I + rho 11', K = 300, in both protocols; U (and at "
            "independence D, M1, M2) exact, the rest simulated",
            lambda: _study("equicorrelated"),
            lambda table: draw_losses(table, "equicorrelated"),
            "rows",
        ),
        PaperFigure(
            "sim_3_as_printed",
            "The same under the printed I + rho 11'; U (and at independence D, M1, M2) exact, the "
            "rest simulated",
            lambda: _study("shared-mean"),
            lambda table: draw_losses(table, "shared-mean"),
            "rows",
        ),
        PaperFigure(
            "crossings",
            "Where low rank overtakes DCT selection under six kinds of dependence, K = 300, in "
            "both protocols; simulated",
            _study,
            draw_crossings,
            "crossings",
        ),
        PaperFigure(
            "phase",
            "Which method keeps more, by rank and by the energy in one random direction: boundary "
            "in closed form, crossings simulated at K = 300",
            lambda: _study("spiked"),
            lambda table: draw_phase(table, (_SIZE, _SIZE)),
            "crossings",
        ),
        PaperFigure(
            "toy_experiment",
            "The learned spectrum of single 6×6 problems over the steps: one that central "
            "differences recover, one that they do not, and the latter by reselection",
            _convergence,
            draw_spectrum,
            "traces",
        ),
        PaperFigure(
            "toy_experiment_loss",
            "Loss of the same problems with places that move and that stay",
            _convergence,
            draw_loss,
            "traces",
        ),
        PaperFigure(
            "toy_recovery",
            "How often each search finds all true locations of random 6×6 problems",
            _convergence,
            draw_recovery,
            "rows",
        ),
    )
}


def find_figure(label: str) -> PaperFigure:
    """The figure of that label.

    Raises:
        InvalidArgumentError: there is none; the message lists those there are.
    """
    return find("figure", label, FIGURES)
