"""Sizes that differ from matrix to matrix, and where the matrices are computed."""

import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from loca_theory.checkpoints import extract
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps import Runner, runner, workers
from loca_theory.transforms.matrices import dct_matrix

SHAPES = {"a.weight": (24, 20), "b.weight": (40, 20), "c.weight": (20, 20), "d.weight": (30, 36)}
SCALES = {"a.weight": 3.0, "b.weight": 0.3, "c.weight": 1.0, "d.weight": 1.0}


def weights():
    generator = torch.Generator().manual_seed(0)
    base = {name: torch.randn(*shape, generator=generator) for name, shape in SHAPES.items()}
    tuned = {}
    for name, value in base.items():
        p, q = value.shape
        change = torch.randn(p, q, generator=generator)
        change[:, 0] *= 5
        tuned[name] = value + SCALES[name] * change
    return base, tuned


@pytest.fixture
def files(tmp_path):
    paths = []
    for name, content in zip(("base", "tuned"), weights(), strict=True):
        save_file(content, tmp_path / f"{name}.safetensors")
        paths.append(tmp_path / f"{name}.safetensors")
    return paths


def gains(method):
    """Energy and numbers of every unit of every matrix, by a dense decomposition."""
    base, tuned = weights()
    found = []
    for name, (p, q) in SHAPES.items():
        change = (tuned[name] - base[name]).double()
        if method == "lora":
            energies, cost = torch.linalg.svdvals(change).square(), p + q
        else:
            spectrum = dct_matrix(p) @ change @ dct_matrix(q).T
            energies, cost = spectrum.square().flatten(), 1
        found += [(float(one), cost) for one in energies]
    return found, sum(energy for energy, _ in found)


@pytest.mark.parametrize(
    ("method", "total", "numbers"),
    [("loca", 300, 300), ("loca", "6064B", 300)],
)
def test_the_largest_coefficients_of_all_matrices_are_stored(method, total, numbers):
    """Every coefficient costs the same: the best split takes the largest of all, then no more."""
    found = extract(*weights(), method, allocate=total)
    assert sum(one.numbers for one in found.matrices) == numbers
    energies, energy = gains(method)
    largest = sorted((one for one, _ in energies), reverse=True)[:numbers]
    # Counts between 64 and 66, and so on, are interpolated: up to 3% of a matrix's coefficients.
    assert found.error == pytest.approx(1 - sum(largest) / energy, rel=3e-3)
    assert found.error >= 1 - sum(largest) / energy - 1e-6
    assert found.error < found.uniform_error


@pytest.mark.parametrize(("total", "numbers"), [(500, 500), ("1kB", 250)])
def test_ranks_go_where_a_number_retains_most(total, numbers):
    found = extract(*weights(), "lora", allocate=total)
    spent = sum(one.numbers for one in found.matrices)
    assert spent <= numbers
    # Dantzig's bound by fractions of ranks, which no split can exceed.
    energies, energy = gains("lora")
    energies.sort(key=lambda one: -one[0] / one[1])
    costs = np.cumsum([cost for _, cost in energies])
    retained = np.cumsum([one for one, _ in energies])
    bound = np.interp(numbers, np.append(0, costs), np.append(0, retained)) / energy
    assert 1 - bound - 1e-6 <= found.error <= found.uniform_error
    # What is left does not pay for a further rank.
    assert numbers - spent < 40


def test_the_uniform_error_is_that_of_the_same_rank():
    """840 numbers are rank 4 of every matrix."""
    found = extract(*weights(), "lora", allocate=4 * sum(map(sum, SHAPES.values())))
    same = extract(*weights(), "lora", rank=4)
    assert found.uniform_error == pytest.approx(same.error, rel=1e-5)
    expected = {one.name: one.error for one in same.matrices}
    assert {one.name: one.uniform_error for one in found.matrices} == pytest.approx(expected)


@pytest.mark.parametrize("method", ["lora", "loca", "best"])
@pytest.mark.parametrize("fraction", [0.5, 0.9])
def test_a_fraction_of_the_energy_is_retained_by_the_smallest_adapter(method, fraction):
    found = extract(*weights(), method, energy=fraction)
    numbers = sum(one.numbers for one in found.matrices)
    energies, energy = gains("lora" if method == "best" else method)
    largest = max(one for one, _ in energies) / energy
    assert fraction - 1e-5 < 1 - found.error < fraction + largest
    if method == "best":
        return
    energies.sort(key=lambda one: -one[0] / one[1])
    retained = np.cumsum([one for one, _ in energies]) / energy
    least = sum(cost for _, cost in energies[: int(np.searchsorted(retained, fraction))])
    # Up to one rank, or 3% of the coefficients between counts of the summary.
    assert numbers <= least + 66 + 0.03 * least


