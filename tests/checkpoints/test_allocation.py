"""The split of a total among matrices: against every split there is, and its bounds."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loca_theory.checkpoints.sizing import sizes
from loca_theory.checkpoints.sizing.profiles import EnergyProfile, largest_energies, unit_counts
from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms import dct2
from loca_theory.transforms.matrices import dct_matrix


@dataclass(frozen=True)
class Spectrum:
    """A matrix whose units retain these energies, largest first."""

    name: str
    energies: list
    cost: int
    entry_cost: int = 0
    method: str = ""

    @property
    def retained(self):
        return np.cumsum(sorted(map(float, self.energies), reverse=True))

    @property
    def whole(self):
        return float(self.retained[-1])

    def profile(self, **limits):
        units = np.arange(1, len(self.energies) + 1)
        costs = (self.cost, self.entry_cost)
        return EnergyProfile(self.name, self.method, units, self.retained, *costs, **limits)


class Found:
    """A split, and what is made of its sizes."""

    def __init__(self, split):
        self.matrices, self.bound = split.matrices, split.bound
        self.equal_retained = split.equal_retained
        self.sizes = {one.profile.name: one.size for one in split.matrices}
        self.uniform_sizes = [one.uniform_size for one in split.matrices]
        self.spent, self.uniform_spent = self._cost("size"), self._cost("uniform_size")
        whole = sum(one.profile.energy for one in split.matrices)
        self.energy, self.uniform_energy = self._energy("size"), self._energy("uniform_size")
        self.retained, self.uniform_retained = self.energy / whole, self.uniform_energy / whole

    def _cost(self, size):
        return sum(one.profile.cost_of(getattr(one, size)) for one in self.matrices)

    def _energy(self, size):
        return sum(float(one.profile.at(getattr(one, size))) for one in self.matrices)


def allocate(spectra, total=None, energy=None, **limits):
    several = [[one] if isinstance(one, Spectrum) else one for one in spectra]
    profiles = [[one.profile(**limits) for one in own] for own in several]
    return Found(sizes.allocate(profiles, total, energy=energy))


def splits(spectra, floor=0, cap=99):
    """Every split that respects floor and cap: its cost and the energy that it retains."""
    ranges = []
    for one in spectra:
        most = min(len(one.energies), cap)
        ranges.append(range(min(floor, most), most + 1))
    for chosen in product(*ranges):
        pairs = list(zip(chosen, spectra, strict=True))
        energy = sum(one.retained[size - 1] if size else 0 for size, one in pairs)
        yield sum(size * one.cost for size, one in pairs), float(energy)


def best(spectra, total, **limits):
    return max(energy for cost, energy in splits(spectra, **limits) if cost <= total)


@st.composite
def problems(draw, equal_costs):
    # Integer energies: sums are exact, so that optima can be compared without a tolerance.
    energies = st.lists(st.integers(0, 20), min_size=1, max_size=4).filter(any)
    common = draw(st.integers(1, 5))
    spectra = [
        Spectrum(str(i), one, common if equal_costs else draw(st.integers(1, 7)))
        for i, one in enumerate(draw(st.lists(energies, min_size=1, max_size=4)))
    ]
    floor, cap = draw(st.integers(0, 1)), draw(st.integers(1, 4))
    least = sum(one.cost for one in spectra) if floor else min(one.cost for one in spectra)
    return spectra, least + draw(st.integers(0, 40)), {"floor": floor, "cap": cap}


@given(problems(equal_costs=True))
@settings(max_examples=150, deadline=None)
def test_it_is_the_best_of_all_splits_if_units_cost_the_same(problem):
    spectra, total, limits = problem
    found = allocate(spectra, total, **limits)
    assert found.energy == pytest.approx(best(spectra, total, **limits), rel=1e-12)
    assert found.spent <= total


@given(problems(equal_costs=False))
@settings(max_examples=150, deadline=None)
def test_the_best_of_all_splits_lies_within_the_gap_if_units_cost_more_or_less(problem):
    spectra, total, limits = problem
    found = allocate(spectra, total, **limits)
    optimum = best(spectra, total, **limits)
    whole = sum(one.whole for one in spectra)
    rounding = 1e-9 * whole
    bound = found.bound * whole
    assert found.energy <= optimum + rounding <= bound + 2 * rounding
    # Dantzig: what the relaxation has more is less than the unit that no longer fits.
    assert bound - found.energy <= max(one.retained[0] for one in spectra) + rounding
    assert found.spent <= total
    for one, spectrum in zip(found.matrices, spectra, strict=True):
        most = min(len(spectrum.energies), limits["cap"])
        assert min(limits["floor"], most) <= one.size <= most


@given(problems(equal_costs=False))
@settings(max_examples=100, deadline=None)
def test_the_uniform_split_is_the_largest_common_size_and_never_better(problem):
    spectra, total, limits = problem
    found = allocate(spectra, total, **limits)

    def common(size):
        low, high = limits["floor"], limits["cap"]
        lengths = [len(one.energies) for one in spectra]
        return [int(np.clip(size, min(low, n), min(high, n))) for n in lengths]

    costs = [one.cost for one in spectra]
    fitting = [size for size in range(5) if np.dot(common(size), costs) <= total]
    assert found.uniform_sizes == common(max(fitting))
    assert found.uniform_spent == np.dot(common(max(fitting)), costs)
    assert found.uniform_retained - 1e-12 <= found.equal_retained <= found.retained + 1e-12


@pytest.mark.parametrize("equal_costs", [True, False])
@given(st.data(), st.floats(0.01, 1))
@settings(max_examples=100, deadline=None)
def test_the_smallest_total_that_retains_a_fraction(equal_costs, data, fraction):
    """With unequal costs, less than a unit more."""
    spectra, _, limits = data.draw(problems(equal_costs))
    wanted = (fraction - 1e-9) * sum(one.whole for one in spectra)
    enough = [cost for cost, energy in splits(spectra, **limits) if energy >= wanted]
    if not enough:
        with pytest.raises(InvalidArgumentError, match=r"the largest retain 0\.\d+; ask for less"):
            allocate(spectra, energy=fraction, **limits)
        return
    found = allocate(spectra, energy=fraction, **limits)
    assert found.retained >= fraction - 1e-9
    more = 1 if equal_costs else max(one.cost for one in spectra)
    assert min(enough) <= found.spent < min(enough) + more


@given(problems(equal_costs=False), problems(equal_costs=False))
@settings(max_examples=100, deadline=None)
def test_the_choice_of_methods_is_best_up_to_one_unit(one, other):
    """Against every choice of one of two profiles for each matrix, and every split."""
    # Two methods describe the same matrix, so its energy is the same.
    pairs = [
        [Spectrum(a.name, [n * energy for n in each.energies], each.cost) for each, energy in both]
        for a, b in zip(one[0], other[0], strict=False)
        for both in [((a, b.whole), (b, a.whole))]
    ]
    total = one[1] + max(each.cost for several in pairs for each in several)
    optimum = max(best(choice, total) for choice in map(list, product(*pairs)))
    found = allocate(pairs, total)
    largest = max(float(each.retained[0]) for several in pairs for each in several)
    # The relaxation has one matrix that is not at a vertex.
    assert optimum - 2 * largest <= found.energy <= optimum * (1 + 1e-12)
    assert optimum <= (found.bound + 1e-9) * sum(each.whole for each, _ in pairs)


def test_each_method_is_chosen_where_it_is_best():
    steep = Spectrum("a", [7, 4, 1, 1], 4, method="steep")
    even = Spectrum("a", [1] * 13, 1, method="even")
    flat = [Spectrum("b", [3] * 8, 1, method="even"), Spectrum("b", [8, 8, 8], 9)]
    for size in ({"total": 16}, {"energy": 0.93}):
        for offers in ([steep, even], [even, steep]):
            found = allocate([offers, flat], **size)
            assert [one.profile.method for one in found.matrices] == ["steep", "even"]


def test_a_cheap_unit_does_not_keep_an_expensive_one_out_that_gains_more():
    """The cheap one gains more per number: 1/64 against 4/400."""
    spectra = [Spectrum("dear", [4], 400), Spectrum("cheap", [1], 64)]
    found = [tuple(allocate(spectra, total).sizes.values()) for total in (400, 399, 464)]
    assert found == [(1, 0), (0, 1), (1, 1)]


def test_units_without_energy_are_not_bought():
    found = allocate([Spectrum("a", [3, 0, 0], 2), Spectrum("b", [1, 0], 2)], 100)
    assert found.sizes == {"a": 1, "b": 1}
    assert (found.spent, found.retained, found.bound) == (4, 1.0, 1.0)


def test_what_any_size_costs_besides_its_units_counts_once():
    spectra = [Spectrum("a", [8, 4], 2, entry_cost=3), Spectrum("b", [6, 5], 2, entry_cost=3)]
    found = [tuple(allocate(spectra, total).sizes.values()) for total in (7, 9, 10, 14)]
    assert found == [(2, 0), (2, 0), (1, 1), (2, 2)]
    split = allocate(spectra, 13)
    assert (split.spent, split.uniform_spent) == (12, 10)
    with pytest.raises(InvalidArgumentError, match="a single unit costs 5"):
        allocate(spectra, 4)


BAD = {
    "floors": ({"total": 6, "floor": 1}, "a total of 6 is too small: 1 of every matrix costs 7"),
    "a unit": ({"total": 2}, "a total of 2 is too small: a single unit costs 3; .* at least 3"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_is_said(arguments, message):
    with pytest.raises(InvalidArgumentError, match=message):
        allocate([Spectrum("a", [3, 2], 3), Spectrum("b", [2], 4)], **arguments)


def test_a_summary_of_a_large_spectrum_is_a_close_lower_bound():
    matrix = torch.randn(300, 300, generator=torch.Generator().manual_seed(0))
    units, retained = largest_energies(dct2(matrix).square())
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
    counts = unit_counts(most)
    assert (counts[0], counts[-1]) == (1, most)
    assert (np.diff(counts) >= 1).all()
    assert (counts[1:] <= np.ceil(counts[:-1] * 1.03) + 1).all()
