"""Figures, drawn from stored results only.

Importing this package imports neither pandas nor matplotlib; using anything of it does.
"""

from typing import TYPE_CHECKING

from loca_theory._lazy import lazy_exports

if TYPE_CHECKING:
    from loca_theory.plotting.error_curves import draw_errors
    from loca_theory.plotting.paper import FIGURES, Computed, PaperFigure, Stored, find_figure
    from loca_theory.plotting.report import draw_analysis, write_html
    from loca_theory.plotting.results import save_figure

__all__ = [
    "FIGURES",
    "Computed",
    "PaperFigure",
    "Stored",
    "draw_analysis",
    "draw_errors",
    "find_figure",
    "save_figure",
    "write_html",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "Computed": "paper",
        "FIGURES": "paper",
        "PaperFigure": "paper",
        "Stored": "paper",
        "draw_analysis": "report",
        "draw_errors": "error_curves",
        "find_figure": "paper",
        "save_figure": "results",
        "write_html": "report",
    },
)
