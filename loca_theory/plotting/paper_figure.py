"""A figure of the paper: its contents, its data and its drawing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from loca_theory.convergence.study import ConvergenceStudy
    from loca_theory.dependence.study import Study
    from loca_theory.expressivity.simulation import Simulation
    from loca_theory.expressivity.theorem1.ordering import Ordering
    from loca_theory.rounding.study import RoundingStudy

    Source = Simulation | Ordering | Study | ConvergenceStudy | RoundingStudy


@dataclass(frozen=True)
class Computed:
    """Data that are computed unless they are stored.

    Attributes:
        source: The simulation or study.
        table: Name of the table in its result.
        shared_with: Label of the figure under whose name the table is stored; None for this one's.
    """

    source: Source
    table: str = "rows"
    shared_with: str | None = None


_MAIN_TEXT = (
    *("analysis_1", "analysis_2", "analysis_3", "training_process", "budget", "parameter_sen"),
)
_APPENDIX = (
    *("spectral_analysis_appendix", "sim_1", "sim_2", "toy_experiment", "toy_experiment_loss"),
    *("visualization_W", "sim_3"),
)


@dataclass(frozen=True)
class PaperFigure:
    """A figure that this package can draw.

    Attributes:
        label: The label of the figure in the paper's source, or a name if the paper has no such
            figure.
        title: Heading of a few words.
        shows: What the figure shows, and which parts are exact.
        data: What it is drawn from: a table that is computed unless it is stored, or by their names
            tables that must be stored, each with the command that writes it.
        draw: Draws the figure from the tables, which are passed in the order of ``data``.
    """

    label: str
    title: str
    shows: str
    data: Computed | Mapping[str, str]
    draw: Callable[..., Figure]

    @property
    def in_paper(self) -> str:
        """Where the paper has the figure: its main text or its appendix; "" if it has not."""
        if self.label in _MAIN_TEXT:
            return "main text"
        return "appendix" if self.label in _APPENDIX else ""
