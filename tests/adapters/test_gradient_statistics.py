"""What is seen of a backward pass, against dense transforms of the whole gradient."""

import pytest
import torch

from loca_theory.adapters import CosineSpectrum
from loca_theory.adapters.gradient_statistics import GradientStatistics, record
from loca_theory.transforms import dct2

P, Q, ALPHA = 6, 9, 1.7
EVERYWHERE = torch.cartesian_prod(torch.arange(P), torch.arange(Q))
# In float64, sums of up to 1501 products. Equal terms round alike, and a sum may be off by 1501·U,
# U = 2⁻⁵³; a curvature is a product of two such sums, and so is its oracle: 7e-13. The terms of a
# gradient cancel to a tenth of their sum, and the transform of 54 entries may add up √54 errors:
# 1e-11. In float32, sums of at most 12 products and transforms of 9: (12 + 9 + 6)·6e-8, tenfold.
ROUNDING = {torch.float32: 2e-5, torch.float64: 1e-11}


def normal(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype)


def watching(shape=(P, Q), scaling=ALPHA, dtype=torch.float64):
    return GradientStatistics(shape, scaling, dtype, torch.device("cpu"))


def linear(x, seed=9):
    """A layer's output for this input, that asks for a gradient."""
    weight = normal(P, Q, seed=seed, dtype=x.dtype).requires_grad_()
    return x @ weight.T


def seen_of(*passes):
    """An observation of backward passes (x, g)."""
    dtype = torch.promote_types(passes[0][0].dtype, torch.float32)
    statistics = watching(dtype=dtype)
    for x, g in passes:
        y = linear(x)
        y = record(statistics, x, y)
        y.backward(g)
    return statistics


def rows(tensor):
    return tensor.double().reshape(-1, tensor.shape[-1])


def spectrum_of_rows(tensor):
    """The cosine transform of every row, by that of one row at a time."""
    return torch.cat([dct2(row[None]) for row in rows(tensor)])


def gradient(*passes):
    return ALPHA * sum(dct2(rows(g).T @ rows(x)) for x, g in passes).flatten()


def curvature(*passes):
    """By the diagonals of the covariances C gᵀg Cᵀ and D xᵀx Dᵀ."""
    of_g = sum(dct2(rows(g).T @ rows(g)).diagonal() for _, g in passes)
    of_x = sum(dct2(rows(x).T @ rows(x)).diagonal() for x, _ in passes)
    return ALPHA**2 * torch.outer(of_g, of_x).flatten()


def assert_close(actual, expected, dtype):
    scale = float(expected.abs().max())
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("passes", PASSES.values(), ids=PASSES)
def test_gradient_and_curvature_are_the_dense_ones(passes, dtype):
    passes = [(x.to(dtype), g.to(dtype)) for x, g in passes]
    seen = seen_of(*passes)
    assert seen
    assert seen.gradient().dtype == seen.curvature(EVERYWHERE).dtype == dtype
    assert seen.gradient().shape == (P * Q,)
    assert_close(seen.gradient(), gradient(*passes), dtype)
    assert_close(seen.curvature(EVERYWHERE), curvature(*passes), dtype)


@pytest.mark.parametrize("passes", PASSES.values(), ids=PASSES)
def test_gains_are_the_square_of_the_gradient_over_the_curvature(passes):
    seen = seen_of(*passes)
    expected = gradient(*passes).square()
    assert_close(seen.predicted_decreases(use_curvature=False), expected, torch.float64)
    assert_close(
        seen.predicted_decreases(use_curvature=True), expected / curvature(*passes), torch.float64
    )


def test_where_there_is_no_curvature_there_is_no_gain():
    predicted_decreases = seen_of(
        (torch.zeros(4, Q, dtype=torch.float64), normal(4, P))
    ).predicted_decreases(use_curvature=True)
    assert not predicted_decreases.any()
    assert predicted_decreases.isfinite().all()


def test_the_curvature_is_the_product_of_the_sums_of_squares_of_the_spectra():
    x, g = a_pass(4)
    # Rows become columns, and what is transformed along them a spectrum of one side alone.
    of_x = torch.stack([dct2(row[None])[0] for row in x])
    of_g = torch.stack([dct2(row[None])[0] for row in g])
    expected = torch.outer(of_g.square().sum(0), of_x.square().sum(0)).flatten()
    assert_close(seen_of((x, g)).curvature(EVERYWHERE), ALPHA**2 * expected, torch.float64)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_summed_in_single(dtype):
    passes = [a_pass(7, seed=seed, dtype=dtype) for seed in (1, 2)]
    seen = seen_of(*passes)
    assert seen.gradient().dtype == torch.float32
    assert_close(seen.gradient(), gradient(*passes), torch.float32)
    assert_close(seen.curvature(EVERYWHERE), curvature(*passes), torch.float32)


