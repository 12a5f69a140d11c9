"""The split of a total among matrices: against every split there is, and its bounds."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loca_theory.checkpoints.sizing.sizes import allocate
from loca_theory.checkpoints.statistics.energy_profile import EnergyProfile, component_counts
from loca_theory.errors import InvalidArgumentError

# Integer energies: sums are exact, so that optima can be compared without a tolerance.
ENERGIES = st.lists(st.integers(0, 20), min_size=1, max_size=4)


def profile(name, energies, cost):
    """A profile whose units retain these energies, largest first."""
    retained = np.cumsum(sorted(map(float, energies), reverse=True))
    units = np.arange(1, len(energies) + 1)
    return EnergyProfile(name, cost, units, retained, float(sum(energies)))


def splits(profiles, floor=0, cap=99):
    """Every split that respects floor and cap: its cost and the energy that it retains."""
    ranges = []
    for one in profiles:
        most = min(int(one.units[-1]), cap)
        ranges.append(range(min(floor, most), most + 1))
    for sizes in product(*ranges):
        cost = sum(size * one.cost for size, one in zip(sizes, profiles, strict=True))
        energy = sum(
            one.retained[size - 1] if size else 0 for size, one in zip(sizes, profiles, strict=True)
        )
        yield cost, float(energy)


def best(profiles, total, **limits):
    return max(energy for cost, energy in splits(profiles, **limits) if cost <= total)


def energy_of(found):
    return sum(one.retained * one.profile.energy for one in found.matrices)


@st.composite
def problems(draw, equal_costs):
    spectra = draw(st.lists(ENERGIES.filter(any), min_size=1, max_size=4))
    common = draw(st.integers(1, 5))
    profiles = [
        profile(str(i), one, common if equal_costs else draw(st.integers(1, 7)))
        for i, one in enumerate(spectra)
    ]
    floor, cap = draw(st.integers(0, 1)), draw(st.integers(1, 4))
    least = sum(one.cost for one in profiles) if floor else min(one.cost for one in profiles)
    total = least + draw(st.integers(0, 40))
    return profiles, total, {"floor": floor, "cap": cap}


@given(problems(equal_costs=True))
@settings(max_examples=150, deadline=None)
def test_it_is_the_best_of_all_splits_if_units_cost_the_same(problem):
    profiles, total, limits = problem
    found = allocate(profiles, total, **limits)
    assert energy_of(found) == pytest.approx(best(profiles, total, **limits), rel=1e-12)
    assert found.spent <= total


@given(problems(equal_costs=False))
@settings(max_examples=150, deadline=None)
def test_the_best_of_all_splits_lies_within_the_gap_if_units_cost_more_or_less(problem):
    profiles, total, limits = problem
    found = allocate(profiles, total, **limits)
    optimum = best(profiles, total, **limits)
    rounding = 1e-9 * sum(one.energy for one in profiles)
    bound = found.bound * sum(one.energy for one in profiles)
    assert energy_of(found) <= optimum + rounding <= bound + 2 * rounding
    # Dantzig: what the relaxation has more is less than the unit that no longer fits.
    assert bound - energy_of(found) <= max(one.retained[0] for one in profiles) + rounding
    assert found.spent <= total
    for one, given_ in zip(found.matrices, profiles, strict=True):
        most = min(int(given_.units[-1]), limits["cap"])
        assert min(limits["floor"], most) <= one.size <= most


@given(problems(equal_costs=False))
@settings(max_examples=150, deadline=None)
def test_no_split_is_worse_than_the_same_size_for_all(problem):
    profiles, total, limits = problem
    found = allocate(profiles, total, **limits)
    assert found.uniform_retained - 1e-12 <= found.equal_retained <= found.retained + 1e-12


def test_a_cheap_unit_does_not_keep_an_expensive_one_out_that_gains_more():
    dear = EnergyProfile.of_ranks("dear", [4.0], (200, 200))
    cheap = EnergyProfile.of_ranks("cheap", [1.0], (32, 32))
    # The cheap one gains more per number: 1/64 against 4/400.
    assert allocate([dear, cheap], 400).sizes == {"dear": 1, "cheap": 0}
    assert allocate([dear, cheap], 399).sizes == {"dear": 0, "cheap": 1}
    assert allocate([dear, cheap], 464).sizes == {"dear": 1, "cheap": 1}


@given(problems(equal_costs=True), st.floats(0.01, 1))
@settings(max_examples=100, deadline=None)
def test_the_smallest_total_that_retains_a_fraction(problem, fraction):
    profiles, _, limits = problem
    energy = sum(one.energy for one in profiles)
    enough = [c for c, e in splits(profiles, **limits) if e >= fraction * energy - 1e-9 * energy]
    if not enough:
        with pytest.raises(InvalidArgumentError, match=r"the largest retain 0\.\d+; ask for less"):
            allocate(profiles, energy=fraction, **limits)
        return
    found = allocate(profiles, energy=fraction, **limits)
    assert found.spent == found.total == min(enough)
    assert found.retained >= fraction - 1e-9


@given(problems(equal_costs=False), st.floats(0.01, 1))
@settings(max_examples=100, deadline=None)
def test_unequal_costs_need_less_than_a_unit_more(problem, fraction):
    profiles, _, limits = problem
    energy = sum(one.energy for one in profiles)
    enough = [c for c, e in splits(profiles, **limits) if e >= fraction * energy - 1e-9 * energy]
    if enough:
        found = allocate(profiles, energy=fraction, **limits)
        assert found.retained >= fraction - 1e-9
        assert min(enough) <= found.spent < min(enough) + max(one.cost for one in profiles)


@given(problems(equal_costs=False))
@settings(max_examples=50, deadline=None)
def test_the_uniform_split_is_the_largest_common_size(problem):
    profiles, total, limits = problem
    found = allocate(profiles, total, **limits)

    def common(size):
        low, high = limits["floor"], limits["cap"]
        return [int(np.clip(size, min(low, n), min(high, n))) for n in lengths]

    lengths = [int(one.units[-1]) for one in profiles]
    costs = [one.cost for one in profiles]
    fitting = [size for size in range(5) if np.dot(common(size), costs) <= total]
    assert [one.uniform_size for one in found.matrices] == common(max(fitting))
    assert found.uniform_spent == np.dot(common(max(fitting)), costs)


def test_ranks_cost_p_plus_q_numbers_each():
    narrow = EnergyProfile.of_ranks("narrow", [5.0, 1.0], (2, 3))
    wide = EnergyProfile.of_ranks("wide", [6.0, 5.5], (2, 8), cost=4)
    assert (narrow.cost, wide.cost) == (5, 40)
    # 5/5 a number for narrow's first rank, 6/40 and 5.5/40 for those of wide; then 1/5.
    assert allocate([narrow, wide], 50).sizes == {"narrow": 2, "wide": 1}
    assert allocate([narrow, wide], 84).sizes == {"narrow": 2, "wide": 1}
    assert allocate([narrow, wide], 90).sizes == {"narrow": 2, "wide": 2}


def test_a_summary_of_a_large_spectrum_is_a_close_lower_bound():
    squares = np.random.default_rng(0).standard_normal((300, 300)).astype(np.float32) ** 2
    one = EnergyProfile.of_components("a", squares)
    exact = np.cumsum(np.sort(squares.astype(np.float64), axis=None)[::-1])
    assert one.units[-1] == squares.size
    assert len(one.units) < 350
    counts = np.arange(1, squares.size + 1)
    summary = np.interp(counts, np.append(0, one.units), np.append(0, one.retained))
    # Between counts c and 1.03 c a concave function exceeds its chord by at most 1.5% of E(c).
    assert (summary <= exact * (1 + 1e-6)).all()
    assert (summary >= exact * (1 - 0.015)).all()


@pytest.mark.parametrize("most", [1, 63, 64, 65, 66, 1000, 4096**2])
def test_counts_reach_the_whole_matrix(most):
    counts = component_counts(most)
    assert (counts[0], counts[-1]) == (1, most)
    assert (np.diff(counts) >= 1).all()
    assert (counts[1:] <= np.ceil(counts[:-1] * 1.03) + 1).all()


def test_units_without_energy_are_not_bought():
    found = allocate([profile("a", [3, 0, 0], 2), profile("b", [1, 0], 2)], 100)
    assert found.sizes == {"a": 1, "b": 1}
    assert (found.spent, found.retained, found.bound) == (4, 1.0, 1.0)


BAD = {
    "floors": ({"total": 6, "floor": 1}, "a total of 6 is too small: 1 of every matrix costs 7"),
    "a unit": ({"total": 2}, "a total of 2 is too small: a single unit costs 3; .* at least 3"),
    "floor": ({"total": 9, "floor": -1}, "floor must be at least 0"),
    "cap": ({"total": 9, "floor": 2, "cap": 1}, "cap at least 1 and the floor, not 2 and 1"),
    "half a number": ({"total": 9.5}, "total must be a whole number"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_is_said(arguments, message):
    profiles = [profile("a", [3, 2], 3), profile("b", [2], 4)]
    with pytest.raises(InvalidArgumentError, match=message):
        allocate(profiles, **arguments)
    with pytest.raises(InvalidArgumentError, match="no matrix to allocate to"):
        allocate([], 5)
    with pytest.raises(InvalidArgumentError, match=r"fraction .* must be above 0 and at most 1"):
        allocate(profiles, energy=1.5)


WRONG = {
    "lengths": ([1, 2], [1.0], 1, "as many counts as energies"),
    "counts": ([2, 2], [1.0, 2.0], 1, "increasing counts from 1"),
    "cost": ([1], [1.0], 0, "positive cost"),
    "convex": ([1, 2], [1.0, 3.0], 1, "by less and less"),
    "decreasing": ([1, 2], [1.0, 0.5], 1, "by less and less"),
    "infinite": ([1], [np.inf], 1, "finite"),
    "more than all": ([1], [4.0], 1, "retains 4.0 of 3.0"),
}


@pytest.mark.parametrize(("units", "retained", "cost", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_profile_is_checked(units, retained, cost, message):
    with pytest.raises(InvalidArgumentError, match=f"profile of layer {message}|{message}"):
        EnergyProfile("layer", cost, np.array(units), np.array(retained), 3.0)


@given(problems(equal_costs=False), problems(equal_costs=False))
@settings(max_examples=100, deadline=None)
def test_the_choice_of_methods_is_best_up_to_one_unit(one, other):
    """Against every choice of one of two profiles for each matrix, and every split."""
    # Two methods describe the same matrix, so its energy is the same.
    pairs = [
        tuple(replace(each, energy=max(a.energy, b.energy)) for each in (a, b))
        for a, b in zip(one[0], other[0], strict=False)
    ]
    total = one[1] + max(each.cost for several in pairs for each in several)
    optimum = max(best(choice, total) for choice in map(list, product(*pairs)))
    found = allocate(pairs, total)
    largest = max(float(each.retained[0]) for several in pairs for each in several)
    # The relaxation has one matrix that is not at a vertex.
    assert optimum - 2 * largest <= energy_of(found) <= optimum
    assert optimum <= (found.bound + 1e-9) * sum(each.energy for each, _ in pairs)


def test_each_method_is_chosen_where_it_is_best():
    steep = replace(profile("a", [10, 1, 1, 1], 4), method="steep")
    same = EnergyProfile("a", 1, np.arange(1, 5), np.arange(1.0, 5), 13.0, "same")
    flat = [profile("b", [3] * 8, 1), profile("b", [8, 8, 8], 9)]
    for size in ({"total": 12}, {"energy": 0.8}):
        for offers in ([steep, same], [same, steep]):
            found = allocate([offers, flat], **size)
            assert [one.profile for one in found.matrices] == [steep, flat[0]]


def test_what_any_size_costs_besides_its_units_counts_once():
    one = replace(profile("a", [8, 4], 2), entry_cost=3)
    two = replace(profile("b", [6, 5], 2), entry_cost=3)
    assert [allocate([one, two], total).sizes for total in (7, 9, 10, 14)] == [
        {"a": 2, "b": 0}, {"a": 2, "b": 0}, {"a": 1, "b": 1}, {"a": 2, "b": 2},
    ]  # fmt: skip
    found = allocate([one, two], 13)
    assert (found.spent, found.uniform_spent) == (12, 10)
    with pytest.raises(InvalidArgumentError, match="a single unit costs 5"):
        allocate([one, two], 4)
