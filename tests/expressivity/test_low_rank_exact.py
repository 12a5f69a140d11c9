"""Exact energies of leading singular values: closed forms, identities, dense decompositions."""

import math

import numpy as np
import pytest
from scipy import integrate, special, stats
from threadpoolctl import threadpool_info, threadpool_limits

from loca_theory.expressivity.laws import low_rank_exact
from loca_theory.expressivity.laws.bidiagonal import sample_leading_eigenvalues
from loca_theory.expressivity.laws.low_rank_exact import expected_leading_energy

PROMISED = 1e-12


def test_the_smallest_square_matrix_by_hand():
    np.testing.assert_allclose(
        expected_leading_energy(2, 2), [0, 2 + math.pi / 2, 4], rtol=PROMISED
    )


@pytest.mark.parametrize("p", [2, 3, 4, 10, 1000, 10**6], ids=lambda p: f"{p}x2")
def test_two_columns_in_closed_form(p):
    """2√det/tr ~ Beta(p − 1, 1) independent of the trace, so λ₁ − λ₂ = tr √(1 − B²) on average is

    2p (p−1)/2 B((p−1)/2, 3/2), with the beta function at the end.
    """
    gap = p * (p - 1) * special.beta((p - 1) / 2, 1.5)
    expected = [0, (2 * p + gap) / 2, 2 * p]
    np.testing.assert_allclose(expected_leading_energy(p, 2), expected, rtol=PROMISED)


@pytest.mark.parametrize(
    "q", [1, 2, 3, 16, pytest.param(40, marks=pytest.mark.deep)], ids=lambda q: f"{q + 1}x{q}"
)
def test_one_row_more_than_columns(q):
    """λ_min of a (q+1)×q matrix is exponential with mean 2/q (Edelman, 1988)."""
    energies = expected_leading_energy(q + 1, q)
    assert q * (q + 1) - energies[q - 1] == pytest.approx(2 / q, abs=PROMISED * energies[-1])


@pytest.mark.parametrize("K", [2, 3, 4, 6, 9], ids=lambda K: f"{K}x{K}")
def test_the_smallest_eigenvalue_of_a_square_matrix(K):
    """Density n Γ((n+1)/2)/√(2π) x^(−1/2) e^(−nx/2) U((n−1)/2, −1/2, x/2) (Edelman, 1988)."""
    constant = K * special.gamma((K + 1) / 2) / math.sqrt(2 * math.pi)

    def integrand(z):
        x = z * z
        tricomi = special.hyperu((K - 1) / 2, -0.5, x / 2)
        return 2 * x * constant * math.exp(-K * x / 2) * tricomi

    smallest = integrate.quad(integrand, 0, 12 / math.sqrt(K), epsabs=0, epsrel=1e-13)[0]
    energies = expected_leading_energy(K, K)
    assert K * K - energies[K - 1] == pytest.approx(smallest, abs=PROMISED * K * K)


SHAPES = [(1, 1), (2, 2), (3, 3), (5, 4), (4, 9), (8, 8), (17, 30), (6, 2000)]
SHAPES += [(10, 10**5), (1, 10**7)]
LARGEST = pytest.param(40, 40, marks=pytest.mark.deep, id="40x40")
all_shapes = pytest.mark.parametrize(
    ("p", "q"), [*(pytest.param(p, q, id=f"{p}x{q}") for p, q in SHAPES), LARGEST]
)


@all_shapes
def test_all_singular_values_hold_the_whole_energy(p, q):
    """E Σ σ² = E ‖W‖² = pq: the last of the integrals is known beforehand."""
    energies = expected_leading_energy(p, q)
    assert energies.shape == (min(p, q) + 1,)
    assert energies[0] == 0
    assert energies[-1] == pytest.approx(p * q, rel=PROMISED)


def test_the_result_is_the_callers_own():
    expected_leading_energy(5, 5)[:] = -1
    assert expected_leading_energy(5, 5)[-1] == pytest.approx(25)


# Of an algorithm without eigenvalues: Pfaffians of the law of the number above a threshold, at
# roots of unity, with moments by quadrature. Only the upper end of the spectrum is computed here.
BY_PFAFFIANS = [
    (3, 3, {1: 6.732050807568887}),
    (8, 5, {1: 18.701252264225484, 2: 29.61140851422548}),
    (20, 20, {1: 70.19863129249674, 6: 281.35727386400333, 10: 359.0521730537354}),
    (31, 31, {1: 112.82541418887045, 10: 702.770249482838, 15: 851.2081407914076}),
    (40, 13, {1: 87.76613197429656, 4: 278.749141144684, 6: 367.25462218849947}),
]


