"""The paper's figures: what each shows, and the data it is drawn from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Simulation, squares
from loca_theory.plotting.error_curves import draw_errors


@dataclass(frozen=True)
class PaperFigure:
    """A figure that can be made here.

    Attributes:
        label: The label of the figure in the paper's source.
        shows: What it shows, and what is exact in it.
        data: The simulation whose table it is drawn from.
        draw: From the stored table to the figure.
    """

    label: str
    shows: str
    data: Simulation
    draw: Callable[[pd.DataFrame], Figure]


_CURVES = ("R", "U", "M1", "M2", "D")
# Enough to make the simulated line as smooth as the exact ones.
_DRAWS = 400

FIGURES: dict[str, PaperFigure] = {
    figure.label: figure
    for figure in (
        PaperFigure(
            "sim_1",
            "Reconstruction error for r = 8, 16, 24, 32 and K from 100 to 300; U, M1, M2, D exact, "
            "R simulated",
            Simulation(squares(range(100, 301, 5)), (8, 16, 24, 32), _CURVES, draws=_DRAWS),
            draw_errors,
        ),
        PaperFigure(
            "sim_2",
            "Reconstruction error for K = 768 and 4096 and r from 8 to 32; U, M1, M2, D exact, "
            "R simulated",
            Simulation(squares((768, 4096)), tuple(range(8, 33)), _CURVES, draws=_DRAWS),
            draw_errors,
        ),
    )
}


def find_figure(label: str) -> PaperFigure:
    """The figure of that label.

    Raises:
        InvalidArgumentError: there is none; the message lists those there are.
    """
    try:
        return FIGURES[label]
    except KeyError:
        msg = f"unknown figure {label!r}; choose from {', '.join(FIGURES)}"
        raise InvalidArgumentError(msg) from None
