"""Cells of the toy experiment by the names of what they hold."""

from loca_theory.convergence.interpretations import find_interpretation
from loca_theory.convergence.problems import ProblemFamily
from loca_theory.convergence.searches import find_search
from loca_theory.convergence.simulation import ToyCell
from loca_theory.convergence.state import Rates


def toy_cell(search, steps, seed, numbers, interpretation="default", rates=None, **options):
    problem = (
        options.pop("family", ProblemFamily()),
        find_interpretation(interpretation),
        find_search(search),
    )
    return ToyCell(*problem, rates or Rates(), steps, seed, numbers, **options)
