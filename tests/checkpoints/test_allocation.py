"""Totals as users write them, and their split: against every split there is, and its bounds."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loca_theory.checkpoints.sizing import sizes
from loca_theory.checkpoints.sizing.adapter_size import TotalSize
from loca_theory.checkpoints.sizing.profiles import EnergyProfile, largest_energies, unit_counts
from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms import dct2
from loca_theory.transforms.matrices import dct_matrix


@dataclass(frozen=True)
class Spectrum:
    """A matrix whose units retain these energies."""

    energies: list
    cost: int
    entry_cost: int = 0

    @property
    def retained(self):
        return np.cumsum(sorted(map(float, self.energies), reverse=True))

    def profile(self, **limits):
        units = np.arange(1, len(self.energies) + 1)
        return EnergyProfile("", "", units, self.retained, self.cost, self.entry_cost, **limits)


def allocate(spectra, total=None, energy=None, **limits):
    return sizes.allocate([[one.profile(**limits)] for one in spectra], total, energy=energy)


def of(split, size="size"):
    """What a split costs and retains."""
    rows = [(one.profile, getattr(one, size)) for one in split.matrices]
    costs, energies = zip(*((one.cost_of(n), float(one.at(n))) for one, n in rows), strict=True)
    return sum(costs), sum(energies)


def splits(spectra, floor=0, cap=99):
    """Every split that respects floor and cap: its cost and the energy that it retains."""
    most = [min(len(one.energies), cap) for one in spectra]
    for chosen in product(*(range(min(floor, one), one + 1) for one in most)):
        pairs = list(zip(chosen, spectra, strict=True))
        energy = sum(one.retained[size - 1] if size else 0 for size, one in pairs)
        yield sum(size * one.cost for size, one in pairs), float(energy)


@st.composite
def problems(draw):
    # Integer energies: sums are exact, so that optima can be compared without a tolerance.
    energies = st.lists(st.integers(0, 20), min_size=1, max_size=4).filter(any)
    common = draw(st.none() | st.integers(1, 5))
    spectra = [
        Spectrum(one, common or draw(st.integers(1, 7)))
        for one in draw(st.lists(energies, min_size=1, max_size=4))
    ]
    floor, cap = draw(st.integers(0, 1)), draw(st.integers(1, 4))
    least = sum(one.cost for one in spectra) if floor else min(one.cost for one in spectra)
    return spectra, least + draw(st.integers(0, 40)), {"floor": floor, "cap": cap}, bool(common)


@given(problems())
@settings(max_examples=250, deadline=None)
def test_it_is_the_best_of_all_splits_or_within_the_gap_if_units_cost_more_or_less(problem):
    spectra, total, limits, equal_costs = problem
    found = allocate(spectra, total, **limits)
    spent, energy = of(found)
    optimum = max(energy for cost, energy in splits(spectra, **limits) if cost <= total)
    whole = sum(one.retained[-1] for one in spectra)
    rounding, bound = 1e-9 * whole, found.bound * whole
    assert spent <= total
    assert energy <= optimum + rounding <= bound + 2 * rounding
    # Dantzig: what the relaxation has more is less than the unit that no longer fits.
    assert bound - energy <= max(one.retained[0] for one in spectra) + rounding
    if equal_costs:
        assert energy == pytest.approx(optimum, rel=1e-12)
    most = [min(len(one.energies), limits["cap"]) for one in spectra]
    for one, n in zip(found.matrices, most, strict=True):
        assert min(limits["floor"], n) <= one.size <= n

    def common(size):
        return [min(max(size, limits["floor"]), n) for n in most]

    costs = [one.cost for one in spectra]
    largest = max(size for size in range(5) if np.dot(common(size), costs) <= total)
    assert [one.uniform_size for one in found.matrices] == common(largest)
    uniform = of(found, "uniform_size")[1] / whole
    assert uniform - 1e-12 <= found.equal_retained <= energy / whole + 1e-12


@pytest.mark.parametrize(
    ("seed", "below", "least"), [(407, 0.001, 154), (2277, 0.001, 94), (550, 0.005, 46)]
)
def test_a_matrix_may_change_its_method_between_two_prices(seed, below, least):
    """At one price for all it was 0.6% of the energy less, or cost twice as much."""
    random = np.random.default_rng(seed)
    several = []
    for _ in range(6):
        energy, own = 10 ** random.normal(), []
        for method, most, cost, steepest in (("lora", 8, 40, 2.0), ("loca", 150, 2, 1.2)):
            units = np.arange(1, most + 1)
            retained = np.cumsum(units ** -random.uniform(0, steepest))
            retained *= energy / retained[-1]
            own.append(EnergyProfile("", method, units, retained, cost))
        several.append(own)
    whole = sum(own[0].energy for own in several)
    found = sizes.allocate(several, 200)
    assert found.bound - below < of(found)[1] / whole <= found.bound
    assert of(sizes.allocate(several, energy=0.5))[0] == least


@given(problems(), st.floats(0.01, 1))
@settings(max_examples=150, deadline=None)
def test_the_smallest_total_that_retains_a_fraction(problem, fraction):
    """With unequal costs, less than a unit more."""
    spectra, _, limits, equal_costs = problem
    wanted = (fraction - 1e-9) * sum(one.retained[-1] for one in spectra)
    enough = [cost for cost, energy in splits(spectra, **limits) if energy >= wanted]
    if not enough:
        with pytest.raises(InvalidArgumentError, match=r"the largest retain 0\.\d+; ask for less"):
            allocate(spectra, energy=fraction, **limits)
        return
    spent, energy = of(allocate(spectra, energy=fraction, **limits))
    assert energy >= wanted - 1e-9
    more = 1 if equal_costs else max(one.cost for one in spectra)
    assert min(enough) <= spent < min(enough) + more


# A cheap unit gains more per number than a dear one, and not more; units without energy;
# and what any size costs besides its units.
CHEAP = [Spectrum([4], 400), Spectrum([1], 64)]
EMPTY = [Spectrum([3, 0, 0], 2), Spectrum([1, 0], 2)]
ENTRY = [Spectrum([8, 4], 2, entry_cost=3), Spectrum([6, 5], 2, entry_cost=3)]


@pytest.mark.parametrize(
    ("spectra", "total", "expected"),
    [(CHEAP, 400, (1, 0)), (CHEAP, 399, (0, 1)), (CHEAP, 464, (1, 1)), (EMPTY, 100, (1, 1)),
     (ENTRY, 7, (2, 0)), (ENTRY, 9, (2, 0)), (ENTRY, 10, (1, 1)), (ENTRY, 14, (2, 2))],
)  # fmt: skip
def test_what_is_bought_for_a_total(spectra, total, expected):
    assert tuple(one.size for one in allocate(spectra, total).matrices) == expected


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


SIZES = {
    "200k": (200_000, False), "1.5M": (1_500_000, False), "2g": (2 * 10**9, False),
    "300B": (300, True), "500KB": (500_000, True), "4 MB": (4_000_000, True),
    "0.5KiB": (512, True), 200_000: (200_000, False), TotalSize(7, in_bytes=True): (7, True),
}  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), SIZES.items(), ids=map(str, SIZES))
def test_numbers_and_bytes_are_read(given, expected):
    found = TotalSize.parse(given)
    assert (found.amount, found.in_bytes) == expected


def test_a_location_costs_bytes_but_is_not_trained():
    numbers, size = TotalSize.parse(100), TotalSize.parse("100B")
    assert (numbers.costs("lora", (3, 4), 2), numbers.costs("loca", (3, 4), 2)) == ((7, 0), (1, 0))
    # With its location, and the shape of each matrix.
    assert (size.costs("lora", (3, 4), 2), size.costs("loca", (3, 4), 2)) == ((14, 0), (18, 16))
