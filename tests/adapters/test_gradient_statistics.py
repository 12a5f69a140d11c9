"""The gradient statistics of a backward pass, against dense transforms of the whole gradient."""

import pytest
import torch

from loca_theory.adapters.search.statistics import GradientStatistics
from loca_theory.transforms import dct2

from .searching import close, normal

P, Q, ALPHA = 6, 9, 1.7
EVERYWHERE = torch.cartesian_prod(torch.arange(P), torch.arange(Q))
# In float32, sums of at most 12 products and transforms of 9: (12 + 9 + 6)·6e-8, tenfold. The terms
# of a gradient cancel to a tenth of their sum.
ROUNDING = {torch.float32: 2e-5, torch.float64: 1e-11}


def recorded_of(*passes):
    """The statistics of backward passes (x, g), of one step; in single precision at least."""
    dtype = torch.promote_types(passes[0][0].dtype, torch.float32)
    statistics = GradientStatistics((P, Q), ALPHA, dtype, torch.device("cpu"))
    for x, g in passes:
        statistics.add(x, g)
    statistics.keep()
    return statistics


def assert_dense(statistics, *passes):
    """The curvature by the diagonals of the covariances C gᵀg Cᵀ and D xᵀx Dᵀ."""
    rows = [(x.double().reshape(-1, Q), g.double().reshape(-1, P)) for x, g in passes]
    z = ALPHA * sum(dct2(g.T @ x) for x, g in rows).flatten()
    of_g = sum(dct2(g.T @ g).diagonal() for _, g in rows)
    of_x = sum(dct2(x.T @ x).diagonal() for x, _ in rows)
    h = ALPHA**2 * torch.outer(of_g, of_x).flatten()
    for actual, expected in (
        (statistics.gradient(), z),
        (statistics.curvature(EVERYWHERE, 1), h),
        (statistics.predicted_decreases(use_curvature=False), z.square()),
        (statistics.predicted_decreases(use_curvature=True), z.square() / h),
    ):
        assert actual.dtype == statistics.gradient_sum.dtype
        close(actual.double(), expected, ROUNDING[actual.dtype])


def a_pass(*leading, seed=0):
    return normal(*leading, Q, seed=seed), normal(*leading, P, seed=seed + 50)


PASSES = {
    "one row": [a_pass(1)],
    "a single vector": [a_pass()],
    "several": [a_pass(5, seed=1), a_pass(2, 3, seed=2), a_pass(0), a_pass(4, seed=3)],
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("passes", PASSES.values(), ids=PASSES)
def test_gradient_curvature_and_predicted_decreases_are_the_dense_ones(passes, dtype):
    passes = [(x.to(dtype), g.to(dtype)) for x, g in passes]
    assert_dense(recorded_of(*passes), *passes)


def test_zeros_are_no_gradient_and_have_no_curvature():
    x, g = a_pass(4)
    assert not recorded_of((x, torch.zeros_like(g))).has_gradient()
    assert not recorded_of(a_pass(0)).has_gradient()
    assert not recorded_of((torch.zeros_like(x), g)).predicted_decreases(use_curvature=True).any()


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf")], ids=str)
@pytest.mark.parametrize("where", ["input", "gradient"])
def test_what_is_not_finite_is_skipped_and_the_rest_is_kept(broken, where):
    good = a_pass(4, seed=1)
    x, g = a_pass(4, seed=2)
    (x if where == "input" else g)[1, 2] = broken
    assert not recorded_of((x, g)).has_gradient()
    assert_dense(recorded_of(good, (x, g)), good)
    assert_dense(recorded_of((x, g), good), good)


@pytest.mark.parametrize("position", [0, -1], ids=["first token", "last token"])
def test_a_gradient_at_one_position_is_recorded_whatever_the_length(position):
    """As of a classifier that reads one token: many rows, few of them not zero, evenly spaced."""
    x, g = normal(64, 32, Q), torch.zeros(64, 32, P, dtype=torch.float64)
    g[:, position] = normal(64, P, seed=3)
    of_g = ALPHA**2 * dct2(torch.einsum("btp,btr->pr", g, g)).diagonal()
    # Along the outputs exactly; along the inputs the shape is that of some tokens, and the total
    # that of all.
    ratio = recorded_of((x, g)).curvature(EVERYWHERE, 1).view(P, Q) / of_g[:, None]
    assert torch.allclose(ratio, ratio[:1].expand(P, Q), rtol=1e-10)
    assert float(ratio[0].sum()) == pytest.approx(float(x.square().sum()), rel=1e-10)