@pytest.mark.parametrize(("p", "q", "energies"), BY_PFAFFIANS)
def test_energies_are_those_of_pfaffians(p, q, energies):
    for r, expected in energies.items():
        assert expected_leading_energy(p, q, r)[r] == pytest.approx(expected, rel=PROMISED)


DENSE = [(2, 2), (3, 3), (4, 4), (5, 3), (3, 8), (9, 9), (12, 20), (24, 24)]
DRAWS = 4000
# One two-sided comparison for each r < min(p, q) of each shape; together false once in 10⁴ seeds.
COMPARISONS = sum(min(shape) - 1 for shape in DENSE)


@pytest.mark.parametrize(("p", "q"), DENSE, ids=[f"{p}x{q}" for p, q in DENSE])
def test_dense_decompositions_agree(p, q):
    """Energies relative to the draw's own ‖W‖², which is independent of them and has mean pq."""
    rng = np.random.default_rng([p, q])
    values = np.linalg.svd(rng.standard_normal((DRAWS, p, q)), compute_uv=False) ** 2
    fractions = (np.cumsum(values, axis=1) / values.sum(axis=1, keepdims=True))[:, :-1]
    errors = fractions.std(axis=0, ddof=1) / math.sqrt(DRAWS)
    t = (fractions.mean(axis=0) - expected_leading_energy(p, q)[1:-1] / (p * q)) / errors
    limit = stats.t(DRAWS - 1).isf(1e-4 / 2 / COMPARISONS)
    assert np.abs(t).max() < limit


GRIDS = [(137, 137, 32), (300, 300, 8), (768, 768, 32), (4096, 512, 16)]
DEEP_GRIDS = [(300, 300, 99), (768, 768, 128), (4096, 4096, 32), (4096, 4096, 128)]
DEEP_GRIDS += [(16384, 16384, 16), (10**6, 300, 32), (256, 256, 256)]


@pytest.mark.parametrize(
    ("p", "q", "r"), [*GRIDS, *(pytest.param(*one, marks=pytest.mark.deep) for one in DEEP_GRIDS)]
)
def test_two_grids_agree(p, q, r):
    other = expected_leading_energy(p, q, r, refinement=1.25)
    np.testing.assert_allclose(expected_leading_energy(p, q, r), other, rtol=PROMISED)


@pytest.mark.parametrize(("p", "q", "r"), [(60, 60, 6), (300, 150, 20)])
def test_the_rest_of_the_spectrum_does_not_matter(p, q, r, monkeypatch):
    """Levels further down, more units of the edge, finer matrices: the same value."""
    expected = expected_leading_energy(p, q, r)
    monkeypatch.setattr(low_rank_exact, "_MORE_VALUES", 18)
    monkeypatch.setattr(low_rank_exact, "_LARGEST_UNITS", 20.0)
    monkeypatch.setattr(low_rank_exact, "_NEGLIGIBLE", 1e-15)
    monkeypatch.setattr(low_rank_exact, "_LEVELS", 7)
    again = low_rank_exact._leading_energy.__wrapped__(p, q, r, 1.0)
    np.testing.assert_allclose(again, expected, rtol=PROMISED)


SIMULATED = [(137, 137, 40), (300, 300, 32), (768, 768, 32), (768, 3072, 16), (4096, 4096, 32)]


@pytest.mark.parametrize(("p", "q", "r"), SIMULATED)
def test_the_bidiagonal_sampler_agrees(p, q, r):
    """One two-sided comparison per shape, of the retained energy summed over the ranks.

    False once in 10⁴ seeds over all shapes.
    """
    draws, rng = 60, np.random.default_rng([p, q, 3])
    fractions = np.empty(draws)
    for draw in range(draws):
        values, total = sample_leading_eigenvalues(p, q, r, rng)
        fractions[draw] = np.cumsum(values).sum() / total
    expected = expected_leading_energy(p, q, r).sum() / (p * q)
    error = fractions.std(ddof=1) / math.sqrt(draws)
    limit = stats.t(draws - 1).isf(1e-4 / 2 / len(SIMULATED))
    assert abs(fractions.mean() - expected) < limit * error


def test_the_small_matrices_are_computed_with_one_thread(monkeypatch):
    """Whatever the caller has set; more threads would only wait for one another."""
    seen = set()
    indicators = low_rank_exact._indicators

    def spy(*args):
        seen.update(one["num_threads"] for one in threadpool_info())
        return indicators(*args)

    monkeypatch.setattr(low_rank_exact, "_indicators", spy)
    with threadpool_limits(2):
        low_rank_exact._leading_energy.__wrapped__(5, 4, 2, 1.0)
    assert seen == {1}