def test_rounding_counts_for_every_split():
    """Coefficients of about 1e-7 lose a few percent of their energy in float16."""
    base, tuned = weights()
    tuned = {name: 4e-8 * (one - base[name]) for name, one in tuned.items()}
    base = {name: torch.zeros_like(one) for name, one in base.items()}
    exact = extract(base, tuned, allocate=300)
    found = extract(base, tuned, allocate=300, dtype="float16")
    assert found.error > exact.error + 1e-3
    for name in ("equal_error", "uniform_error"):
        lost = (1 - getattr(found, name)) / (1 - getattr(exact, name))
        assert lost == pytest.approx((1 - found.error) / (1 - exact.error), rel=1e-3)
    assert found.error <= found.equal_error + 1e-6 <= found.uniform_error + 2e-6
    enough = extract(base, tuned, energy=0.5, dtype="float16")
    assert 0.5 - 1e-5 <= 1 - enough.error < 0.51


def test_floors_and_caps_limit_every_matrix():
    found = extract(*weights(), "lora", allocate=600, floor=1, cap=5)
    ranks = {one.name: one.r for one in found.matrices}
    assert min(ranks.values()) == 1
    assert ranks["a.weight"] == 5
    with pytest.raises(InvalidArgumentError, match=r"1 of every matrix costs 210; .* at least 210"):
        extract(*weights(), "lora", allocate=209, floor=1)


@pytest.mark.parametrize("size", [{"allocate": 700}, {"allocate": "3kB"}, {"energy": 0.8}], ids=str)
def test_a_mixed_split_is_at_least_as_good_as_one_method(size):
    mixed = extract(*weights(), "best", **size)
    assert mixed.uniform_error is None
    singles = [extract(*weights(), method, **size) for method in ("lora", "loca")]
    if "energy" in size:
        # The smallest total of either, up to a rank of the largest matrix.
        assert sum(one.numbers for one in mixed.matrices) <= 66 + min(
            sum(one.numbers for one in single.matrices) for single in singles
        )
    else:
        # Up to the energy of one rank: that of the unit that no longer fits.
        assert mixed.error <= min(single.error for single in singles) + 0.02


class Elsewhere(Runner):
    """Gives every point and its function to a process that knows nothing else."""

    def run(self, cells, compute, **options):
        copies = pickle.loads(pickle.dumps((cells, compute)))
        return super().run(*copies, **options)


@pytest.mark.parametrize("size", [{"allocate": 500}, {"rank": 2}], ids=str)
def test_a_point_and_its_function_can_be_sent_to_another_process(files, size):
    here = extract(*files, "lora", **size, runner=Runner(jobs=1))
    there = extract(*files, "lora", **size, runner=Elsewhere(jobs=1))
    assert there.matrices == here.matrices
    same_adapter(here, there)


def test_checkpoints_in_memory_stay_in_this_process(monkeypatch):
    monkeypatch.setattr(runner, "on_workers", None)
    monkeypatch.setattr(workers, "_WORKER_START_S", 0.0)
    extract(*weights(), "lora", rank=2, runner=Runner(jobs=2))


def same_adapter(one, other):
    for name, tensor in one.adapters["lora"].tensors.items():
        assert torch.equal(other.adapters["lora"].tensors[name], tensor)


@pytest.mark.deep
def test_workers_and_this_process_find_the_same(files, monkeypatch):
    monkeypatch.setattr(workers, "_WORKER_START_S", 0.0)
    monkeypatch.setattr(workers, "_WARM_WORKER_START_S", 0.0)
    here = extract(*files, "lora", allocate=500, runner=Runner(jobs=1))
    there = extract(*files, "lora", allocate=500, runner=Runner(jobs=2))
    assert there.matrices == here.matrices
    same_adapter(here, there)


def test_progress_counts_matrices_of_each_step(files):
    seen = []
    runner = Runner(jobs=1, progress=lambda done, total: seen.append((done, total)))
    extract(*files, rank=2, runner=runner)
    assert seen == [(done, 4) for done in range(5)]
    seen.clear()
    found = extract(*files, allocate=100, runner=runner)
    sized = sum(one.numbers > 0 for one in found.matrices)
    assert seen == [(done, 4) for done in range(5)] + [(i, sized) for i in range(sized + 1)]


def test_stored_profiles_are_used_for_the_same_increments_only(files, tmp_path):
    def stored():
        before = set(tmp_path.glob("points/*.json"))
        runner = Runner(tmp_path / "points", jobs=1)
        found = extract(*files, "lora", allocate=500, runner=runner)
        return found, len(set(tmp_path.glob("points/*.json")) - before)

    first, computed = stored()
    assert computed == 4
    second, computed = stored()
    assert computed == 0
    assert second.matrices == first.matrices
    base, tuned = weights()
    changed = base["a.weight"] + 2 * (tuned["a.weight"] - base["a.weight"])
    save_file({**tuned, "a.weight": changed}, files[1])
    third, computed = stored()
    assert computed == 1
    assert third.matrices[0].energy == pytest.approx(4 * first.matrices[0].energy, rel=1e-4)
