"""Bulk, spikes and tails of spectra whose truth is known."""

import numpy as np
import pytest
import torch
from scipy import special

from loca_theory.increments import eigenvalues, fit_bulk
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.increments.spectrum import (
    SPIKE_LEVEL,
    SPIKE_QUANTILE,
    edge_scaling,
    spectral_statistics,
    tail_exponent,
)


def spiked(p, q, sigma, strengths, seed=0):
    rng = np.random.default_rng(seed)
    w = sigma * rng.standard_normal((p, q))
    u = np.linalg.qr(rng.standard_normal((p, max(len(strengths), 1))))[0]
    v = np.linalg.qr(rng.standard_normal((q, max(len(strengths), 1))))[0]
    for i, strength in enumerate(strengths):
        w += strength * sigma * (np.sqrt(p) + np.sqrt(q)) * np.outer(u[:, i], v[:, i])
    return np.linalg.svd(w, compute_uv=False) ** 2


@pytest.mark.parametrize(("p", "q"), [(300, 300), (400, 100), (100, 400), (64, 48)])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_sigma_and_the_number_of_spikes_come_out(p, q, count):
    # A spike of strength θ gives a singular value clear of the edge from about 0.7 edges on.
    fit = fit_bulk(spiked(p, q, 3e-4, [20.0, 8.0, 4.0, 3.0, 2.0][:count]), p, q)
    # The quantiles of a rigid spectrum fix σ to about 1/min(p, q).
    assert fit.sigma == pytest.approx(3e-4, rel=2 / min(p, q))
    assert fit.spikes == count


def test_distances_and_mass_are_small_for_independent_and_large_for_low_rank():
    clean = fit_bulk(spiked(300, 300, 1.0, []), 300, 300)
    assert clean.kolmogorov < 0.02
    assert clean.wasserstein < 0.02
    assert clean.outlier_mass < 0.03
    heavy = fit_bulk(np.arange(1, 201) ** -2.0, 200, 200)
    assert heavy.kolmogorov > 0.3
    assert heavy.outlier_mass > 0.9


def random(*shape):
    return np.random.default_rng(list(shape)).standard_normal(shape)


def one_step_off():
    w = np.full((48, 40), np.float32(0.1))
    w[3, 4] = np.nextafter(w[3, 4], np.float32(1))
    return w


NO_BULK = {
    "constant": (np.full((48, 40), 0.1), 1),
    "constant but one last digit": (one_step_off(), 1),
    "rank 1 in single precision": ((random(48, 1) @ random(1, 40)).astype(np.float32), 1),
    "one row": (np.eye(48)[:, :1] @ random(1, 40), 1),
    "one entry": (np.eye(48)[:, :1] @ np.eye(40)[:1], 1),
    "rank 5": (random(48, 5) @ random(5, 40), 5),
}


@pytest.mark.parametrize(("w", "rank"), NO_BULK.values(), ids=NO_BULK.keys())
@pytest.mark.parametrize("scale", [1.0, 1e60, 1e-60])
def test_what_is_left_of_low_rank_is_no_bulk(w, rank, scale):
    fit = fit_bulk(squared_singular_values(w * np.float64(scale)), *w.shape)
    assert (fit.sigma, fit.kolmogorov, fit.wasserstein) == (None, None, None)
    assert (fit.spikes, fit.outlier_mass) == (rank, 1.0)


def test_zero_is_zero_where_single_precision_would_leave_noise(monkeypatch):
    """As matrices too large for double precision throughout are computed."""
    for name, value in (("DOUBLE_UP_TO", 8), ("_LOW_RANK", 10), ("_ROWS", 32)):
        monkeypatch.setattr(eigenvalues, name, value)
    sizes, solve = [], eigenvalues._eigenvalues
    monkeypatch.setattr(
        eigenvalues, "_eigenvalues", lambda gram: sizes.append(len(gram)) or solve(gram)
    )
    w = (random(80, 3) @ random(3, 60)).astype(np.float32)
    values = squared_singular_values(w)
    assert max(sizes) <= 20, "the whole matrix is not decomposed"
    assert np.count_nonzero(values) == 3
    np.testing.assert_allclose(
        values[-3:], np.linalg.svd(w.astype(np.float64))[1][2::-1] ** 2, rtol=1e-9
    )
    # Rank 10 and a weak rest: more than rounding, less than single precision sees in the squares.
    weak = (random(80, 10) @ random(10, 60) + 1e-4 * random(80, 60)).astype(np.float32)
    expected = np.linalg.svd(weak.astype(np.float64))[1][::-1] ** 2
    # Rounding a Gram matrix and solving it, in double precision: ε max(p, q) λ₁ each.
    bound = 2 * np.finfo(np.float64).eps * 80 * expected[-1]
    assert bound < 0.05 * expected[0]
    np.testing.assert_allclose(squared_singular_values(weak), expected, rtol=0, atol=bound)
    full = random(80, 60).astype(np.float32)
    np.testing.assert_allclose(
        squared_singular_values(full),
        np.linalg.svd(full.astype(np.float64))[1][::-1] ** 2,
        # A product of 80 terms and a solver, each within 80 roundings of the largest.
        atol=160 * np.finfo(np.float32).eps * float(np.square(full).sum()),
    )


