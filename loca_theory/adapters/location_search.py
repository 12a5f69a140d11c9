"""How locations are searched for, by name."""

from __future__ import annotations

from typing import Literal, get_args

from loca_theory.adapters.checks import check_choice
from loca_theory.locations.gradient import LocationGradient

PruneAndRegrow = Literal["swap-raw", "swap", "reselect"]
LocationSearch = LocationGradient | PruneAndRegrow
InitialLocations = Literal["random", "gradient"]

SEARCHES: tuple[str, ...] = (*get_args(LocationGradient), *get_args(PruneAndRegrow))


def check_search(name: str) -> None:
    """Refuse what is no :data:`LocationSearch`.

    Raises:
        InvalidArgumentError: it is none.
    """
    check_choice("location search", name, SEARCHES)


def check_initial_locations(name: str) -> None:
    """Refuse what is no :data:`InitialLocations`.

    Raises:
        InvalidArgumentError: it is none.
    """
    check_choice("start of the locations", name, get_args(InitialLocations))


def is_prune_and_regrow(name: str) -> bool:
    """Whether components are moved across the spectrum instead of along a gradient."""
    return name in get_args(PruneAndRegrow)
