"""Recovery rates in the paper's toy experiment, for its search for locations and for better ones.

- :class:`Interpretation`, :func:`find_interpretation`: settings for what the paper's description
  leaves open.
- :class:`Family`, :class:`Problems`, :func:`draw`: random problems in batches.
- :data:`SEARCHES`: algorithms that move components, from central differences to matching pursuit.
- :func:`toy`: the recovery rates with exact intervals, and traces of single problems.
"""

from typing import TYPE_CHECKING

from loca_theory._lazy import lazy_exports
from loca_theory.convergence.interpretations import (
    DEFAULT_INTERPRETATION,
    INTERPRETATIONS,
    Interpretation,
    find_interpretation,
)
from loca_theory.convergence.results import RecoveryRow, ToyResult, TraceRow

if TYPE_CHECKING:
    from loca_theory.convergence.problems import Family, Problems, draw
    from loca_theory.convergence.searches import SEARCHES, find_search
    from loca_theory.convergence.state import Rates, State
    from loca_theory.convergence.study import ConvergenceStudy, default_problems, toy

__all__ = [
    "DEFAULT_INTERPRETATION",
    "INTERPRETATIONS",
    "SEARCHES",
    "ConvergenceStudy",
    "Family",
    "Interpretation",
    "Problems",
    "Rates",
    "RecoveryRow",
    "State",
    "ToyResult",
    "TraceRow",
    "default_problems",
    "draw",
    "find_interpretation",
    "find_search",
    "toy",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "SEARCHES": "searches",
        "ConvergenceStudy": "study",
        "Family": "problems",
        "Problems": "problems",
        "Rates": "state",
        "State": "state",
        "default_problems": "study",
        "draw": "problems",
        "find_search": "searches",
        "toy": "study",
    },
)
