"""What half precision leaves of outputs, gradients and training."""

import copy
import math

import pytest
import torch
from torch import nn

from loca_theory.adapters import AlternatingSchedule, LoCALinear, costs
from loca_theory.adapters.costs import product_dtype
from loca_theory.adapters.spectrum import CosineSpectrum

from .searching import in_phase, normal

HALVES = [torch.bfloat16, torch.float16]
by_half = pytest.mark.parametrize("dtype", HALVES, ids=str)
P, Q, B, TOKENS = 160, 192, 2000, 256


@pytest.fixture(params=[True, False], ids=["half products", "float32 products"])
def has_units(request, monkeypatch):
    """Whether the CPU has units for half precision, whatever this one has."""
    monkeypatch.setattr(costs, "_FAST_ON_CPU", request.param)
    return request.param


def rounding(dtype):
    """Root mean square of the relative error of one rounding.

    In units of the spacing of numbers in [1, 2), an error has the variance 1/12; the mean of 1/m²
    over significands m in [1, 2) that are uniform on a logarithmic scale is 3/(8 ln 2).
    """
    return torch.finfo(dtype).eps * math.sqrt(3 / (8 * math.log(2)) / 12)


def results(spectrum, x, g, dtype):
    """Output and gradients of a, l and x."""
    spectrum.zero_grad()
    x = x.detach().to(dtype).requires_grad_()
    y = spectrum(x)
    y.backward(g.to(y.dtype))
    gradients = spectrum.coefficients.grad, spectrum.offset.grad, x.grad
    return [tensor.detach().clone() for tensor in (y, *gradients)]


@by_half
@pytest.mark.parametrize("implementation", ["implicit", "materialised"])
def test_each_result_is_off_by_the_roundings_of_its_factors_and_its_own(
    dtype, implementation, has_units
):
    """Of ΔW, of gᵀx, and of the result, if products are of half precision; else of the result.

    Roundings are independent and errors add up in squares. ``implicit`` rounds results alone.
    """
    options = {"zero_init": False, "schedule": AlternatingSchedule()}
    spectrum = CosineSpectrum((P, Q), B, implementation=implementation, **options)
    in_phase(spectrum, "both")
    x, g = (normal(TOKENS, side, seed=side).to(dtype) for side in (Q, P))
    halves = results(spectrum, x, g, dtype)
    exact = results(spectrum.double(), x, g, torch.float64)
    is_rounded = has_units and implementation == "materialised" and dtype == torch.bfloat16
    roundings = {"y": 1 + is_rounded, "a": is_rounded, "l": is_rounded, "x": 1 + is_rounded}
    for (name, count), half, wide in zip(roundings.items(), halves, exact, strict=True):
        assert half.dtype == (dtype if name in ("x", "y") else torch.float32)
        error = float((half.double() - wide).norm() / wide.norm())
        # Few entries are read for a and l; float32 adds 1e-6.
        expected = rounding(dtype) * math.sqrt(count)
        assert 0.85 * expected <= error <= 1.15 * expected + 1e-5, name


@by_half
def test_a_small_increment_is_not_lost(dtype, has_units):
    """W + ΔW would round to W: ΔW is 2⁻¹⁵ of it."""
    layer = LoCALinear(nn.Linear(Q, P, bias=False), B, zero_init=False)
    with torch.no_grad():
        layer.base.weight.fill_(1.0)
        layer.spectrum.coefficients *= 2**-15 / layer.increment().std()
    layer.to(dtype)
    assert torch.equal(layer.base.weight + layer.increment(), layer.base.weight)
    x = torch.zeros(Q, Q, dtype=dtype).fill_diagonal_(1.0)
    wide = layer.spectrum.increment().double().T
    assert (layer.spectrum(x).double() - wide).norm() <= torch.finfo(dtype).eps * wide.norm()


def test_products_follow_the_tensor_and_autocast(has_units):
    half, single = torch.zeros(1, dtype=torch.bfloat16), torch.zeros(1)
    narrow = torch.bfloat16 if has_units else torch.float32
    assert product_dtype(half, torch.float32) == narrow
    assert product_dtype(half, torch.float64) == torch.float64
    assert product_dtype(single, torch.float32) == torch.float32
    assert product_dtype(half.to("meta"), torch.float32) == torch.bfloat16
    assert product_dtype(half.half().to("meta"), torch.float32) == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert product_dtype(single, torch.float32) == narrow
        assert product_dtype(single.double(), torch.float64) == torch.float64


def test_a_weight_that_is_folded_keeps_its_precision_under_autocast(has_units):
    spectrum, weight = CosineSpectrum((P, Q), 50, zero_init=False), normal(P, Q).float()
    x = normal(4, Q).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = spectrum(x, weight)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, x @ (weight + spectrum.increment()).T, rtol=1e-4, atol=1e-4)


def trained_loss(seed, dtype=torch.float32, autocast=None):
    """Loss on new data after 300 steps of Adam towards another increment, in noise."""
    torch.manual_seed(seed)
    teacher = LoCALinear(nn.Linear(48, 40), 300, seed=seed, zero_init=False)
    layer = copy.deepcopy(teacher).to(dtype)
    nn.init.zeros_(layer.spectrum.coefficients)
    layer.spectrum.to(torch.float32)  # as PEFT trains adapters of models in half precision
    optimizer = torch.optim.Adam([layer.spectrum.coefficients], lr=0.02)

    def loss(count):
        x = torch.randn(count, 48)
        y = teacher(x).detach() + 0.1 * torch.randn(count, 40)
        with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
            output = layer(x.to(dtype))
        return (output.float() - y).square().mean()

    for _ in range(300):
        optimizer.zero_grad()
        loss(64).backward()
        optimizer.step()
    with torch.no_grad():
        return float(loss(2000))


def test_training_ends_where_float32_ends(has_units):
    seeds = range(4)
    single = torch.tensor([trained_loss(seed) for seed in seeds])
    for options in ({"dtype": torch.bfloat16}, {"autocast": torch.bfloat16}):
        half = torch.tensor([trained_loss(seed, **options) for seed in seeds])
        # Adam ends near the loss of the noise, 0.01; seeds are apart by the standard deviation.
        assert single.max() < 0.02
        assert (half - single).abs().max() < single.std(), options
