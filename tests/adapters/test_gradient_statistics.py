"""What is recorded of a backward pass, against dense transforms of the whole gradient."""

import pytest
import torch

from loca_theory.adapters.search.recording import handle_of, record
from loca_theory.adapters.search.statistics import GradientStatistics
from loca_theory.transforms import dct2

from .searching import normal

P, Q, ALPHA = 6, 9, 1.7
EVERYWHERE = torch.cartesian_prod(torch.arange(P), torch.arange(Q))
# In float64, sums of up to 1501 products. Equal terms round alike, and a sum may be off by 1501·U,
# U = 2⁻⁵³; a curvature is a product of two such sums, and so is its oracle: 7e-13. The terms of a
# gradient cancel to a tenth of their sum, and the transform of 54 entries may add up √54 errors:
# 1e-11. In float32, sums of at most 12 products and transforms of 9: (12 + 9 + 6)·6e-8, tenfold.
ROUNDING = {torch.float32: 2e-5, torch.float64: 1e-11}


def empty(shape=(P, Q), scaling=ALPHA, dtype=torch.float64):
    return GradientStatistics(shape, scaling, dtype, torch.device("cpu"))


def linear(x, seed=9):
    """A layer's output for this input, that asks for a gradient."""
    weight = normal(P, Q, seed=seed, dtype=x.dtype).requires_grad_()
    return x @ weight.T


def recorded_of(*passes):
    """The statistics of backward passes (x, g), of one step."""
    dtype = torch.promote_types(passes[0][0].dtype, torch.float32)
    statistics = empty(dtype=dtype)
    handle = handle_of(statistics)
    for x, g in passes:
        record(linear(x), x, handle).backward(g)
    statistics.keep()
    return statistics


def rows(tensor):
    return tensor.double().reshape(-1, tensor.shape[-1])


def gradient(*passes):
    return ALPHA * sum(dct2(rows(g).T @ rows(x)) for x, g in passes).flatten()


def curvature(*passes):
    """By the diagonals of the covariances C gᵀg Cᵀ and D xᵀx Dᵀ."""
    of_g = sum(dct2(rows(g).T @ rows(g)).diagonal() for _, g in passes)
    of_x = sum(dct2(rows(x).T @ rows(x)).diagonal() for x, _ in passes)
    return ALPHA**2 * torch.outer(of_g, of_x).flatten()


def assert_close(actual, expected, dtype):
    scale = float(expected.abs().max())
    assert actual.dtype == dtype
    tolerance = ROUNDING[dtype]
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance * scale)


def a_pass(*leading, seed=0, dtype=torch.float64):
    return normal(*leading, Q, seed=seed, dtype=dtype), normal(*leading, P, seed=seed + 50,
                                                               dtype=dtype)  # fmt: skip


PASSES = {
    "one row": [a_pass(1)],
    "a batch": [a_pass(5)],
    "sequences": [a_pass(3, 4)],
    "a single vector": [a_pass()],
    "several": [a_pass(5, seed=1), a_pass(2, 3, seed=2), a_pass(4, seed=3)],
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("passes", PASSES.values(), ids=PASSES)
def test_gradient_curvature_and_predicted_decreases_are_the_dense_ones(passes, dtype):
    """In half precision they are summed in single."""
    passes = [(x.to(dtype), g.to(dtype)) for x, g in passes]
    found, wide = recorded_of(*passes), torch.promote_types(dtype, torch.float32)
    z, h = gradient(*passes), curvature(*passes)
    assert found.has_gradient()
    assert_close(found.gradient(), z, wide)
    assert_close(found.curvature(EVERYWHERE, 1), h, wide)
    assert_close(found.predicted_decreases(use_curvature=False), z.square(), wide)
    assert_close(found.predicted_decreases(use_curvature=True), z.square() / h, wide)


def test_where_there_is_no_curvature_the_predicted_decrease_is_zero():
    found = recorded_of((torch.zeros(4, Q, dtype=torch.float64), normal(4, P)))
    assert not found.predicted_decreases(use_curvature=True).any()


def test_nothing_is_recorded_without_a_gradient():
    x, g = a_pass(3)
    recorded = empty()
    record(g, x, handle_of(recorded))  # an output without a graph
    record(linear(x), x, handle_of(recorded))  # no backward pass
    recorded.keep()
    assert not recorded.has_gradient()
    assert not recorded_of((x, torch.zeros_like(g))).has_gradient()
    assert not recorded_of(a_pass(0)).has_gradient()
    assert_close(recorded_of(a_pass(0), (x, g)).gradient(), gradient((x, g)), torch.float64)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf")], ids=str)
@pytest.mark.parametrize("where", ["input", "gradient"])
def test_what_is_not_finite_is_skipped_and_the_rest_is_kept(broken, where):
    good = a_pass(4, seed=1)
    x, g = a_pass(4, seed=2)
    (x if where == "input" else g)[1, 2] = broken
    assert not recorded_of((x, g)).has_gradient()
    assert_close(recorded_of(good, (x, g)).gradient(), gradient(good), torch.float64)
    assert_close(recorded_of((x, g), good).curvature(EVERYWHERE, 1), curvature(good), torch.float64)
