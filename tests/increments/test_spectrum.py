"""Bulk, spikes and tails of spectra whose truth is known."""

import numpy as np
import pytest
import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.increments import (
    fit_bulk,
    leading_squared_singular_values,
    spectral_statistics,
    squared_singular_values,
    stable_rank,
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


def test_the_mean_square_would_be_inflated_where_the_fit_is_not():
    eigenvalues = spiked(200, 200, 1.0, [30.0])
    naive = np.sqrt(eigenvalues.sum() / 200**2)
    assert naive > 4
    assert fit_bulk(eigenvalues, 200, 200).sigma == pytest.approx(1.0, abs=0.01)


def test_no_spikes_in_independent_entries_but_at_the_stated_rate():
    found = [fit_bulk(spiked(40, 40, 1.0, [], seed), 40, 40).spikes > 0 for seed in range(200)]
    # The level is 0.01; the law's finite-size error and σ's own are of the same order.
    assert np.mean(found) < 0.01 + 4.5 * np.sqrt(0.01 * 0.99 / 200)


def test_distances_and_mass_are_small_for_independent_and_large_for_low_rank():
    clean = fit_bulk(spiked(300, 300, 1.0, []), 300, 300)
    assert clean.kolmogorov < 0.02
    assert clean.wasserstein < 0.02
    assert clean.outlier_mass < 0.03
    heavy = fit_bulk(np.arange(1, 201) ** -2.0, 200, 200)
    assert heavy.kolmogorov > 0.3
    assert heavy.outlier_mass > 0.9


def test_low_rank_has_a_fit_too():
    fit = fit_bulk(np.r_[np.zeros(92), np.ones(8)], 100, 120)
    assert fit.spikes == 8
    assert fit.outlier_mass == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [[1.0], [1.0, np.nan, 1.0], [0.0, 0.0, 0.0]])
def test_refusals(bad):
    with pytest.raises(InvalidArgumentError, match="needs the 3 finite eigenvalues"):
        fit_bulk(np.array(bad), 3, 3)


def test_t_is_the_share_outside_the_edges():
    eigenvalues = spiked(100, 50, 1.0, [5.0])
    sigma2 = eigenvalues.sum() / 5000
    low, high = ((10 - 50**0.5) ** 2 * sigma2, (10 + 50**0.5) ** 2 * sigma2)
    outside = (eigenvalues < low) | (eigenvalues > high)
    expected = eigenvalues[outside].sum() / eigenvalues.sum()
    assert spectral_statistics(eigenvalues, 100, 50)["T"] == pytest.approx(expected)


def test_stable_rank():
    assert stable_rank(np.array([4.0, 2.0, 2.0])) == 2.0


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


@pytest.mark.parametrize("shape", [(900, 900), (1400, 800), (800, 1400)])
def test_leading_eigenvalues_of_independent_entries(shape):
    w = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    expected = squared_singular_values(w)[::-1][:16]
    found = leading_squared_singular_values(w, 16, np.random.default_rng(0))
    assert np.all(found <= expected * (1 + 1e-5))
    assert found.sum() == pytest.approx(expected.sum(), rel=1e-3)
    assert found[0] == pytest.approx(expected[0], rel=1e-3)


def test_leading_eigenvalues_of_a_small_matrix_are_exact():
    w = torch.randn(40, 60, generator=torch.Generator().manual_seed(0))
    found = leading_squared_singular_values(w, 5, np.random.default_rng(0))
    np.testing.assert_allclose(found, squared_singular_values(w)[::-1][:5])
