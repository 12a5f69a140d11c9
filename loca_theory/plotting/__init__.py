"""Figures, drawn from stored results only."""

from loca_theory.plotting.error_curves import draw_errors
from loca_theory.plotting.paper import FIGURES, PaperFigure, find_figure
from loca_theory.plotting.results import is_stored, load_rows, save_figure, store_rows

__all__ = [
    "FIGURES",
    "PaperFigure",
    "draw_errors",
    "find_figure",
    "is_stored",
    "load_rows",
    "save_figure",
    "store_rows",
]
