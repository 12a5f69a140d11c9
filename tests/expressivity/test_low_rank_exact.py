"""Exact energies of leading singular values: closed forms, identities, dense decompositions."""

import math

import numpy as np
import pytest
from scipy import integrate, special, stats
from threadpoolctl import threadpool_info, threadpool_limits

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import low_rank_exact
from loca_theory.expressivity.bidiagonal import sample_leading_eigenvalues
from loca_theory.expressivity.low_rank_exact import LARGEST_EXACT_RANK, expected_leading_energy
from loca_theory.expressivity.wishart_kernel import _last_coefficient, laguerre_functions

from . import pfaffian_oracle

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


@all_shapes
def test_energies_are_positive_and_decreasing(p, q):
    each = np.diff(expected_leading_energy(p, q))
    assert (each > 0).all()
    assert (np.diff(each) < 0).all()


@pytest.mark.parametrize("shape", [(3, 7), (4, 4), (1, 9), (12, 5)], ids=str)
def test_transposition_changes_nothing(shape):
    p, q = shape
    np.testing.assert_array_equal(expected_leading_energy(p, q), expected_leading_energy(q, p))


@pytest.mark.parametrize("q", [1, 2, 40, 1000], ids=lambda q: f"1x{q}")
def test_a_single_row_is_one_singular_value(q):
    np.testing.assert_allclose(expected_leading_energy(1, q), [0, q], rtol=PROMISED)


def test_the_result_is_the_callers_own():
    expected_leading_energy(5, 5)[:] = -1
    assert expected_leading_energy(5, 5)[-1] == pytest.approx(25)


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


