"""A total that an analysis splits among its matrices."""

import numpy as np
import pytest
import torch

from loca_theory.checkpoints import analyze, demo_pair
from loca_theory.checkpoints.pairs.opening import open_pair
from loca_theory.checkpoints.sizing.offers import EnergyProfile
from loca_theory.checkpoints.sizing.sizes import allocate
from loca_theory.checkpoints.statistics.energy_profile import component_energies
from loca_theory.errors import InvalidArgumentError
from loca_theory.increments import PrintedTest

ASKED = {"ranks": (2,), "device": "cpu", "printed": PrintedTest(copies=10, samples=5000)}
TOTAL = 6000


@pytest.fixture(scope="module")
def analysis():
    return analyze(*demo_pair(), include="layers.0", allocate=TOTAL, **ASKED)


def profile(name, method, increment):
    if method == "D":
        return EnergyProfile(name, method, *component_energies(increment), 1)
    retained = torch.linalg.svdvals(increment).square().cumsum(0).numpy()
    return EnergyProfile(
        name, method, np.arange(1, len(retained) + 1), retained, sum(increment.shape)
    )


def test_the_split_is_that_of_the_increments_themselves(analysis):
    pair = open_pair(*demo_pair())
    increments = {one.name: pair.increment(one.name).double() for one in analysis.matrices}
    for method in "RD":
        mine = [[profile(name, method, w)] for name, w in increments.items()]
        expected = allocate(mine, TOTAL)
        sizes = {one.profile.name: one.size for one in expected.matrices}
        rows = [row for row in analysis.allocation if row.method == method]
        # Increments are analysed in single precision: a tie may move a unit or two.
        moved = sum(abs(row.size - sizes[row.name]) for row in rows)
        assert moved <= (0 if method == "R" else 4)
        energy = sum(one.profile.energy for one in expected.matrices)
        for key, size in (("retained", "size"), ("uniform_retained", "uniform_size")):
            found = sum(row.energy * getattr(row, key) for row in rows)
            kept = sum(
                one.profile.fraction(getattr(one, size)) * one.profile.energy / energy
                for one in expected.matrices
            )
            assert found == pytest.approx(kept, abs=1e-5)
        assert sum(row.numbers for row in rows) <= TOTAL
        assert sum(row.energy for row in rows) == pytest.approx(1)
        for key in ("equal_retained", "bound"):
            values = [getattr(row, key) for row in rows]
            assert values == pytest.approx([getattr(expected, key)] * len(rows), abs=1e-5)
        cost = {name: sum(w.shape) if method == "R" else 1 for name, w in increments.items()}
        assert [row.numbers for row in rows] == [row.size * cost[row.name] for row in rows]
    assert "With 6,000 trainable numbers for 4 linear layers, LoRA retains" in analysis.verdict
    assert "LoCA (best DCT coefficients) retains" in analysis.verdict


def test_bytes_pay_for_stored_numbers_and_locations():
    found = analyze(*demo_pair(), include="layers.0", allocate="40kB", **ASKED)
    spent = dict.fromkeys("RD", 0)
    for row in found.allocation:
        spent[row.method] += row.numbers
    # A rank costs at most 4·288 bytes, a coefficient with its location 20, a shape 16.
    assert 40_000 - 4 * 288 < 4 * spent["R"] <= 40_000
    assert 40_000 - 20 < 20 * spent["D"] + 4 * 16 <= 40_000
    assert found.total == "40,000 bytes"


def test_units_of_any_size_share_a_total():
    rng = np.random.default_rng(0)
    base = {f"{name}.weight": np.zeros((20, 16)) for name in "ab"}
    one, two = (rng.normal(size=(20, 16)) for _ in range(2))
    rows = {}
    for scale in (1.0, 1e200):
        tuned = {"a.weight": scale * one, "b.weight": 2 * scale * two}
        rows[scale] = analyze(base, tuned, allocate=36 * 6, **ASKED).allocation
    for mine, other in zip(*rows.values(), strict=True):
        assert (mine.size, mine.uniform) == (other.size, other.uniform)
        assert mine.retained == pytest.approx(other.retained)


def test_a_total_without_a_rank_or_a_layer_is_said():
    base, tuned = {"fc.weight": np.ones((20, 30))}, {"fc.weight": np.eye(20, 30)}
    assert {one.method for one in analyze(base, tuned, allocate=50, ranks=1).allocation} == {*"RD"}
    poor = analyze(base, tuned, allocate=49, ranks=1)
    assert {one.method for one in poor.allocation} == {"D"}
    assert "49 trainable numbers do not pay for one rank of LoRA" in poor.verdict
    with pytest.raises(
        InvalidArgumentError, match="35 bytes is too small: one coefficient costs 36"
    ):
        analyze(base, tuned, allocate="35B", ranks=1)
    with pytest.raises(InvalidArgumentError, match="among linear layers, and there is none"):
        analyze(np.eye(20, 30), allocate=50, ranks=1)


def test_only_linear_layers_share_the_total():
    rng = np.random.default_rng(0)
    shapes = {"embed_tokens.weight": (40, 20), "fc.weight": (20, 20), "conv.weight": (20, 3, 3, 3)}
    base = {name: np.zeros(shape) for name, shape in shapes.items()}
    tuned = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    found = analyze(base, tuned, ranks=1, allocate=80)
    assert len(found.matrices) == 3
    assert [one.name for one in found.allocation] == ["fc.weight"] * 2
    assert [one.energy for one in found.allocation] == pytest.approx([1, 1])


def test_without_a_total_nothing_is_split():
    found = analyze(*demo_pair(), include="layers.0.up", **ASKED)
    assert (found.allocation, found.total) == ((), None)
    assert "for all" not in found.verdict