def test_two_calls_of_one_graph_are_summed():
    (x, g), (other, of_other) = a_pass(4, seed=1), a_pass(3, seed=2)
    seen = watching()
    outputs = [record(seen, given, linear(given)) for given in (x, other)]
    ((outputs[0] * g).sum() + (outputs[1] * of_other).sum()).backward()
    assert_close(seen.gradient(), gradient((x, g), (other, of_other)), torch.float64)
    assert_close(seen.curvature(EVERYWHERE), curvature((x, g), (other, of_other)), torch.float64)


def test_many_tokens_are_all_in_the_gradient():
    x, g = a_pass(1500)
    assert_close(seen_of((x, g)).gradient(), gradient((x, g)), torch.float64)


def test_the_curvature_of_many_tokens_counts_them_all():
    # Equal ones, so that it does not matter which of them it is estimated from.
    x, g = (part.expand(1501, -1) for part in a_pass(1))
    assert_close(seen_of((x, g)).curvature(EVERYWHERE), curvature((x, g)), torch.float64)


def test_an_empty_batch_is_nothing_seen():
    x, g = a_pass(0)
    good = a_pass(3)
    assert not seen_of((x, g))
    assert_close(seen_of((x, g), good).gradient(), gradient(good), torch.float64)


def test_parts_of_a_mean_are_as_good_as_the_whole():
    x, g = a_pass(8)
    halves = [(x[:4], g[:4]), (x[4:], g[4:])]
    whole, parts = seen_of((x, g)), seen_of(*halves)
    assert_close(parts.gradient(), whole.gradient(), torch.float64)
    assert_close(parts.curvature(EVERYWHERE), whole.curvature(EVERYWHERE), torch.float64)


def test_without_a_backward_pass_nothing_is_seen():
    seen = watching()
    assert not seen
    x, _ = a_pass(3)
    record(seen, x, linear(x))
    assert not seen


def test_an_output_without_gradient_is_no_error_and_not_seen():
    seen = watching()
    x, g = a_pass(3)
    record(seen, x, g)
    assert not seen


def test_gradients_of_zero_are_nothing_seen():
    x, g = a_pass(3)
    assert not seen_of((x, torch.zeros_like(g)))


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf")], ids=str)
@pytest.mark.parametrize("where", ["input", "gradient"])
def test_what_is_not_finite_is_skipped_and_the_rest_is_kept(broken, where):
    good = a_pass(4, seed=1)
    x, g = a_pass(4, seed=2)
    (x if where == "input" else g)[1, 2] = broken
    assert not seen_of((x, g))
    assert_close(seen_of(good, (x, g)).gradient(), gradient(good), torch.float64)
    assert_close(seen_of((x, g), good).curvature(EVERYWHERE), curvature(good), torch.float64)


def test_the_input_may_ask_for_a_gradient_and_gets_its_own():
    x, g = a_pass(4)
    plain, watched = (x.clone().requires_grad_() for _ in range(2))
    linear(plain).backward(g)
    seen = watching()
    y = linear(watched)
    y = record(seen, watched, y)
    y.backward(g)
    assert torch.equal(watched.grad, plain.grad)
    assert not seen.gradient().requires_grad


@pytest.mark.parametrize("implementation", ["auto", "implicit", "dense", "fft", "sparse"])
def test_coefficients_have_the_gradient_that_is_seen_at_their_locations(implementation):
    layer = CosineSpectrum(
        (P, Q), 7, scaling=ALPHA, zero_init=False, implementation=implementation,
        location_search="reselect",
    ).double()  # fmt: skip
    x, g = a_pass(2, 5)
    seen = watching()
    y = layer(x)
    y = record(seen, x, y)
    y.backward(g)
    at_indices = seen.gradient().view(P, Q)[layer.indices[:, 0], layer.indices[:, 1]]
    assert_close(layer.coefficients.grad, at_indices, torch.float64)


@pytest.mark.parametrize("shape", [(1, 1), (1, 8), (8, 1)], ids=str)
def test_thin_layers_are_seen_too(shape):
    p, q = shape
    x, g = normal(4, q), normal(4, p, seed=1)
    seen = watching(shape, 1.0)
    y = x @ normal(p, q, seed=2).requires_grad_().T
    y = record(seen, x, y)
    y.backward(g)
    assert_close(seen.gradient(), dct2(g.T @ x).flatten(), torch.float64)
