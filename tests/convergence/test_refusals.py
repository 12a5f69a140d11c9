"""Calls that the package's functions refuse, each with its message."""

import math
import re

import pytest

from loca_theory.convergence import toy
from loca_theory.convergence.interpretations import find_interpretation
from loca_theory.convergence.problems import ProblemFamily
from loca_theory.convergence.state import Rates
from loca_theory.convergence.study import ConvergenceStudy
from loca_theory.errors import InvalidArgumentError

SPECTRUM = "the number of components must lie between 1 and"
CONDITION = "a condition number must be finite and at least 1, not"
POSITIVE = "must be positive and finite, not"
ONCE = "must have at least one value and no duplicates, not"


def study(**options):
    return ConvergenceStudy(**options)


CALLS = [
    # problems
    (lambda: ProblemFamily(size=1), "the size must be at least 2, not 1"),
    (lambda: ProblemFamily(size=5000), "the size must be at most 4096, not 5000"),
    (lambda: ProblemFamily(components=0), SPECTRUM + " 36 for a 6×6 spectrum, not 0"),
    (lambda: ProblemFamily(components=37), SPECTRUM + " 36 for a 6×6 spectrum, not 37"),
    (lambda: ProblemFamily(2, 5), SPECTRUM + " 4 for a 2×2 spectrum, not 5"),
    *(
        (lambda c=c: ProblemFamily(condition=c), f"{CONDITION} {c:g}")
        for c in (0.99, math.inf, math.nan)
    ),
    *((lambda r=r: Rates(r), f"lr {POSITIVE} {r:g}") for r in (0.0, -0.1, math.inf, math.nan)),
    (lambda: Rates(location_lr=-0.1), f"location_lr {POSITIVE} -0.1"),
    # interpretations
    (lambda: find_interpretation("odd"), "unknown interpretation 'odd'; choose from default, "),
    (lambda: find_interpretation("sum+"), "unknown interpretation ''"),
    (lambda: find_interpretation("sum + indices"), "unknown interpretation 'sum '"),
    (lambda: find_interpretation("sum+mean-of-samples"), "'sum+mean-of-samples' sets loss twice"),
    (lambda: find_interpretation("zero-border+one-sided-border"), "sets border twice"),
    (lambda: find_interpretation("indices+sum+indices"), "sets units twice"),
    # a study
    (lambda: study(searches=("swap", "swap")), f"searches {ONCE} swap, swap"),
    (lambda: study(interpretations=("sum", "sum")), f"interpretations {ONCE} sum, sum"),
    (lambda: study(sizes=()), f"sizes {ONCE} none"),
    (lambda: study(components=(3, 3)), f"components {ONCE} 3, 3"),
    (lambda: study(conditions=(1, 1.0)), f"conditions {ONCE} 1, 1.0"),
    (lambda: study(problems=0), "the number of problems must be at least 1, not 0"),
    (lambda: study(steps=-5), "the number of steps must be at least 1, not -5"),
    (lambda: study(searches=("odd",)), "unknown search 'odd'; choose from coefficients-only"),
    (lambda: study(sizes=(2, 6), components=(3, 5)), "for a 2×2 spectrum, not 5"),
    (lambda: study(searches=("pursuit",), steps=2), "locations move in only 1 of 2 steps"),
    # arguments of the one call
    (lambda: toy(conditions="odd"), "conditions must be numbers of at least 1, or gaussian, not"),
    (lambda: toy(sizes=6.5), "sizes must be whole numbers, not 6.5"),
    (lambda: toy(components=("3",)), "components must be whole numbers, not ('3',)"),
    (lambda: toy(interpretations="odd"), "unknown interpretation 'odd'"),
]


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_it_is_refused_and_says_why(call, message):
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        call()
