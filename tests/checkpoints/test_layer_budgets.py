"""A total that an analysis splits among its matrices."""

import numpy as np
import pytest

from loca_theory.checkpoints import analyze, demo_pair, extract
from loca_theory.checkpoints.pairs.opening import open_pair
from loca_theory.errors import InvalidArgumentError
from loca_theory.increments import PrintedTest
from tests.checkpoints import zoo

ASKED = {"ranks": (2,), "device": "cpu", "printed": PrintedTest(copies=10, samples=5000)}
TOTAL = 6000


@pytest.fixture(scope="module")
def analysis():
    return analyze(*demo_pair(), include="layers.0", allocate=TOTAL, **ASKED)


@pytest.fixture(scope="module")
def increments(analysis):
    pair = open_pair(*demo_pair())
    return {one.name: pair.increment(one.name).double() for one in analysis.matrices}


@pytest.mark.parametrize(("letter", "method", "atol"), [("R", "lora", 1e-5), ("D", "loca", 3e-3)])
def test_the_split_is_that_of_an_extraction(analysis, letter, method, atol):
    rows = [row for row in analysis.allocation if row.method == letter]
    found = extract(*demo_pair(), method, include="layers.0", allocate=TOTAL)
    assert [row.name for row in rows] == [one.name for one in found.matrices]
    assert sum(row.numbers for row in rows) <= TOTAL
    assert sum(row.energy for row in rows) == pytest.approx(1)
    for key, error in (("retained", found.error), ("uniform_retained", found.uniform_error)):
        kept = sum(row.energy * getattr(row, key) for row in rows)
        assert kept == pytest.approx(1 - error, abs=atol)
    moved = 0
    for row, one in zip(rows, found.matrices, strict=True):
        moved += abs(row.size - (one.r or one.components or 0))
        assert row.numbers == row.size * (1 if method == "loca" else sum(one.shape))
        assert row.equal_retained == pytest.approx(1 - found.equal_error, abs=atol)
        assert row.bound == pytest.approx(1 - found.least_error, abs=atol)
    # Increments are analysed in single precision: a tie may move a unit or two.
    assert moved <= (0 if method == "lora" else 4)
    assert "With 6,000 trainable numbers for 4 layers, LoRA retains" in analysis.verdict
    assert "LoCA (best DCT coefficients) retains" in analysis.verdict


@pytest.mark.parametrize("total", [TOTAL, "60kB", 40_000])
def test_entries_get_the_r_that_retains_most(increments, total):
    """One for all, without the matrices that have fewer entries than it stores."""
    found = analyze(*demo_pair(), include="layers.0", allocate=total, **ASKED)
    rows = [row for row in found.allocation if row.method == "S"]
    budget = 60_000 // 12 if total == "60kB" else total
    assert total != "60kB" or found.total == "60,000 bytes"
    best = (0.0, 0)
    for r in range(1, 200):
        counts = {name: r * sum(w.shape) for name, w in increments.items()}
        fits = {name: n for name, n in counts.items() if n <= increments[name].numel()}
        if sum(fits.values()) <= budget:
            kept = (
                float(increments[name].square().flatten().topk(n).values.sum())
                for name, n in fits.items()
            )
            best = max(best, (sum(kept), r))
    whole = sum(float(w.square().sum()) for w in increments.values())
    retained = sum(row.energy * row.retained for row in rows)
    # A summary at counts that grow by 3% is a lower bound.
    assert best[0] / whole * (1 - 0.015) <= retained <= best[0] / whole + 1e-6
    assert {row.size for row in rows} - {0} == {best[1]}
    numbers = [row.size * sum(increments[row.name].shape) for row in rows]
    assert [row.numbers for row in rows] == numbers
    assert sum(numbers) <= budget
    said = f"the largest plain entries retain {retained:.0%} of their energy as SHiRA, with r = "
    assert said + str(best[1]) in found.verdict
    named = [one.name for one in extract(*demo_pair(), "entries", rank=best[1]).matrices]
    assert [row.name for row in rows if row.size] == [one for one in named if "layers.0" in one]


@pytest.mark.parametrize("name", ["GPT-2", "ViT", "DeepSeek-V3"])
def test_the_layers_are_those_that_an_extraction_adapts(tmp_path, name):
    """By each method: also the transposed ones, and convolutions. The smallest are said.

    Parameters with several experts are adapted as a whole, of which an analysis has each alone.
    """
    pair = zoo.pair(name, tmp_path, biases=False)
    found = analyze(*pair, allocate=3000, **ASKED)
    small = [one.name for one in found.skipped if one.reason.startswith("too small")]
    assert (f"too small to analyse ({len(small)})" in found.verdict) == bool(small)
    weights = {one.name: f"{one.module}.weight" for one in found.matrices}
    sizes = {"R": {}, "D": {}, "S": {}}
    for row in found.allocation:
        sizes[row.method][weights[row.name]] = row.size
    entries = {name: r for name, r in sizes["S"].items() if r}
    for method, expected, asked in (
        ("lora", sizes["R"], {"allocate": 3000}),
        ("loca", sizes["D"], {"allocate": 3000}),
        ("entries", entries, {"rank": max(entries.values(), default=1)}),
    ):
        if not expected:
            with pytest.raises(InvalidArgumentError, match="no layer is left to extract"):
                extract(*pair, method, **asked)
            continue
        asked |= {"exclude": r"mlp\.experts"}
        rows = [one for one in extract(*pair, method, **asked).matrices if min(one.shape) >= 16]
        assert {one.name for one in rows} == set(expected)
        if not small:
            moved = [abs(expected[one.name] - (one.r or one.components or 0)) for one in rows]
            assert max(moved) <= (1 if method == "loca" else 0)
    fewer, all_ = len(sizes["D"]), len(sizes["R"] | sizes["D"])
    if fewer < all_:
        assert f"for {fewer} of {all_} layers, which are those that can have it" in found.verdict


def test_a_total_without_a_rank_or_a_layer_is_said():
    base, tuned = {"fc.weight": np.ones((20, 30))}, {"fc.weight": np.eye(20, 30)}
    assert {one.method for one in analyze(base, tuned, allocate=50, ranks=1).allocation} == {*"RDS"}
    two = [{f"{name}.fc.weight": one["fc.weight"].copy() for name in "ab"} for one in (base, tuned)]
    # One r for all costs 100 numbers.
    assert {one.method for one in analyze(*two, allocate=99, ranks=1).allocation} == {*"RD"}
    poor = analyze(base, tuned, allocate=49, ranks=1)
    assert {one.method for one in poor.allocation} == {"D"}
    assert "49 trainable numbers do not pay for one rank of LoRA" in poor.verdict


def test_without_a_total_nothing_is_split():
    found = analyze(*demo_pair(), include="layers.0.up", **ASKED)
    assert (found.allocation, found.total) == ((), None)
    assert "for all" not in found.verdict
