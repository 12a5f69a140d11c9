"""Names of the searches and of the initial locations, and which settings go together."""

from __future__ import annotations

from typing import Literal, get_args

from loca_theory.adapters.checks import check_choice, check_scaling
from loca_theory.adapters.search.schedule import AlternatingSchedule
from loca_theory.errors import InvalidArgumentError
from loca_theory.locations.gradient import LocationGradient

PruneAndRegrowSearch = Literal["swap-raw", "swap", "reselect"]
LocationSearch = LocationGradient | PruneAndRegrowSearch
InitialLocations = Literal["random", "gradient"]

LOCATION_SEARCHES: tuple[str, ...] = (*get_args(LocationGradient), *get_args(PruneAndRegrowSearch))
STARTS: tuple[str, ...] = get_args(InitialLocations)


def is_prune_and_regrow(name: str) -> bool:
    """Whether the search moves components across the spectrum instead of along a gradient."""
    return name in get_args(PruneAndRegrowSearch)


def uses_curvature(search: str, start: str) -> bool:
    """Whether a search or its start divides by the curvature, which needs a layer's input."""
    return search in ("swap", "reselect") or (start == "gradient" and search != "swap-raw")


def check_search(
    schedule: AlternatingSchedule, search: str, start: str, location_lr: float
) -> None:
    """Check that a search can follow a schedule, and can move something by it.

    Raises:
        InvalidArgumentError: it cannot, or a name or the rate is wrong.
    """
    check_choice("location_search", search, LOCATION_SEARCHES)
    check_choice("init_locations", start, STARTS)
    check_scaling("location_lr", location_lr)
    last = schedule.alternating_steps
    if is_prune_and_regrow(search) and schedule.joint:
        raise InvalidArgumentError(
            f"joint=True learns locations along a gradient, and {search!r} has none"
        )
    # Layers prune and regrow once in each period, and not all at its end.
    needed = schedule.period if is_prune_and_regrow(search) else schedule.coefficient_steps + 1
    if last and not schedule.joint and last < needed:
        raise InvalidArgumentError(
            f"alternating_steps={last} ends before all layers have learned a location, which "
            f"takes {needed} steps; raise it, or lower coefficient_steps or location_steps"
        )
