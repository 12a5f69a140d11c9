r"""Expected sums of the largest of independent χ² variables, without simulation.

For n i.i.d. variables with survival function S and density f, a variable that equals x is among
the N largest iff fewer than N of the other n − 1 exceed x, hence

.. math:: E\Bigl[\sum_{i\le N} X_{(i)}\Bigr]
          = n \int x f(x)\, P\{\mathrm{Bin}(n-1, S(x)) < N\}\, dx .

The probability is a regularised incomplete beta function: a step, smoothed over a few standard
deviations of the binomial. Gauss–Legendre quadrature in z = √x resolves the step. Above the step
the probability is 1 and the integral has the closed form
:math:`\int_x^\infty t f_k(t)\,dt = k\, S_{k+2}(x)`; below it the probability is 0. In z the
integrand is analytic down to 0 and up to the far tail, where a quantile transform would have a
logarithmic singularity.

Source: the sums of E φ_(i) and E ψ_(i) in the paper's proof of Theorem 1, which leaves them to
"numerical calculation". The paper's lemma prints the density of the l-th *smallest* as that of the
l-th largest.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from loca_theory._types import Array
from loca_theory.transforms.half_spectrum import HalfSpectrum


@cache
def _gauss_legendre(count: int) -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(count)


def on_panels(edges: ArrayLike, count: int = 48) -> tuple[Array, Array]:
    """Nodes and weights of Gauss–Legendre quadrature, ``count`` between neighbouring edges."""
    nodes, weights = _gauss_legendre(count)
    low, half = np.asarray(edges)[:-1, None], 0.5 * np.diff(edges)[:, None]
    return (low + half * (1 + nodes)).ravel(), (half * weights).ravel()


def around_step(smallest: int, largest: int, variance: float, negligible: float) -> list[float]:
    """Means of a count, the largest first, between which it can lie on either side of N.

    It is on one side of N, except with probability 1e-18, if its mean is 9 standard deviations (the
    bulk) plus 45 (the Chernoff bound, for a small N) away; ``smallest`` ≤ N ≤ ``largest``.
    """
    reach = 9 * np.sqrt(max(variance, 0.0)) + 45
    means = [largest + reach, largest + reach / 3, smallest - reach / 3, smallest - reach]
    if means[-1] > 0:
        return means
    # The step reaches into the far tail: extend the panels until the rest is negligible.
    return [*(mean for mean in means if mean > smallest), smallest, smallest / 8, negligible]


def survival(x: Array | np.float64, df: int) -> Array:
    """P(χ²_df > x); for df = 1, 2, 3, 4 in elementary functions and erfc."""
    half = 0.5 * x
    match df:
        case 1:
            return special.erfc(np.sqrt(half))
        case 2:
            return np.exp(-half)
        case 3:
            return special.erfc(np.sqrt(half)) + np.sqrt(2 / np.pi * x) * np.exp(-half)
        case 4:
            return (1 + half) * np.exp(-half)
        case _:
            return np.asarray(special.gammaincc(df / 2, half), dtype=np.float64)


def upper_quantile(u: Array, df: int) -> Array:
    """The x with P(χ²_df > x) = u."""
    match df:
        case 1:
            return special.ndtri(0.5 * u) ** 2
        case 2:
            return -2.0 * np.log(u)
        case _:
            return np.asarray(2.0 * special.gammainccinv(df / 2, u), dtype=np.float64)


def _density_in_z(z: Array, df: int) -> Array:
    """f_df(z²)·2z."""
    gaussian = np.exp(-0.5 * z * z)
    match df:
        case 1:
            return np.sqrt(2 / np.pi) * gaussian
        case 2:
            return z * gaussian
        case _:
            constant = (df / 2 - 1) * np.log(2) + special.gammaln(df / 2)
            return np.exp((df - 1) * np.log(z) - 0.5 * z * z - constant)


def _fewer_than(count: int, n: int, u: Array) -> Array:
    """P(Bin(n, u) < count)."""
    if count <= 0 or count > n:
        return np.full_like(u, float(count > n))
    if u.min() > 1e-3:  # twice as fast, and 1 - u still has all the digits that matter
        return special.betainc(n - count + 1, count, 1.0 - u)
    return special.betaincc(count, n - count + 1, u)


def _panels(n: int, smallest: int, largest: int, df: int) -> tuple[Array, Array, float]:
    """Nodes and weights in z across the step of P(Bin(n, S(z²)) < N), smallest ≤ N ≤ largest.

    Also returns the z above which that probability is 1 (to 1e-18).
    """
    means = around_step(smallest, largest, largest * (1 - smallest / n), 1e-20)
    u = np.minimum(np.array(means) / n, 1.0)
    edges = np.unique(np.sqrt(upper_quantile(u, df)))
    return *on_panels(edges), float(edges[-1])


def expected_minimum(chances: Array, count: int) -> Array:
    """E min(k, B), k = 0, …, count, for sums B of independent indicators (Poisson-binomial).

    Returns:
        One row per sum, of length count + 1.
    """
    law = np.zeros((len(chances), count + 1))
    law[:, 0] = 1.0
    for chance in chances.T[:, :, None]:
        law[:, 1:] += chance * (law[:, :-1] - law[:, 1:])
        law[:, :1] *= 1 - chance
    # E min(k, B) = Σ_{j<k} P(B > j).
    exceeded = 1 - np.cumsum(law[:, :count], axis=1)
    return np.cumsum(np.hstack([np.zeros((len(law), 1)), exceeded]), axis=1)


def expected_top_sum(n: int, count: int, df: int) -> float:
    """Expected sum of the ``count`` largest of n i.i.d. χ²_df variables.

    Returns:
        The expectation, with a relative error of about 1e-13.
    """
    if count == 0 or n == 0:
        return 0.0
    if count >= n:
        return float(n * df)
    z, weights, high = _panels(n, count, count, df)
    x = z * z
    inside = weights * x * _density_in_z(z, df) * _fewer_than(count, n - 1, survival(x, df))
    above = df * survival(np.float64(high * high), df + 2)
    return float(n * (inside.sum() + above))


def expected_top_sum_with_outlier(n: int, count: int, variance: float) -> float:
    r"""Expected sum of the N largest among n − 1 squares of N(0, 1) and one square of N(0, τ²).

    These are the squared coefficients of a Gaussian matrix whose entries share a random mean: only
    the coefficient at frequency zero has another variance. S and S₀ are the survival functions of
    the squares, f and f₀ their densities:

    .. math:: E = (n-1) \int x f\, P\{B_{n-2}(S) + B_1(S_0) < N\}\,dx
                + \int x f_0\, P\{B_{n-1}(S) < N\}\,dx .

    Returns:
        The expectation, with a relative error of about 1e-12.
    """
    if count == 0:
        return 0.0
    if count >= n:
        return float(n - 1 + variance)
    unit_count = n - 1
    smallest, largest = max(count - 1, 1), min(count, unit_count)
    z, weights, high = _panels(unit_count, smallest, largest, 1)
    x = z * z
    u, v = survival(x, 1), survival(x / variance, 1)
    beside_outlier = (1 - v) * _fewer_than(count, n - 2, u) + v * _fewer_than(count - 1, n - 2, u)
    of_outlier = weights * x * _density_in_z(z, 1) * beside_outlier
    total = unit_count * (of_outlier.sum() + survival(np.float64(high * high), 3))
    standard_deviation = np.sqrt(variance)
    density = _density_in_z(z / standard_deviation, 1) / standard_deviation
    total += (weights * x * density * _fewer_than(count, unit_count, u)).sum()
    return float(total + variance * survival(np.float64(high * high / variance), 3))


def expected_location_sum(half: HalfSpectrum, count: int) -> float:
    r"""Expected energy of the ``count`` strongest locations of a Gaussian matrix's half spectrum.

    The energies of the locations are s independent χ²_1 (self-conjugate) and m independent χ²_2
    (pairs) variables. The binomial variables B count the other locations of each kind whose energy
    exceeds x:

    .. math:: E = m \int x f_2\, P\{B_{m-1}(S_2) + B_s(S_1) < N\}\,dx
                + s \int x f_1\, P\{B_m(S_2) + B_{s-1}(S_1) < N\}\,dx .

    The paper bounds this quantity by M1 (m variables) and M2 (m + s variables).

    Returns:
        The expectation, with a relative error of about 1e-13.
    """
    s, m = half.self_conjugate_count, half.pair_count
    if count == 0:
        return 0.0
    if count >= s + m:
        return float(s + 2 * m)
    # At most s of the retained locations are self-conjugate, so the threshold of the pairs lies
    # between those for count - s and for count pairs. The χ²_1 tail is the lighter one everywhere.
    pairs = max(m, 1)
    smallest, largest = min(max(count - s, 1), pairs), min(count, pairs)
    z, weights, high = _panels(pairs, smallest, largest, 2)
    x = z * z
    u, v = survival(x, 2), survival(x, 1)
    # P(Bin(m, u) < N - k) for k = -1 .. s; k = -1 serves the step from m to m - 1 pairs.
    fewer = {k: _fewer_than(count - k, m, u) for k in range(-1, s + 1)}
    total = 0.0
    for kind, df in ((m, 2), (s, 1)):
        if kind == 0:
            continue
        singles = s if df == 2 else s - 1
        probability = np.zeros_like(x)
        for k in range(singles + 1):
            # A pair has only m - 1 others: P(Bin(m-1) < j) = P(Bin(m) < j) + (j/m) P(Bin(m) = j).
            of_border = (fewer[k - 1] - fewer[k]) * ((count - k) / m) if df == 2 else 0.0
            binomial = special.binom(singles, k) * v**k * (1 - v) ** (singles - k)
            probability += binomial * (fewer[k] + of_border)
        inside = weights * x * _density_in_z(z, df) * probability
        total += kind * (inside.sum() + df * survival(np.float64(high * high), df + 2))
    return float(total)
