"""Derivatives of every transform on every path: reverse, double, forward, and under vmap."""

import pytest
import torch
from torch.autograd import gradgradcheck

from loca_theory.transforms import dct, dct2, idct, idct2

by_method = pytest.mark.parametrize("method", ["scipy", "fft", "matmul"])
by_transform = pytest.mark.parametrize(
    ("transform", "inverse"),
    [
        pytest.param(dct, idct, id="dct"),
        pytest.param(idct, dct, id="idct"),
        pytest.param(dct2, idct2, id="dct2"),
        pytest.param(idct2, dct2, id="idct2"),
    ],
)


def normal(*shape, seed=0, requires_grad=False, device="cpu"):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, dtype=torch.float64, generator=generator)
    return x.to(device).requires_grad_(requires_grad)


def close(actual, expected, size=64):
    """Equality up to the rounding of a few transforms of float64, see test_dct.bound."""
    eps = torch.finfo(torch.float64).eps
    return float((actual - expected).norm()) <= eps * size * (float(expected.norm()) + 1e-300)


# Differences at the step 1e-6 carry, for a linear map, only the rounding of the values,
# eps·‖x‖·10/1e-6 = 1e-8, well inside the default tolerances (1e-5, 1e-3). The rules are those of
# all methods; which one computes is compared further below.
@by_transform
def test_second_derivative_matches_differences(transform, inverse):
    x = normal(2, 2, 3, requires_grad=True)
    # Squared, so that the second derivative is not zero.
    assert gradgradcheck(lambda t: transform(t).square(), x)


@by_method
@by_transform
def test_the_backward_pass_is_the_inverse_map(transform, inverse, method):
    x, weights = normal(3, 5, 7, requires_grad=True), normal(3, 5, 7, seed=1)
    (transform(x, method=method) * weights).sum().backward()
    assert close(x.grad, inverse(weights))
    # Gradients of other layouts: an expanded scalar, and a transposed matrix.
    for gradient_of_output in (
        torch.ones((), dtype=torch.float64).expand(3, 5, 7),
        normal(3, 7, 5).mT,
    ):
        (gradient,) = torch.autograd.grad(transform(x, method=method), x, gradient_of_output)
        assert close(gradient, inverse(gradient_of_output))


# torch compiles its forward-mode decompositions with a function that it has itself deprecated.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@by_method
@by_transform
def test_the_tangent_is_the_map_itself(transform, inverse, method):
    x, tangent = normal(5, 7), normal(5, 7, seed=1)
    value, derivative = torch.func.jvp(lambda t: transform(t, method=method), (x,), (tangent,))
    assert close(value, transform(x))
    assert close(derivative, transform(tangent))


@by_method
@pytest.mark.parametrize("in_dim", [0, 1, 2, -1], ids=["first", "middle", "last", "from the end"])
def test_vmap_equals_a_batch(method, in_dim):
    x = normal(3, 4, 5)
    mapped = torch.func.vmap(lambda t: dct2(t, method=method), in_dims=in_dim)(x)
    assert close(mapped, dct2(x.movedim(in_dim, 0)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision_gradients_are_the_float32_ones_cast(dtype):
    x = normal(8, 6).to(dtype).requires_grad_()
    weights = normal(8, 6, seed=1).to(dtype)
    dct2(x).backward(weights)
    assert x.grad.dtype == dtype
    assert torch.equal(x.grad, idct2(weights.float()).to(dtype))
