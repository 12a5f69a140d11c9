"""Sizes that differ from layer to layer: by a total or a fraction, in extractions and analyses."""

from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from loca_theory.checkpoints import analyze, demo_pair, extract
from loca_theory.checkpoints.pairs.opening import open_pair
from loca_theory.errors import InvalidArgumentError
from loca_theory.increments import PrintedTest
from loca_theory.sweeps import Runner, runner, workers
from tests.checkpoints import zoo
from tests.checkpoints.files import normal

ASKED = {"ranks": (2,), "device": "cpu", "printed": PrintedTest(copies=10, samples=5000)}
# Sides of each layer, and how much it changes.
LAYERS = {"a.weight": (24, 20, 3.0), "b.weight": (40, 20, 0.3), "c.weight": (20, 20, 1.0),
          "d.weight": (30, 36, 1.0)}  # fmt: skip


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
        found = extract(*files, "lora", allocate=500, runner=Runner(tmp_path / "points", jobs=1))
        return found.matrices[0].energy, len(list(tmp_path.glob("points/*.json")))

    energy, count = stored()
    assert count == 4
    base, tuned = weights()
    changed = base["a.weight"] + 2 * (tuned["a.weight"] - base["a.weight"])
    save_file({**tuned, "a.weight": changed}, files[1])
    assert stored() == (pytest.approx(4 * energy, rel=1e-4), 5)


# --- analyses ---


@pytest.mark.parametrize("total", [6000, "60kB", 40_000])
def test_entries_get_the_r_that_retains_most(total):
    """One for all, without the matrices that have fewer entries than it stores."""
    found = analyze(*demo_pair(), include="layers.0", allocate=total, **ASKED)
    rows = [row for row in found.allocation if row.method == "S"]
    budget = 60_000 // 12 if total == "60kB" else total
    assert total != "60kB" or found.total == "60,000 bytes"
    pair = open_pair(*demo_pair())
    squares = {row.name: pair.increment(row.name).double().square() for row in rows}
    best = (0.0, 0)
    for r in range(1, 200):
        counts = {name: r * sum(one.shape) for name, one in squares.items()}
        fits = {name: n for name, n in counts.items() if n <= squares[name].numel()}
        if sum(fits.values()) <= budget:
            kept = [float(squares[name].flatten().topk(n).values.sum()) for name, n in fits.items()]
            best = max(best, (sum(kept), r))
    energy, r = best[0] / sum(float(one.sum()) for one in squares.values()), best[1]
    retained = sum(row.energy * row.retained for row in rows)
    # A summary at counts that grow by 3% is a lower bound.
    assert energy * (1 - 0.015) <= retained <= energy + 1e-6
    assert {row.size for row in rows} - {0} == {r}
    numbers = [row.size * sum(squares[row.name].shape) for row in rows]
    assert [row.numbers for row in rows] == numbers
    assert sum(numbers) <= budget
    said = f"the largest plain entries retain {retained:.0%} of their energy as SHiRA, with r = {r}"
    assert said in found.verdict


@pytest.mark.parametrize("name", ["GPT-2", "ViT", "DeepSeek-V3"])
def test_layers_and_sizes_are_those_of_an_extraction(tmp_path, name):
    """By each method: also the transposed ones, and convolutions. The smallest are said.

    Parameters with several experts are adapted as a whole, of which an analysis has each alone.
    """
    pair = zoo.pair(name, tmp_path)
    found = analyze(*pair, allocate=3000, **ASKED)
    small = [one.name for one in found.skipped if one.reason.startswith("too small")]
    assert (f"too small to analyse ({len(small)})" in found.verdict) == bool(small)
    weights, adapted = {one.name: f"{one.module}.weight" for one in found.matrices}, {}
    for letter, method in (("R", "lora"), ("D", "loca"), ("S", "entries")):
        rows = [row for row in found.allocation if row.method == letter]
        rows = [row for row in rows if row.size or method != "entries"]
        adapted[method] = {weights[row.name] for row in rows}
        asked = {"rank": rows[0].size if rows else 1} if letter == "S" else {"allocate": 3000}
        asked |= {"exclude": r"mlp\.experts"}
        if not rows:
            with pytest.raises(InvalidArgumentError, match="no layer is left to extract"):
                extract(*pair, method, **asked)
            continue
        other = extract(*pair, method, **asked)
        theirs = {one.name: one for one in other.matrices if min(one.shape) >= 16}
        assert theirs.keys() == adapted[method]
        for row in () if small else rows:
            one = theirs[weights[row.name]]
            assert abs(row.size - (one.r or one.components or 0)) <= (1 if method == "loca" else 0)
            assert abs(row.numbers - one.numbers) <= (1 if method == "loca" else 0)
        if not small and method != "entries":
            # Of many coefficients, an analysis has a lower bound.
            close = partial(pytest.approx, abs=3e-3 if method == "loca" else 1e-5)
            assert sum(row.energy for row in rows) == pytest.approx(1)
            assert sum(row.energy * row.retained for row in rows) == close(1 - other.error)
            uniform = sum(row.energy * row.uniform_retained for row in rows)
            assert uniform == close(1 - other.uniform_error)
            for row in rows:
                errors = other.equal_error, other.least_error
                assert (1 - row.equal_retained, 1 - row.bound) == close(errors)
    every = adapted["lora"] | adapted["loca"]
    for method in ("lora", "loca"):
        count = len(adapted[method])
        said = f"{count} of {len(every)} layers, which" if count < len(every) else f"{count} layers"
        assert f"With 3,000 trainable numbers for {said}" in found.verdict


def test_a_total_without_a_rank_or_a_layer_is_said():
    base, tuned = {"fc.weight": np.ones((20, 30))}, {"fc.weight": np.eye(20, 30)}
    assert {one.method for one in analyze(base, tuned, allocate=50, ranks=1).allocation} == {*"RDS"}
    two = [{f"{name}.fc.weight": one["fc.weight"].copy() for name in "ab"} for one in (base, tuned)]
    # One r for all costs 100 numbers.
    assert {one.method for one in analyze(*two, allocate=99, ranks=1).allocation} == {*"RD"}
    poor = analyze(base, tuned, allocate=49, ranks=1)
    assert {one.method for one in poor.allocation} == {"D"}
    assert "49 trainable numbers do not pay for one rank of LoRA" in poor.verdict
