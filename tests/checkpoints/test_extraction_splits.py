"""Sizes that differ from matrix to matrix, and where the matrices are computed."""

import pytest
import torch
from safetensors.torch import save_file

from loca_theory.checkpoints import extract
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps import Runner, runner, workers

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


@pytest.mark.parametrize("method", ["lora", "loca", "best"])
def test_a_fraction_of_the_energy_is_retained_and_little_more(method):
    sizes = []
    for fraction in (0.5, 0.9):
        found = extract(*weights(), method, energy=fraction)
        assert fraction - 1e-5 < 1 - found.error
        # One coefficient more holds little; a singular value may hold half of the energy.
        assert method != "loca" or 1 - found.error < fraction + 0.02
        sizes.append(sum(one.numbers for one in found.matrices))
    assert sizes[0] < sizes[1]


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


def test_checkpoints_in_memory_stay_in_this_process(monkeypatch):
    monkeypatch.setattr(runner, "on_workers", None)
    monkeypatch.setattr(workers, "_WORKER_START_S", 0.0)
    extract(*weights(), "lora", rank=2, runner=Runner(jobs=2))


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
