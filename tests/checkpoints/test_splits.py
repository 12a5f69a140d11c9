"""Sizes that share a total or retain a fraction: the split itself, in extractions and analyses."""

from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from loca_theory.checkpoints import analyze, extract
from loca_theory.checkpoints.form.forms import FORMS, LOCA, LORA
from loca_theory.checkpoints.form.layer import Layer
from loca_theory.checkpoints.form.profile import EnergyProfile, largest_energies, unit_counts
from loca_theory.checkpoints.sizes import split
from loca_theory.checkpoints.sizes.size import TotalSize
from loca_theory.errors import InvalidArgumentError
from loca_theory.increments import PrintedTest
from loca_theory.sweeps import Runner, runner, workers
from loca_theory.transforms import dct2
from loca_theory.transforms.matrices import dct_matrix
from tests.checkpoints import zoo
from tests.checkpoints.files import normal


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
    return split.allocate(
        [[spectrum.profile(**limits)] for spectrum in spectra], total, energy=energy
    )


def of(allocation, size="size"):
    """Cost and retained energy of a split."""
    rows = [(matrix.profile, getattr(matrix, size)) for matrix in allocation.matrices]
    costs, energies = zip(
        *((profile.cost_of(n), float(profile.at(n))) for profile, n in rows), strict=True
    )
    return sum(costs), sum(energies)


def splits(spectra, floor=0, cap=99):
    """Every split that respects floor and cap: its cost and the energy that it retains."""
    limits = [min(len(spectrum.energies), cap) for spectrum in spectra]
    for chosen in product(*(range(min(floor, limit), limit + 1) for limit in limits)):
        pairs = list(zip(chosen, spectra, strict=True))
        energy = sum(spectrum.retained[size - 1] if size else 0 for size, spectrum in pairs)
        yield sum(size * spectrum.cost for size, spectrum in pairs), float(energy)


@st.composite
def problems(draw):
    # Integer energies: sums are exact, so that optima can be compared without a tolerance.
    energies = st.lists(st.integers(0, 20), min_size=1, max_size=4).filter(any)
    common = draw(st.none() | st.integers(1, 5))
    spectra = [
        Spectrum(sums, common or draw(st.integers(1, 7)))
        for sums in draw(st.lists(energies, min_size=1, max_size=4))
    ]
    floor, cap = draw(st.integers(0, 1)), draw(st.integers(1, 4))
    cheapest = (
        sum(spectrum.cost for spectrum in spectra)
        if floor
        else min(spectrum.cost for spectrum in spectra)
    )
    return spectra, cheapest + draw(st.integers(0, 40)), {"floor": floor, "cap": cap}, bool(common)


@given(problems())
@settings(max_examples=250, deadline=None)
def test_it_is_the_best_of_all_splits_or_within_the_gap_if_units_cost_more_or_less(problem):
    spectra, total, limits, equal_costs = problem
    allocation = allocate(spectra, total, **limits)
    spent, energy = of(allocation)
    optimum = max(energy for cost, energy in splits(spectra, **limits) if cost <= total)
    total_energy = sum(spectrum.retained[-1] for spectrum in spectra)
    rounding, bound = 1e-9 * total_energy, allocation.bound * total_energy
    assert spent <= total
    assert energy <= optimum + rounding <= bound + 2 * rounding
    # Dantzig: the relaxation has more by less than the first unit that does not fit.
    assert bound - energy <= max(spectrum.retained[0] for spectrum in spectra) + rounding
    if equal_costs:
        assert energy == pytest.approx(optimum, rel=1e-12)
    limits_of_sizes = [min(len(spectrum.energies), limits["cap"]) for spectrum in spectra]
    for matrix, n in zip(allocation.matrices, limits_of_sizes, strict=True):
        assert min(limits["floor"], n) <= matrix.size <= n

    def common(size):
        return [min(max(size, limits["floor"]), n) for n in limits_of_sizes]

    costs = [spectrum.cost for spectrum in spectra]
    largest = max(size for size in range(5) if np.dot(common(size), costs) <= total)
    assert [matrix.uniform_size for matrix in allocation.matrices] == common(largest)
    uniform = of(allocation, "uniform_size")[1] / total_energy
    assert uniform - 1e-12 <= allocation.equal_retained <= energy / total_energy + 1e-12


