"""What each interpretation of the printed experiment changes."""

from dataclasses import asdict

import pytest
import torch

from loca_theory.convergence import simulation
from loca_theory.convergence.interpretations import Interpretation, find_interpretation
from loca_theory.convergence.problems import Problems
from loca_theory.convergence.searches import find_search
from loca_theory.convergence.state import Rates, State

SIZE = 64
SEED = 11
IDENTITY = torch.eye(SIZE, dtype=torch.float64)[None]


def state(indices, coefficients, truth, interpretation, rates=None):
    """One problem with Γ = Σ = 1, so that Z = F − F*, and F* as {(row, column): value}."""
    entries = [row * SIZE + column for row, column in truth]
    values = torch.tensor([list(truth.values())], dtype=torch.float64)
    flat = torch.tensor([[row * SIZE + column for row, column in indices]])
    problems = Problems(IDENTITY, IDENTITY, torch.tensor([entries]), values, flat)
    built = State(problems, interpretation, rates or Rates())
    built.coefficients = torch.tensor([coefficients], dtype=torch.float64)
    return built


# --- names ---


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("default", {}),
        ("mean-of-samples", {"loss": "mean-of-samples"}),
        ("zero-border", {"border": "zero"}),
        ("one-sided-border", {"border": "one-sided"}),
        ("sum+standard-deviation", {"loss": "sum", "spread": "standard-deviation"}),
        ("default+indices+overwrite", {"units": "indices", "collisions": "overwrite"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_names_say_what_differs_from_the_default(name, changes):
    assert find_interpretation(name) == Interpretation(**changes)
    assert asdict(find_interpretation(name)) == {**asdict(Interpretation()), **changes}


def test_the_spread_is_a_variance_or_a_standard_deviation():
    variance, deviation = Interpretation(), Interpretation(spread="standard-deviation")
    assert variance.data_standard_deviation**2 == pytest.approx(20, rel=1e-15)
    assert variance.weight_standard_deviation**2 == pytest.approx(0.2, rel=1e-15)
    assert (deviation.data_standard_deviation, deviation.weight_standard_deviation) == (20.0, 0.2)


# --- borders ---

# A component at a border, the location beside it, and the way from the one to the other.
BORDERS = {
    "top": ((0, 10), (1, 0)),
    "bottom": (((SIZE - 1), 10), (-1, 0)),
    "left": ((10, 0), (0, 1)),
    "right": ((10, SIZE - 1), (0, -1)),
}
by_border = pytest.mark.parametrize(("location", "inward"), BORDERS.values(), ids=BORDERS)
OUTWARD_RULES = {"top": "backward", "left": "backward", "bottom": "forward", "right": "forward"}


def steps_inward(rule, border, location, inward, centre, beside):
    """How far a component of coefficient 1 moves where Z is ``centre``, and ``beside`` it."""
    neighbour = (location[0] + inward[0], location[1] + inward[1])
    truth = {location: 1.0 - centre, neighbour: -beside}
    interpretation = Interpretation(units="indices", border=border)
    # The second component has no coefficient, and so no gradient.
    locations, rates = [location, (40, 40)], Rates(location_lr=1.0)
    start = state(locations, [1.0, 0.0], truth, interpretation, rates)
    find_search(rule).make(start, lambda count: torch.ones(1, count)).move(0.0)
    (row, column), other = (divmod(int(n), SIZE) for n in start.indices[0])
    assert other == (40, 40)
    return (row - location[0]) * inward[0] + (column - location[1]) * inward[1]


@by_border
# Half of 4 + 10 with a neighbour like the location itself; half of 0 + 10; the slope, 14.
@pytest.mark.parametrize(("border", "expected"), [("clamp", 7), ("zero", 5), ("one-sided", 14)])
def test_the_central_difference_at_a_border(location, inward, border, expected):
    assert steps_inward("central", border, location, inward, centre=4.0, beside=-10.0) == expected


@pytest.mark.parametrize("side", BORDERS)
# Z falls inwards, or grows to it from below zero. No step leaves the spectrum.
@pytest.mark.parametrize(
    ("border", "descending", "ascending"), [("clamp", 0, 0), ("zero", 0, 4), ("one-sided", 14, 0)]
)
def test_the_difference_across_a_border(side, border, descending, ascending):
    rule, (location, inward) = OUTWARD_RULES[side], BORDERS[side]
    assert steps_inward(rule, border, location, inward, centre=4.0, beside=-10.0) == descending
    assert steps_inward(rule, border, location, inward, centre=-4.0, beside=2.0) == ascending


# --- collisions ---

PLACES = [(3, 5), (7, 7), (3, 5), (3, 5)]
COEFFICIENTS = [1.0, 2.0, -4.0, 0.5]
TRUTH = {(3, 5): 0.25, (0, 0): 8.0, (0, 1): 1.0, (0, 2): 0.0}
# F at (3, 5).
SHARED = {"add": -2.5, "overwrite": 0.5}
by_collisions = pytest.mark.parametrize("collisions", SHARED)


@by_collisions
def test_components_at_one_location_add_up_or_the_last_is_left(collisions):
    components = state(PLACES, COEFFICIENTS, TRUTH, Interpretation(collisions=collisions))
    f = torch.zeros(SIZE, SIZE, dtype=torch.float64)
    f[7, 7], f[3, 5] = 2.0, SHARED[collisions]
    for (row, column), value in TRUTH.items():
        f[row, column] -= value
    # All numbers are multiples of 1/4, of which nothing is rounded.
    assert torch.equal(components.gradient()[0], f.flatten())
    assert components.own_gradient()[0].tolist() == [f[3, 5], 2.0, f[3, 5], f[3, 5]]
    start = sum(value**2 for value in TRUTH.values())
    assert float(components.relative_loss()[0]) == float(f.square().sum()) / start


@by_collisions
def test_all_at_one_location_learn_alike(collisions):
    components = state(
        PLACES, COEFFICIENTS, TRUTH, Interpretation(collisions=collisions), Rates(0.5)
    )
    components.descend()
    step = 0.5 * (SHARED[collisions] - 0.25)
    assert components.coefficients[0].tolist() == [1.0 - step, 1.0, -4.0 - step, 0.5 - step]


# --- phases ---


@pytest.mark.parametrize(
    ("interpretation", "phase", "end"),
    [("default", 10, 80), ("half-period", 5, 80), ("never-frozen", 10, 160)],
)
def test_locations_move_in_their_phases_and_components_at_the_end_of_periods(
    interpretation, phase, end
):
    start = state([(1, 2)], [1.0], {(3, 5): 1.0}, find_interpretation(interpretation))
    for search, first in (("central", phase), ("swap-raw", 2 * phase - 1)):
        search_of_start, moved = (
            find_search(search).make(start, lambda count: torch.ones(1, count)),
            [],
        )
        search_of_start.move = lambda progress, moved=moved: moved.append(round(progress * end))
        for _ in simulation.advance(search_of_start, 160, start.interpretation.moving_steps(160)):
            pass
        assert moved == [n for n in range(end) if n % (2 * phase) >= first]
