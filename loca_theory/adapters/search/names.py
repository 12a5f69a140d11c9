"""Names of the location searches and of the initial locations."""

from __future__ import annotations

from typing import Literal, get_args

from loca_theory.locations.gradient import LocationGradient

PruneAndRegrow = Literal["swap-raw", "swap", "reselect"]
LocationSearch = LocationGradient | PruneAndRegrow
InitialLocations = Literal["random", "gradient"]

SEARCHES: tuple[str, ...] = (*get_args(LocationGradient), *get_args(PruneAndRegrow))
STARTS: tuple[str, ...] = get_args(InitialLocations)


def is_prune_and_regrow(name: str) -> bool:
    """Whether the search moves components across the spectrum instead of along a gradient."""
    return name in get_args(PruneAndRegrow)


def uses_curvature(search: str, start: str) -> bool:
    """Whether a search or its start divides by the curvature, which needs a layer's input."""
    return search in ("swap", "reselect") or (start == "gradient" and search != "swap-raw")
