"""The split of a total among matrices: against every split there is, and its bounds."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loca_theory.checkpoints.sizing import sizes
from loca_theory.checkpoints.sizing.offers import EnergyProfile
from loca_theory.checkpoints.statistics.energy_profile import component_counts, component_energies
from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms.matrices import dct_matrix

# Integer energies: sums are exact, so that optima can be compared without a tolerance.
ENERGIES = st.lists(st.integers(0, 20), min_size=1, max_size=4)


def profile(name, energies, cost):
    """A profile whose units retain these energies, largest first."""
    retained = np.cumsum(sorted(map(float, energies), reverse=True))
    units = np.arange(1, len(energies) + 1)
    return EnergyProfile(name, "", units, retained, cost)


class Found:
    """A split, and what is made of its sizes."""

    def __init__(self, split):
        self.matrices, self.bound = split.matrices, split.bound
        self.equal_retained = split.equal_retained
        self.sizes = {one.profile.name: one.size for one in split.matrices}
        self.uniform_sizes = [one.uniform_size for one in split.matrices]
        self.spent, self.uniform_spent = self._cost("size"), self._cost("uniform_size")
        energy = sum(one.profile.energy for one in split.matrices)
        self.energy, self.uniform_energy = self._energy("size"), self._energy("uniform_size")
        self.retained, self.uniform_retained = self.energy / energy, self.uniform_energy / energy

    def _cost(self, size):
        return sum(one.profile.cost_of(getattr(one, size)) for one in self.matrices)

    def _energy(self, size):
        return sum(
            one.profile.fraction(getattr(one, size)) * one.profile.energy for one in self.matrices
        )


def allocate(profiles, total=None, **asked):
    several = [[one] if isinstance(one, EnergyProfile) else one for one in profiles]
    return Found(sizes.allocate(several, total, **asked))


def splits(profiles, floor=0, cap=99):
    """Every split that respects floor and cap: its cost and the energy that it retains."""
    ranges = []
    for one in profiles:
        most = min(int(one.units[-1]), cap)
        ranges.append(range(min(floor, most), most + 1))
    for chosen in product(*ranges):
        cost = sum(size * one.cost for size, one in zip(chosen, profiles, strict=True))
        energy = sum(
            one.retained[size - 1] if size else 0
            for size, one in zip(chosen, profiles, strict=True)
        )
        yield cost, float(energy)


def best(profiles, total, **limits):
    return max(energy for cost, energy in splits(profiles, **limits) if cost <= total)


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
    assert found.energy == pytest.approx(best(profiles, total, **limits), rel=1e-12)
    assert found.spent <= total


@given(problems(equal_costs=False))
@settings(max_examples=150, deadline=None)
def test_the_best_of_all_splits_lies_within_the_gap_if_units_cost_more_or_less(problem):
    profiles, total, limits = problem
    found = allocate(profiles, total, **limits)
    optimum = best(profiles, total, **limits)
    rounding = 1e-9 * sum(one.energy for one in profiles)
    bound = found.bound * sum(one.energy for one in profiles)
    assert found.energy <= optimum + rounding <= bound + 2 * rounding
    # Dantzig: what the relaxation has more is less than the unit that no longer fits.
    assert bound - found.energy <= max(one.retained[0] for one in profiles) + rounding
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
    dear = profile("dear", [4.0], 400)
    cheap = profile("cheap", [1.0], 64)
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
    assert found.spent == min(enough)
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
    assert found.uniform_sizes == common(max(fitting))
    assert found.uniform_spent == np.dot(common(max(fitting)), costs)


def test_a_summary_of_a_large_spectrum_is_a_close_lower_bound():
    matrix = torch.randn(300, 300, generator=torch.Generator().manual_seed(0))
    units, retained = component_energies(matrix)
    spectrum = dct_matrix(300) @ matrix.double() @ dct_matrix(300).T
    exact = np.cumsum(np.sort(spectrum.square().numpy(), axis=None)[::-1])
    assert units[-1] == matrix.numel()
    assert len(units) < 350
    counts = np.arange(1, matrix.numel() + 1)
    summary = np.interp(counts, np.append(0, units), np.append(0, retained))
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
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_is_said(arguments, message):
    profiles = [profile("a", [3, 2], 3), profile("b", [2], 4)]
    with pytest.raises(InvalidArgumentError, match=message):
        allocate(profiles, **arguments)


@given(problems(equal_costs=False), problems(equal_costs=False))
@settings(max_examples=100, deadline=None)
def test_the_choice_of_methods_is_best_up_to_one_unit(one, other):
    """Against every choice of one of two profiles for each matrix, and every split."""
    # Two methods describe the same matrix, so its energy is the same.
    pairs = [
        (replace(a, retained=a.retained * b.energy), replace(b, retained=b.retained * a.energy))
        for a, b in zip(one[0], other[0], strict=False)
    ]
    total = one[1] + max(each.cost for several in pairs for each in several)
    optimum = max(best(choice, total) for choice in map(list, product(*pairs)))
    found = allocate(pairs, total)
    largest = max(float(each.retained[0]) for several in pairs for each in several)
    # The relaxation has one matrix that is not at a vertex.
    assert optimum - 2 * largest <= found.energy <= optimum * (1 + 1e-12)
    assert optimum <= (found.bound + 1e-9) * sum(each.energy for each, _ in pairs)


def test_each_method_is_chosen_where_it_is_best():
    steep = replace(profile("a", [7, 4, 1, 1], 4), method="steep")
    same = EnergyProfile("a", "same", np.array([1, 2, 3, 4, 999]), np.array([1.0, 2, 3, 4, 13]), 1)
    flat = [profile("b", [3] * 8, 1), profile("b", [8, 8, 8], 9)]
    for size in ({"total": 16}, {"energy": 0.93}):
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
