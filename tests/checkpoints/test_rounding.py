"""How much of a stored change an analysis attributes to rounding."""

import pytest
import torch

from loca_theory.checkpoints import analyze
from loca_theory.checkpoints.measure.rounding import stored_change

SHAPE = (256, 192)
WARNED = "Stored in bfloat16, whose steps are as large as these changes"


def pair(size, dtype=torch.bfloat16, base=torch.bfloat16):
    """Independent normal weights and changes of a relative size, as they are stored."""
    torch.manual_seed(0)
    weight = 0.02 * torch.randn(SHAPE, dtype=torch.float64)
    before = weight.to(base)
    return before, (before.double() + 0.02 * size * torch.randn(SHAPE)).to(dtype)


@pytest.mark.parametrize("size", [3e-4, 1e-3, 3e-3, 3e-2])
def test_rounding_is_estimated_from_how_many_entries_changed(size):
    """Against the true errors of rounding; of 49,152 entries, some 3,500 change at least."""
    torch.manual_seed(0)
    before = (0.02 * torch.randn(SHAPE, dtype=torch.float64)).bfloat16().double()
    change = 0.02 * size * torch.randn(SHAPE, dtype=torch.float64)
    after = (before + change).bfloat16()
    stored = after.double() - before
    estimate = stored_change(before.bfloat16(), after)
    assert estimate.format == "bfloat16"
    assert estimate.changed == float((stored != 0).double().mean())
    truth = float((stored - change).square().sum() / stored.square().sum())
    # 2% from counting, which enters the error of rounding up to the fourth power; and from a grid.
    # The grid has fine steps.
    assert estimate.rounding == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize(
    ("dtype", "weight", "size"),
    [
        (torch.float8_e4m3fn, 0.02, 0.3),
        (torch.float8_e4m3fn, 0.001, 1.0),
        (torch.float8_e5m2, 1.0, 0.03),
        (torch.float16, 1e-5, 0.01),
    ],
    ids=str,
)
def test_rounding_is_estimated_where_steps_are_constant(dtype, weight, size):
    """Subnormal numbers; the law of the nearest power of two is within 20% of that of a weight."""
    torch.manual_seed(0)
    shape = (1024, 512)
    before = (weight * torch.randn(shape, dtype=torch.float64)).to(dtype)
    change = weight * size * torch.randn(shape, dtype=torch.float64)
    after = (before.double() + change).to(dtype)
    stored = after.double() - before.double()
    truth = float((stored - change).square().sum() / stored.square().sum())
    assert stored_change(before, after).rounding == pytest.approx(truth, rel=0.2)


def test_formats_are_those_of_the_values():
    before, after = pair(1e-3)
    assert stored_change(before.float(), after.float()) == stored_change(before, after)
    wide = stored_change(*pair(1e-3, torch.float32, torch.float32))
    assert (wide.format, wide.changed, wide.rounding) == ("float32", None, None)


def test_a_base_of_more_bits_is_rounded_before_it_is_compared():
    before, after = pair(1e-3, base=torch.float32)
    change = stored_change(before, after)
    assert change.changed == float((before.bfloat16() != after).double().mean())
    assert change.changed < 0.5


@pytest.mark.parametrize(
    ("size", "dtype", "is_warned"),
    [(3e-4, torch.bfloat16, True), (0.1, torch.bfloat16, False), (3e-4, torch.float32, False)],
    ids=["below the steps", "above them", "float32"],
)
def test_the_analysis_warns_where_rounding_matters(size, dtype, is_warned):
    before, after = pair(size, dtype, dtype)
    name = "layer.q_proj.weight"
    result = analyze({name: before}, {name: after}, ranks=4)
    assert any(text.startswith(WARNED) for text in result.warnings) is is_warned
    assert result.warning.startswith(WARNED) is is_warned
    assert " ".join(str(result).split()).count(WARNED) == is_warned
    (row,) = result.matrices
    assert row.format == str(dtype).removeprefix("torch.")
    assert (row.rounding is None) is (dtype == torch.float32)


def test_a_base_of_more_bits_loses_at_least_its_own_rounding():
    """Of a merge that is cast afterwards; to 2%.

    The squares of uniform errors have a relative standard deviation of 0.9 about u²/12, of steps u
    that vary themselves: a mean of 49,152 is off by 0.4 to 0.5%, and the bound is four times that.
    """
    torch.manual_seed(0)
    base = 0.02 * torch.randn(SHAPE, dtype=torch.float64)
    change = 1e-6 * torch.randn(SHAPE, dtype=torch.float64)
    after = (base + change).bfloat16()
    stored = after.double() - base
    truth = float((stored - change).square().sum() / stored.square().sum())
    assert stored_change(base.float(), after).rounding == pytest.approx(truth, rel=0.02)


def test_small_formats_and_matrices_of_zeros_are_analysed():
    torch.manual_seed(0)
    base = torch.randn(SHAPE).to(torch.float8_e4m3fn)
    tuned = (base.float() + 0.3 * torch.randn(SHAPE)).to(torch.float8_e4m3fn)
    assert stored_change(base, tuned).format == "float8_e4m3"
    assert stored_change(torch.randn(SHAPE), torch.zeros(SHAPE)).changed > 0.9