@pytest.mark.parametrize(
    ("seed", "below", "smallest"), [(407, 0.001, 154), (2277, 0.001, 94), (550, 0.005, 46)]
)
def test_a_matrix_may_change_its_method_between_two_prices(seed, below, smallest):
    """At one price for all it was 0.6% of the energy less, or cost twice as much."""
    random = np.random.default_rng(seed)
    several = []
    for _ in range(6):
        energy, profiles = 10 ** random.normal(), []
        for method, largest, cost, steepest in (("lora", 8, 40, 2.0), ("loca", 150, 2, 1.2)):
            units = np.arange(1, largest + 1)
            retained = np.cumsum(units ** -random.uniform(0, steepest))
            retained *= energy / retained[-1]
            profiles.append(EnergyProfile("", method, units, retained, cost))
        several.append(profiles)
    total_energy = sum(profiles[0].energy for profiles in several)
    allocation = split.allocate(several, 200)
    assert allocation.bound - below < of(allocation)[1] / total_energy <= allocation.bound
    assert of(split.allocate(several, energy=0.5))[0] == smallest


@given(problems(), st.floats(0.01, 1))
@settings(max_examples=150, deadline=None)
def test_the_smallest_total_that_retains_a_fraction(problem, fraction):
    """With unequal costs, less than a unit more."""
    spectra, _, limits, equal_costs = problem
    target = (fraction - 1e-9) * sum(spectrum.retained[-1] for spectrum in spectra)
    enough = [cost for cost, energy in splits(spectra, **limits) if energy >= target]
    if not enough:
        with pytest.raises(InvalidArgumentError, match=r"the largest retain 0\.\d+; ask for less"):
            allocate(spectra, energy=fraction, **limits)
        return
    spent, energy = of(allocate(spectra, energy=fraction, **limits))
    assert energy >= target - 1e-9
    tolerance = 1 if equal_costs else max(spectrum.cost for spectrum in spectra)
    assert min(enough) <= spent < min(enough) + tolerance


# A cheap unit gains more per number than an expensive one, and not more; units without energy;
# and a cost that any size has besides its units.
CHEAP = [Spectrum([4], 400), Spectrum([1], 64)]
EMPTY = [Spectrum([3, 0, 0], 2), Spectrum([1, 0], 2)]
ENTRY = [Spectrum([8, 4], 2, entry_cost=3), Spectrum([6, 5], 2, entry_cost=3)]


@pytest.mark.parametrize(
    ("spectra", "total", "expected"),
    [
        (CHEAP, 400, (1, 0)),
        (CHEAP, 399, (0, 1)),
        (CHEAP, 464, (1, 1)),
        (EMPTY, 100, (1, 1)),
        (ENTRY, 7, (2, 0)),
        (ENTRY, 9, (2, 0)),
        (ENTRY, 10, (1, 1)),
        (ENTRY, 14, (2, 2)),
    ],
)
def test_what_is_bought_for_a_total(spectra, total, expected):
    assert tuple(matrix.size for matrix in allocate(spectra, total).matrices) == expected


@pytest.mark.parametrize(("p", "q"), [(300, 300), (7, 9), (5, 13), (3, 22)])
def test_a_summary_of_a_spectrum_is_a_close_lower_bound_up_to_the_whole_matrix(p, q):
    matrix = normal(p, q)
    units, retained = unit_counts(p * q), largest_energies(dct2(matrix).square())
    spectrum = dct_matrix(p) @ matrix.double() @ dct_matrix(q).T
    exact = np.cumsum(np.sort(spectrum.square().numpy(), axis=None)[::-1])
    counts = np.arange(1, p * q + 1)
    summary = np.interp(counts, np.append(0, units), np.append(0, retained))
    assert (units[0], units[-1]) == (1, p * q)
    assert len(units) < 350
    # Between counts c and 1.03 c a concave function exceeds its chord by at most 1.5% of E(c).
    assert (summary <= exact * (1 + 1e-6)).all()
    assert (summary >= exact * (1 - 0.015)).all()


