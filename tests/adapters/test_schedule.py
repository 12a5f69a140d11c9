"""The phases of a schedule."""

import pytest

from loca_theory.adapters import AlternatingSchedule

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
