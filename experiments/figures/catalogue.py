"""The figures of the experiments.

``catalogue.toml`` says what each shows and from which tables; this module, which function draws it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from experiments.figures.comparisons import draw_comparisons
from experiments.figures.first_steps import draw_first_steps
from experiments.figures.learned_increments import draw_learned_increments
from experiments.figures.low_rank import draw_low_rank
from experiments.figures.overview import draw_overview
from experiments.figures.prediction import draw_prediction
from experiments.figures.published import draw_published
from experiments.figures.rounded import draw_rounded
from experiments.figures.runs import draw_budgets, draw_sensitivity, draw_training
from experiments.figures.unmerged import draw_unmerged
from loca_theory.plotting.paper_figure import PaperFigure

_DRAWN_BY = {
    "training_process": draw_training,
    "budget": draw_budgets,
    "parameter_sen": draw_sensitivity,
    "visualization_W": draw_learned_increments,
    "comparisons": draw_comparisons,
    "prediction": draw_prediction,
    "low_rank": draw_low_rank,
    "published": draw_published,
    "rounded": draw_rounded,
    "unmerged": draw_unmerged,
    "first_steps": draw_first_steps,
    "overview": draw_overview,
}
_ENTRIES = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8"))

FIGURES = tuple(
    PaperFigure(label, **entry, draw=_DRAWN_BY[label]) for label, entry in _ENTRIES.items()
)