SIZES = {
    "200k": (200_000, False),
    "1.5M": (1_500_000, False),
    "2g": (2 * 10**9, False),
    "300B": (300, True),
    "500KB": (500_000, True),
    "4 MB": (4_000_000, True),
    "0.5KiB": (512, True),
    200_000: (200_000, False),
    TotalSize(7, in_bytes=True): (7, True),
}


@pytest.mark.parametrize(("text", "expected"), SIZES.items(), ids=map(str, SIZES))
def test_numbers_and_bytes_are_read(text, expected):
    total = TotalSize.parse(text)
    assert (total.size, total.in_bytes) == expected


def test_a_location_costs_bytes_but_is_not_trained():
    """With its location, and the shape of each matrix."""
    layer = Layer("a.weight", "a.weight", (3, 4))
    assert (LORA.costs(layer, None), LOCA.costs(layer, None)) == ((7, 0), (1, 0))
    assert (LORA.costs(layer, 2), LOCA.costs(layer, 2)) == ((14, 0), (18, 16))


ASKED = {"ranks": (2,), "device": "cpu", "printed": PrintedTest(copies=10, samples=5000)}
# Sides of each layer, and how much it changes.
LAYERS = {
    "a.weight": (24, 20, 3.0),
    "b.weight": (40, 20, 0.3),
    "c.weight": (20, 20, 1.0),
    "d.weight": (30, 36, 1.0),
}


def weights():
    base, tuned = {}, {}
    for name, (p, q, scale) in LAYERS.items():
        change = normal(p, q, seed=1)
        change[:, 0] *= 5
        base[name] = normal(p, q)
        tuned[name] = base[name] + scale * change
    return base, tuned


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"{name}.safetensors" for name in ("base", "tuned")]
    for path, content in zip(paths, weights(), strict=True):
        save_file(content, path)
    return paths


@pytest.mark.parametrize("method", ["lora", "loca", "best"])
def test_a_fraction_of_the_energy_is_retained_and_little_more(method):
    sizes = []
    for fraction in (0.5, 0.9):
        extraction = extract(*weights(), method, energy=fraction)
        assert fraction - 1e-5 < 1 - extraction.error
        # One coefficient more holds little; a singular value may hold half of the energy.
        assert method != "loca" or 1 - extraction.error < fraction + 0.02
        sizes.append(sum(row.numbers for row in extraction.matrices))
    assert sizes[0] < sizes[1]


def test_rounding_counts_for_every_split():
    """Coefficients of about 1e-7 lose a few percent of their energy in float16."""
    base, tuned = weights()
    tuned = {name: 4e-8 * (tensor - base[name]) for name, tensor in tuned.items()}
    base = {name: torch.zeros_like(tensor) for name, tensor in base.items()}
    exact = extract(base, tuned, allocate=300)
    extraction = extract(base, tuned, allocate=300, dtype="float16")
    assert extraction.error > exact.error + 1e-3
    for name in ("equal_error", "uniform_error"):
        lost = (1 - getattr(extraction, name)) / (1 - getattr(exact, name))
        assert lost == pytest.approx((1 - extraction.error) / (1 - exact.error), rel=1e-3)
    assert extraction.error <= extraction.equal_error + 1e-6 <= extraction.uniform_error + 2e-6
    enough = extract(base, tuned, energy=0.5, dtype="float16")
    assert 0.5 - 1e-5 <= 1 - enough.error < 0.51


def test_floors_and_caps_limit_every_matrix():
    extraction = extract(*weights(), "lora", allocate=600, floor=1, cap=5)
    ranks = {row.name: row.r for row in extraction.matrices}
    assert min(ranks.values()) == 1
    assert ranks["a.weight"] == 5
    with pytest.raises(InvalidArgumentError, match=r"1 of every matrix costs 210; .* at least 210"):
        extract(*weights(), "lora", allocate=209, floor=1)


