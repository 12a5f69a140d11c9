"""The search algorithms for locations, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from loca_theory._lookup import find
from loca_theory.convergence.descent import Gradient
from loca_theory.convergence.global_searches import CyclicPursuit, Pursuit, Reselection, Swap
from loca_theory.convergence.search import Noise, Search
from loca_theory.convergence.state import State

# Initial scale of the noise that ``annealed-pursuit`` adds to the logarithm of predicted decreases.
_TEMPERATURE = 0.3


@dataclass(frozen=True)
class SearchKind:
    """Name and title of a search, and the function that makes it from a batch and its noise."""

    name: str
    title: str
    make: Callable[[State, Noise], Search]


SEARCHES: dict[str, SearchKind] = {
    kind.name: kind
    for kind in (
        SearchKind("coefficients-only", "learn the coefficients; locations do not move", Search),
        SearchKind("central", "gradient by central differences, as in the paper", Gradient),
        SearchKind(
            "forward", "gradient by forward differences (V4)", partial(Gradient, rule="forward")
        ),
        SearchKind(
            "backward", "gradient by backward differences (V5)", partial(Gradient, rule="backward")
        ),
        SearchKind(
            "eight-direction",
            "gradient by the steepest of 8 one-sided differences (the paper's remark)",
            partial(Gradient, rule="eight-direction"),
        ),
        SearchKind(
            "momentum", "central differences, with momentum 0.9", partial(Gradient, momentum=0.9)
        ),
        SearchKind(
            "jitter",
            "central differences, with noise that falls to zero",
            partial(Gradient, jitter=1.0),
        ),
        SearchKind(
            "shrinking",
            "central differences over a distance that shrinks from K/2 to 1",
            partial(Gradient, reach=0.5),
        ),
        SearchKind(
            "swap-raw",
            "move components with the smallest |a| to locations with the largest |Z|",
            partial(Swap, use_curvature=False),
        ),
        SearchKind(
            "swap",
            "move components with the smallest a²h to locations with the largest Z²/h, if larger",
            Swap,
        ),
        SearchKind(
            "reselect",
            "compute Z without the smallest |a|, then move these components to the largest Z²/h",
            Reselection,
        ),
        SearchKind(
            "cyclic-pursuit",
            "compute Z without one component in turn, then move it to the largest Z²/h",
            CyclicPursuit,
        ),
        SearchKind(
            "annealed-pursuit",
            "cyclic-pursuit, with noise that falls to zero",
            partial(CyclicPursuit, temperature=_TEMPERATURE),
        ),
        SearchKind(
            "pursuit",
            "orthogonal matching pursuit, which fits coefficients by least squares",
            Pursuit,
        ),
    )
}
"""The searches by name, in the order of tables."""


def find_search(name: str) -> SearchKind:
    """Return the search with the given name."""
    return find("search", name, SEARCHES)
