"""Names of the location searches and of the initial locations."""

from __future__ import annotations

from typing import Literal, get_args

from loca_theory.adapters.checks import check_choice
from loca_theory.locations.gradient import LocationGradient

PruneAndRegrow = Literal["swap-raw", "swap", "reselect"]
LocationSearch = LocationGradient | PruneAndRegrow
InitialLocations = Literal["random", "gradient"]

SEARCHES: tuple[str, ...] = (*get_args(LocationGradient), *get_args(PruneAndRegrow))


def check_search(name: str) -> None:
    """Check that the name is a :data:`LocationSearch`.

    Raises:
        InvalidArgumentError: the name is unknown.
    """
    check_choice("location_search", name, SEARCHES)


def check_initial_locations(name: str) -> None:
    """Check that the name is one of :data:`InitialLocations`.

    Raises:
        InvalidArgumentError: the name is unknown.
    """
    check_choice("init_locations", name, get_args(InitialLocations))


def is_prune_and_regrow(name: str) -> bool:
    """Whether the search moves components across the spectrum instead of along a gradient."""
    return name in get_args(PruneAndRegrow)
