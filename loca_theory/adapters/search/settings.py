"""Names of the searches and of the initial locations, and which settings go together."""

from __future__ import annotations

from typing import Literal, get_args

from loca_theory.adapters.checks import check_choice, check_scaling
from loca_theory.adapters.search.schedule import AlternatingSchedule
from loca_theory.errors import InvalidArgumentError
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


def check_search(
    schedule: AlternatingSchedule, search: str, start: str, location_lr: float
) -> None:
    """Check that a search can follow a schedule, and can move something by it.

    Raises:
        InvalidArgumentError: it cannot, or a name or the rate is wrong.
    """
    check_choice("location_search", search, SEARCHES)
    check_choice("init_locations", start, STARTS)
    check_scaling("location_lr", location_lr)
    last = schedule.alternating_steps
    if is_prune_and_regrow(search) and schedule.joint:
        msg = f"joint=True learns locations along a gradient, and {search!r} has none"
        raise InvalidArgumentError(msg)
    if last is None or last == 0 or schedule.joint:
        return
    if is_prune_and_regrow(search) and last < schedule.period:
        msg = f"alternating_steps={last} ends before every layer has pruned and regrown: each does "
        msg += f"so every {schedule.period} steps (coefficient_steps + location_steps)"
        raise InvalidArgumentError(msg)
    if last <= schedule.coefficient_steps:
        msg = f"alternating_steps={last} ends before any location is learned: the first "
        msg += f"{schedule.coefficient_steps} steps learn coefficients; raise it or lower "
        msg += "coefficient_steps"
        raise InvalidArgumentError(msg)
