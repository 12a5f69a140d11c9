"""The search algorithms for locations, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from loca_theory._lookup import find
from loca_theory.convergence.descent import Gradient
from loca_theory.convergence.pursuits import CyclicPursuit, Pursuit, Reselection, Swap
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


# Titles and constructors, in the order of tables.
_KINDS: dict[str, tuple[str, Callable[[State, Noise], Search]]] = {
    "coefficients-only": ("learn the coefficients; locations do not move", Search),
    "central": ("gradient by central differences, as in the paper", Gradient),
    "forward": ("gradient by forward differences (V4)", partial(Gradient, rule="forward")),
    "backward": ("gradient by backward differences (V5)", partial(Gradient, rule="backward")),
    "eight-direction": (
        "gradient by the steepest of 8 one-sided differences (the paper's remark)",
        partial(Gradient, rule="eight-direction"),
    ),
    "momentum": ("central differences, with momentum 0.9", partial(Gradient, momentum=0.9)),
    "jitter": ("central differences, with noise that falls to zero", partial(Gradient, jitter=1.0)),
    "shrinking": (
        "central differences over a distance that shrinks from K/2 to 1",
        partial(Gradient, reach=0.5),
    ),
    "swap-raw": (
        "move components with the smallest |a| to locations with the largest |Z|",
        partial(Swap, use_curvature=False),
    ),
    "swap": (
        "move components with the smallest a²h to locations with the largest Z²/h, if larger",
        Swap,
    ),
    "reselect": (
        "compute Z without the smallest |a|, then move these components to the largest Z²/h",
        Reselection,
    ),
    "cyclic-pursuit": (
        "compute Z without one component in turn, then move it to the largest Z²/h",
        CyclicPursuit,
    ),
    "annealed-pursuit": (
        "cyclic-pursuit, with noise that falls to zero",
        partial(CyclicPursuit, temperature=_TEMPERATURE),
    ),
    "pursuit": ("orthogonal matching pursuit, which fits coefficients by least squares", Pursuit),
}
SEARCHES = {name: SearchKind(name, *kind) for name, kind in _KINDS.items()}
"""The searches by name, in the order of tables."""


def find_search(name: str) -> SearchKind:
    """Return the search with the given name."""
    return find("search", name, SEARCHES)
