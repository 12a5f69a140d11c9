"""Cells of the toy experiment by the names of what they hold."""

from loca_theory.convergence.interpretations import find_interpretation
from loca_theory.convergence.problems import Family
from loca_theory.convergence.searches import find_search
from loca_theory.convergence.simulation import ToyCell
from loca_theory.convergence.state import Rates


def toy_cell(
    search,
    steps,
    seed,
    numbers,
    *,
    interpretation="default",
    rates=None,
    family=None,
    is_traced=False,
):
    return ToyCell(
        family or Family(),
        find_interpretation(interpretation),
        find_search(search),
        rates or Rates(),
        steps,
        seed,
        numbers,
        is_traced=is_traced,
    )


def trace_cell(*what, **options):
    return toy_cell(*what, is_traced=True, **options)
