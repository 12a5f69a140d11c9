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


@pytest.mark.parametrize(
    ("schedule", "ahead", "records", "regrows"),
    [
        (AlternatingSchedule(2, 3, 12, recorded_steps=2), 0, [3, 4, 8, 9], [4, 9]),
        (AlternatingSchedule(2, 3, 12, recorded_steps=2), 2, [1, 2, 6, 7, 11], [2, 7]),
        (AlternatingSchedule(2, 3, 10, recorded_steps=1), 0, [4, 9], [4, 9]),
        (
            AlternatingSchedule(1, 1, None, recorded_steps=9),
            1,
            list(range(13)),
            list(range(0, 13, 2)),
        ),
    ],
)
def test_components_are_pruned_at_the_end_of_each_period_and_recorded_before(
    schedule, ahead, records, regrows
):
    assert [t for t in range(13) if schedule.records(t, ahead)] == records
    assert [t for t in range(13) if schedule.prunes_and_regrows(t, ahead)] == regrows
