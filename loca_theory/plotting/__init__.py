"""Figures: ``plot`` draws a result, ``report`` makes its HTML page, ``figure`` draws the paper's.

All figures share one style and do not use pyplot; the same data gives the same bytes. Importing
this package imports neither pandas nor matplotlib; using any of its names does.
"""

from typing import TYPE_CHECKING

from loca_theory._lazy import lazy_exports

if TYPE_CHECKING:
    from loca_theory.plotting.canvas import View, save_figure
    from loca_theory.plotting.drawing import (
        Drawing,
        Drawn,
        NotStoredError,
        UndrawableError,
        figure,
        find_drawing,
    )
    from loca_theory.plotting.page import Page, report
    from loca_theory.plotting.paper import FIGURES, find_figure
    from loca_theory.plotting.paper_figure import Computed, PaperFigure, Stored
    from loca_theory.plotting.pictures import plot, save_pictures, views

_EXPORTS = {
    "Computed": "paper_figure",
    "Drawing": "drawing",
    "Drawn": "drawing",
    "FIGURES": "paper",
    "NotStoredError": "drawing",
    "Page": "page",
    "PaperFigure": "paper_figure",
    "Stored": "paper_figure",
    "UndrawableError": "drawing",
    "View": "canvas",
    "figure": "drawing",
    "find_drawing": "drawing",
    "find_figure": "paper",
    "plot": "pictures",
    "report": "page",
    "save_figure": "canvas",
    "save_pictures": "pictures",
    "views": "pictures",
}

__all__ = [
    "FIGURES",
    "Computed",
    "Drawing",
    "Drawn",
    "NotStoredError",
    "Page",
    "PaperFigure",
    "Stored",
    "UndrawableError",
    "View",
    "figure",
    "find_drawing",
    "find_figure",
    "plot",
    "report",
    "save_figure",
    "save_pictures",
    "views",
]

__getattr__ = lazy_exports(__name__, _EXPORTS)
