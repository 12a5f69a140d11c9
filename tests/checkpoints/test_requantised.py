"""Adapters in bases of few bits: the rounding is that of bitsandbytes."""

import numpy as np
import pytest
import torch
from scipy import stats

from loca_theory.checkpoints import demo_pair, extract
from loca_theory.checkpoints.extraction.outputs import quantised, surviving_energy
from loca_theory.errors import InvalidArgumentError

# QLoRA, appendix E: quantiles of a normal law on both sides of 0, over the largest.
_LAST = 0.9677083
_QUANTILES = (
    *stats.norm.ppf(np.linspace(_LAST, 0.5, 9)),
    *-stats.norm.ppf(np.linspace(_LAST, 0.5, 8)[:-1]),
)
NF4 = np.array(_QUANTILES) / max(_QUANTILES)


@pytest.fixture
def weight():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(24, 40, generator=generator)


def test_four_bits_are_those_of_bitsandbytes(weight):
    bnb = pytest.importorskip("bitsandbytes.functional")
    packed, state = bnb.quantize_4bit(weight, blocksize=64, quant_type="nf4")
    theirs = bnb.dequantize_4bit(packed, state)
    torch.testing.assert_close(quantised(weight, 4), theirs, rtol=1e-6, atol=1e-6)


def test_four_bits_are_the_nearest_code_of_each_block(weight):
    for block, found in zip(
        weight.reshape(-1, 64), quantised(weight, 4).reshape(-1, 64), strict=True
    ):
        scale = block.abs().max()
        for entry, code in zip(block, found, strict=True):
            nearest = min(NF4, key=lambda level: abs(float(entry / scale) - level))
            assert float(code) == pytest.approx(nearest * float(scale), rel=1e-6)


def test_eight_bits_have_a_scale_per_row(weight):
    rows = torch.stack([row / row.abs().max() * 127 for row in weight])
    codes = quantised(weight, 8) / weight.abs().amax(1, keepdim=True) * 127
    torch.testing.assert_close(codes, rows.round(), rtol=0, atol=1e-4)


def test_what_survives_is_less_the_smaller_the_change_is(weight):
    change = torch.outer(torch.linspace(-1, 1, 24), torch.linspace(1, 2, 40))
    found = [surviving_energy(weight, weight + size * change, 8) for size in (1.0, 0.1, 0.01)]
    assert found[0] > 0.99
    assert found == sorted(found, reverse=True)
    assert surviving_energy(weight, weight + 0.01 * change, 4) < found[2]
    assert surviving_energy(weight, weight, 4) == 1.0


def test_other_bits_are_refused_before_anything_is_computed():
    with pytest.raises(InvalidArgumentError, match="requantise must be 8 or 4 bits, not 5"):
        extract(*demo_pair(), "lora", rank=2, check=True, requantise=5)