@pytest.mark.parametrize(
    ("p", "q"),
    [
        *((1, 1), (2, 2), (3, 3), (8, 5), (20, 20), (31, 31), (40, 13)),
        pytest.param(40, 40, marks=pytest.mark.deep),
        pytest.param(5000, 40, marks=pytest.mark.deep),
    ],
)
def test_pfaffians_agree(p, q):
    """The oracle has moments by quadrature, roots of unity, and no eigenvalues."""
    expected = pfaffian_oracle.expected_leading_energy(p, q)
    np.testing.assert_allclose(expected_leading_energy(p, q), expected, rtol=PROMISED)
    for r in {1, q // 3, q // 2} - {0}:  # only the upper end of the spectrum is computed
        np.testing.assert_allclose(
            expected_leading_energy(p, q, r), expected[: r + 1], rtol=PROMISED
        )


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


@pytest.mark.parametrize("shape", [(1, 1), (7, 1), (4, 4), (9, 5), (40, 12), (300, 300)], ids=str)
def test_the_number_above_a_level_is_a_sum_of_indicators(shape, monkeypatch):
    """Unclipped, the eigenvalues are probabilities, decrease with the level, and are double.

    The largest differs from 1 by what the basis functions leave out.
    """
    p, q = shape

    def raw(matrices, count):
        values = -np.sort(-np.linalg.eigvals(matrices).real, axis=1)[:, : 2 * count]
        pairs = values[:, : values.shape[1] // 2 * 2].reshape(len(values), -1, 2)
        assert np.abs(pairs[..., 0] - pairs[..., 1]).max(initial=0) < 1e-6
        mean = np.zeros((len(values), count))
        mean[:, : pairs.shape[1]] = pairs.mean(axis=-1)
        return mean

    monkeypatch.setattr(low_rank_exact, "_double_eigenvalues", raw)
    _, levels, _, minus, plus = low_rank_exact._indicators(p, q, min(q, 10), 1.0)
    for chances in (minus, plus):
        assert chances.min(initial=0) > -1e-9
        assert chances.max(initial=1) < 1 + 1e-9
        assert (np.diff(chances.sum(axis=1)) > -1e-9).all()  # the levels decrease
    np.testing.assert_allclose(
        plus.sum(axis=1) - minus.sum(axis=1), probability_of_odd(p, q, levels), atol=1e-11
    )


def probability_of_odd(p, q, levels):
    """P(N(τ) odd): the integral above τ of the last Laguerre function, times its coefficient."""
    x, w = np.polynomial.legendre.leggauss(400)
    above = []
    for level in levels:
        half = 0.5 * (math.sqrt(p) + math.sqrt(q) + 9 - level)
        *_, (values, _) = laguerre_functions(p, q, level + half * (1 + x))
        above.append(half * values[-1] @ w)
    return _last_coefficient(p, q) * np.array(above)


def skew(size, rng):
    a = rng.standard_normal((3, size, size)) + 1j * rng.standard_normal((3, size, size))
    return a - a.transpose(0, 2, 1)


def test_pfaffian_of_four_rows_in_closed_form():
    a = skew(4, np.random.default_rng(1))
    expected = a[:, 0, 1] * a[:, 2, 3] - a[:, 0, 2] * a[:, 1, 3] + a[:, 0, 3] * a[:, 1, 2]
    np.testing.assert_allclose(pfaffian_oracle.pfaffian(a), expected, rtol=1e-12)


def test_pfaffian_of_four_rows_that_need_pivots():
    a = np.zeros((1, 4, 4), dtype=complex)
    a[0, 0, 2], a[0, 1, 3] = 2, 5
    np.testing.assert_allclose(pfaffian_oracle.pfaffian(a - a.transpose(0, 2, 1)), [-10])
    assert pfaffian_oracle.pfaffian(np.zeros((1, 4, 4), dtype=complex)) == 0


@pytest.mark.parametrize("size", [2, 6, 8, 20], ids=lambda size: f"{size} rows")
def test_pfaffians_are_roots_of_determinants(size):
    a = skew(size, np.random.default_rng(2))
    np.testing.assert_allclose(pfaffian_oracle.pfaffian(a) ** 2, np.linalg.det(a), rtol=1e-9)


def test_pfaffian_changes_sign_when_two_rows_are_swapped_and_their_columns():
    a = skew(6, np.random.default_rng(3))
    order = [0, 4, 2, 3, 1, 5]
    np.testing.assert_allclose(
        pfaffian_oracle.pfaffian(a[:, order][:, :, order]), -pfaffian_oracle.pfaffian(a), rtol=1e-12
    )


def test_the_law_of_the_number_above_a_threshold_for_one_column():
    """q = 1: the only singular value is a χ_p variable."""
    _, tau, _, below, ordered = pfaffian_oracle.ordered_integrals(7, 1)
    law = pfaffian_oracle.count_law(below[:-1], ordered[:-1], below[-1], ordered[-1])
    above = stats.chi(7).sf(tau[:-1])
    np.testing.assert_allclose(law, np.stack([1 - above, above], axis=1), atol=1e-10)


@pytest.mark.parametrize("shape", [(4, 4), (9, 5)], ids=str)
def test_the_law_of_the_number_above_a_threshold_is_a_law(shape):
    _, tau, _, below, ordered = pfaffian_oracle.ordered_integrals(*shape)
    law = pfaffian_oracle.count_law(below[:-1], ordered[:-1], below[-1], ordered[-1])
    assert law.shape == (len(tau) - 1, shape[1] + 1)
    assert law.min() > -1e-10
    np.testing.assert_allclose(law.sum(axis=1), 1, atol=1e-10)
    mean = law @ np.arange(shape[1] + 1)
    assert (np.diff(mean) < 1e-10).all()


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


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((300, 300, 257), "300x300 matrix need 1 <= r <= 256, not 257; use the Monte Carlo"),
        ((300, 300, None), "need 1 <= r <= 256, not 300; use the Monte Carlo"),
        ((5, 9, 6), "5x9 matrix need 1 <= r <= 5, not 6"),
        ((5, 9, 0), "need 1 <= r <= 5, not 0"),
        ((10**6, 10**6, 1), r"need min\(p, q\) <= 131072, not 1000000x1000000; use the Monte"),
        ((0, 3, 1), "at least one row and one column, not 0x3"),
        ((3, 0, None), "at least one row and one column, not 3x0"),
    ],
    ids=str,
)
def test_sizes_out_of_range_are_refused(shape, message):
    assert LARGEST_EXACT_RANK == 256
    with pytest.raises(InvalidArgumentError, match=message):
        expected_leading_energy(*shape)
