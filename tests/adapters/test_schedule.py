"""The phases of a schedule, and which searches can follow it."""

import math

import pytest

from loca_theory.adapters import AlternatingSchedule
from loca_theory.errors import InvalidArgumentError

from .searching import small

A, L = "coefficients", "locations"

PHASES = {
    "in turn": (AlternatingSchedule(2, 3, 10), [A, A, L, L, L, A, A, L, L, L, None, None]),
    "cut off": (AlternatingSchedule(2, 3, 4), [A, A, L, L, None, None]),
    "one each": (AlternatingSchedule(1, 1, 3), [A, L, A, None]),
    "jointly": (AlternatingSchedule(2, 3, 3, joint=True), ["both"] * 3 + [None] * 2),
    "never": (AlternatingSchedule(2, 3, 0), [None] * 4),
    "for ever": (AlternatingSchedule(2, 1, None), [A, A, L] * 5),
    "the paper's": (AlternatingSchedule(), ([A] * 10 + [L] * 20) * 20 + [None] * 100),
}


@pytest.mark.parametrize(("schedule", "phases"), PHASES.values(), ids=PHASES)
def test_phases_are_those_of_the_definition(schedule, phases):
    assert [schedule.phase(t) for t in range(len(phases))] == phases


IMPOSSIBLE = [
    ("coefficient_steps", 0, "1, not 0"),
    ("coefficient_steps", 2.5, "1, not 2.5"),
    ("location_steps", -2, "1, not -2"),
    ("recorded_steps", 0, "1, not 0"),
    ("alternating_steps", -1, "0, not -1"),
    ("alternating_steps", math.nan, "0, not nan"),
]


@pytest.mark.parametrize(("name", "value", "message"), IMPOSSIBLE)
def test_impossible_schedules_are_refused(name, value, message):
    with pytest.raises(
        InvalidArgumentError, match=f"{name} must be an integer of at least {message}"
    ):
        AlternatingSchedule(**{name: value})


JOINT = AlternatingSchedule(2, 3, 10, joint=True)
MOVES_NOTHING = {
    "search": ({"location_search": "nowhere"}, "location_search must be one of .*, not 'nowhere'"),
    "start": ({"init_locations": "nowhere"}, "init_locations must be one of .*, not 'nowhere'"),
    "rate of 0": ({"location_lr": 0.0}, "location_lr must be positive and finite, not 0.0"),
    "rate": ({"location_lr": math.inf}, "location_lr must be positive and finite, not inf"),
    "joint": (
        {"location_search": "reselect", "schedule": JOINT},
        "joint=True learns locations along a gradient, and 'reselect' has none",
    ),
    "too short a period": (
        {"location_search": "swap", "schedule": AlternatingSchedule(10, 20, 29)},
        "alternating_steps=29 ends before .* takes 30 steps",
    ),
    "no phase of locations": (
        {"schedule": AlternatingSchedule(10, 20, 10)},
        "alternating_steps=10 ends before all layers have learned a location, which takes 11 steps",
    ),
}


@pytest.mark.parametrize(("options", "message"), MOVES_NOTHING.values(), ids=MOVES_NOTHING)
def test_a_search_that_can_move_nothing_is_refused(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        small(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": AlternatingSchedule(10, 20, 11)},
        {"schedule": AlternatingSchedule(10, 20, 30), "location_search": "swap"},
        {"schedule": AlternatingSchedule(10, 20, 5, joint=True)},
    ],
    ids=str,
)
def test_a_search_that_can_move_once_is_not(options):
    small(**options)