@pytest.mark.parametrize("method", FORMS)
def test_a_size_costs_the_numbers_and_bytes_that_are_stored(method):
    form, extraction = FORMS[method], extract(*weights(), method, rank=2, dtype="bfloat16")
    stored = extraction.state_dict()
    for row in extraction.matrices:
        layer, size = Layer(row.name, row.name, row.shape), row.r or row.components
        tensors = [tensor for name, tensor in stored.items() if f".{layer.module}." in name]
        numbers = sum(tensor.numel() for tensor in tensors if tensor.is_floating_point())
        assert numbers == form.numbers(layer, size) == row.numbers
        unit, besides = form.costs(layer, 2)
        assert sum(tensor.nbytes for tensor in tensors) == unit * size + besides


def test_checkpoints_in_memory_stay_in_this_process(monkeypatch):
    monkeypatch.setattr(runner, "on_workers", None)
    monkeypatch.setattr(workers, "_WORKER_START_S", 0.0)
    extract(*weights(), "lora", rank=2, runner=Runner(jobs=2))


def test_stored_profiles_are_used_for_the_same_increments_only(files, tmp_path):
    def stored():
        extraction = extract(
            *files, "lora", allocate=500, runner=Runner(tmp_path / "points", jobs=1)
        )
        return extraction.matrices[0].energy, len(
            list(tmp_path.glob("points/energy-profile@*.json"))
        )

    energy, count = stored()
    assert count == 4
    base, tuned = weights()
    changed = base["a.weight"] + 2 * (tuned["a.weight"] - base["a.weight"])
    save_file({**tuned, "a.weight": changed}, files[1])
    assert stored() == (pytest.approx(4 * energy, rel=1e-4), 5)


@pytest.mark.parametrize("name", ["GPT-2", "ViT", "DeepSeek-V3"])
@pytest.mark.parametrize(("letter", "method"), [("LoRA", "lora"), ("LoCA", "loca")])
def test_layers_and_sizes_are_those_of_an_extraction(tmp_path, name, letter, method):
    """Also the transposed ones, convolutions, those too small to analyse, and stacks of experts."""
    pair = zoo.pair(name, tmp_path)
    analysis = analyze(*pair, allocate=9000, **ASKED)
    rows = {row.name: row for row in analysis.allocation if row.method == letter}
    count, of_all = len(rows), len({row.name for row in analysis.allocation})
    said = f"{count} of {of_all} layers, which" if count < of_all else f"{count} layers"
    assert f"With 9,000 trainable numbers for {said}" in " ".join(analysis.findings)
    other = extract(*pair, method, allocate=9000)
    theirs = {matrix.name: matrix for matrix in other.matrices}
    assert theirs.keys() == rows.keys()
    energies = {row.name: row.energy for row in analysis.allocation}
    assert sum(energies.values()) == pytest.approx(1)
    # Of many coefficients, an analysis has a lower bound.
    close = partial(pytest.approx, abs=3e-3 if letter == "LoCA" else 1e-5)
    for key, matrix in theirs.items():
        row = rows[key]
        assert abs(row.size - (matrix.r or matrix.components or 0)) <= (letter == "LoCA")
        assert row.retained == close(1 - matrix.error)
        assert row.uniform_retained == close(1 - matrix.uniform_error)
        errors = other.equal_error, other.least_error
        assert (1 - row.equal_retained, 1 - row.bound) == close(errors)


def test_a_total_without_a_rank_or_a_layer_is_said():
    base, tuned = {"fc.weight": np.ones((20, 30))}, {"fc.weight": np.eye(20, 30)}
    assert {row.method for row in analyze(base, tuned, allocate=50, ranks=1).allocation} == {
        "LoRA",
        "LoCA",
    }
    poor = analyze(base, tuned, allocate=49, ranks=1)
    assert {row.method for row in poor.allocation} == {"LoCA"}
    assert "49 trainable numbers do not pay for one rank of LoRA" in poor.findings[-2]
    assert poor.verdict.startswith(
        "With 49 trainable numbers, LoCA (best DCT coefficients) retains "
    )