@pytest.mark.parametrize("power", [-900, 900])
def test_a_fit_scales_with_the_eigenvalues(power):
    values = spiked(40, 30, 1.0, [5.0])
    plain, scaled = fit_bulk(values, 40, 30), fit_bulk(np.ldexp(values, power), 40, 30)
    assert scaled.sigma == np.ldexp(plain.sigma, power // 2)
    assert scaled.edge == np.ldexp(plain.edge, power)
    for name in ("spikes", "outlier_mass", "kolmogorov", "wasserstein"):
        assert getattr(scaled, name) == getattr(plain, name)


def test_t_is_the_share_outside_the_edges():
    eigenvalues = spiked(100, 50, 1.0, [5.0])
    sigma2 = eigenvalues.sum() / 5000
    low, high = ((10 - 50**0.5) ** 2 * sigma2, (10 + 50**0.5) ** 2 * sigma2)
    outside = (eigenvalues < low) | (eigenvalues > high)
    expected = eigenvalues[outside].sum() / eigenvalues.sum()
    assert spectral_statistics(eigenvalues, 100, 50)["T"] == pytest.approx(expected)


def tracy_widom_cdf(s):
    """F₁(s) = det(I − B), B(x, y) = Ai(x + y + s) on (0, ∞) (Ferrari and Spohn, 2005)."""
    nodes, weights = np.polynomial.legendre.leggauss(80)
    x, root = 9 * (nodes + 1), np.sqrt(9 * weights)
    kernel = special.airy(x[:, None] + x + s)[0]
    return np.linalg.det(np.eye(80) - root[:, None] * kernel * root)


def test_the_level_of_spikes_is_the_quantile_of_the_law():
    # Published to four decimals (Johnstone, 2001): 0.9793 is the 0.95 quantile.
    assert tracy_widom_cdf(0.9793) == pytest.approx(0.95, abs=1e-5)
    assert tracy_widom_cdf(SPIKE_QUANTILE) == pytest.approx(SPIKE_LEVEL, abs=1e-12)


def test_edge_scaling_is_johnstones_for_large_matrices():
    p, q = 4000, 1000
    centre, width = edge_scaling(p, q)
    # p − 1/2 and q − 1/2 in place of p − 1 and q change √p + √q by (1/√q − 1/√p)/4 to first order:
    # the centre by 8.4e-5 of itself, and the width, by the powers it has of both, by less.
    assert centre == pytest.approx((np.sqrt(p - 1) + np.sqrt(q)) ** 2, rel=1e-4)
    johnstone = (np.sqrt(p - 1) + np.sqrt(q)) * (1 / np.sqrt(p - 1) + 1 / np.sqrt(q)) ** (1 / 3)
    assert width == pytest.approx(johnstone, rel=2e-4)


@pytest.mark.parametrize("alpha", [2.0, 3.5])
def test_tail_exponent_of_a_power_law(alpha):
    rng = np.random.default_rng(0)
    x = (1 - rng.random(20_000)) ** (-1 / (alpha - 1))
    # The maximum likelihood estimate from all of them has error (α−1)/√n; fewer are used.
    assert tail_exponent(x) == pytest.approx(alpha, rel=0.08)
    assert tail_exponent(x[:5]) is None


@pytest.mark.parametrize("shape", [(80, 80), (50, 90), (90, 50)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_eigenvalues_are_squared_singular_values(shape, dtype):
    w = torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    expected = np.sort(torch.linalg.svdvals(w.double()).numpy() ** 2)
    np.testing.assert_allclose(squared_singular_values(w), expected, rtol=1e-9, atol=1e-9)
