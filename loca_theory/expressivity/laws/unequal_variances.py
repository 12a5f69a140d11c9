r"""Expected sum of the largest squares of independent normal variables of unequal variances.

Let B(x) be the number of squares above x. The sum of the N largest is
:math:`\int_0^\infty \min(N, B(x))\,dx`, hence

.. math:: E\Bigl[\sum_{i\le N} X_{(i)}\Bigr] = \int_0^\infty E\min(N, B(x))\,dx, \qquad
          B(x) \sim \text{Poisson-binomial}(p_1, …, p_n), \quad
          p_j = P(v_j χ^2_1 > x) .

Up to 400 variables the law of B(x) is computed. Beyond, it is replaced by the binomial law of the
same mean and variance, whose number of trials :math:`ν = (\sum p_j)^2/\sum p_j^2` need not be an
integer; its success probability is :math:`π = \sum p_j^2/\sum p_j`. It is exact for equal
variances. The number N and the variance of B(x) matter only where B(x) may lie on either side of N,
and there most of the error of the third cumulant cancels in the integral over x. The cost is one
pass over the distinct variances for each of a few hundred nodes.

Many distinct variances are sorted into narrow bins of log v. Two variances stand for each bin, with
weights that keep the moments of log v up to the third. The sums change by less than
:math:`h^4/4320` times the fourth derivative of p with respect to log v, h the width of a bin.

Source: the layer-cake formula; W. Ehm, Stat. Probab. Lett. 11 (1991) and E. A. Peköz, A. Röllin,
V. Čekanavičius and M. Shwartz, J. Appl. Probab. 46 (2009) for binomial approximations of the
Poisson-binomial law.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.laws.order_statistics import (
    around_step,
    expected_minimum,
    on_panels,
    survival,
)

# P(B > N) is below the square of the mean, so means below this one do not matter.
_NEGLIGIBLE = 1e-9
# Up to this many variables the Poisson-binomial law is computed.
_MOST_EXACT = 400
# Variances below this fraction of the largest one count as 0.
_SMALLEST = 1e-20
# More distinct variances than this are replaced by two in each bin of their logarithms.
_MOST_DISTINCT = 4096
_BIN = 1 / 128


def expected_top_sum_of_unequal(variances: ArrayLike, count: int) -> float:
    r"""Expected sum of the N largest squares of independent normals N(0, v_j).

    Returns:
        The expectation. For equal variances its relative error is about 1e-13, and up to 400
        variables below 1e-8. Otherwise the binomial law that stands for the Poisson-binomial one
        dominates the error. Measured against exact convolution, for variances spread over up to six
        decades, it is below 6e-3 (the worst case is N = 1 with one large variance) and, if
        N ≥ n/20, below 2e-6.

    >>> from loca_theory.expressivity.laws.order_statistics import expected_top_sum
    >>> round(expected_top_sum_of_unequal([3.0] * 500, 20) / expected_top_sum(500, 20, 1), 12)
    3.0
    """
    values = np.asarray(variances, dtype=float).ravel()
    if count < 0 or not np.all((values >= 0) & np.isfinite(values)):
        problem = f"not count={count}" if count < 0 else "but some are not"
        raise InvalidArgumentError(
            f"variances must be finite and not negative and count must be at least 0, {problem}"
        )
    positive = values[values > _SMALLEST * values.max(initial=0.0)]
    v, counts = np.unique(positive, return_counts=True)
    n, multiplicity = int(counts.sum()), counts.astype(np.float64)
    if count >= n:
        return float(multiplicity @ v)
    if count == 0:
        return 0.0
    if len(v) > _MOST_DISTINCT:
        v, multiplicity = _binned(v, multiplicity)
    deviations = np.sqrt(v)

    def sums(z: float) -> tuple[float, float]:
        """Σ p_j and Σ p_j² at x = z²."""
        p = special.erfc(z / np.sqrt(2) / deviations)
        return float(multiplicity @ p), float(multiplicity @ (p * p))

    edges = _panels(sums, n, count, deviations)
    z, weights = on_panels(edges)
    measure = 2 * z * weights
    if n <= _MOST_EXACT:
        chances = special.erfc(z[:, None] / np.sqrt(2) / np.repeat(deviations, counts))
        inside = measure @ expected_minimum(chances, count)[:, count]
    else:
        # Node by node, because an array of nodes and variances might not fit in memory.
        mean, squares = np.array([sums(float(node)) for node in z]).T
        inside = measure @ _binomial_minimum(count, mean, squares)
    # Below the panels B(x) is at least N; above them it is less than N, and E(X − x)⁺ remains.
    y = (edges[-1] / deviations) ** 2
    above = (multiplicity * v) @ (survival(y, 3) - y * survival(y, 1))
    return float(count * edges[0] ** 2 + inside + above)


def _binned(v: Array, multiplicity: Array) -> tuple[Array, Array]:
    """Two variances and their weights for each bin, with its first moments of log v."""
    logs = np.log(v)
    _, bins = np.unique(np.floor(logs / _BIN), return_inverse=True)

    def mean(values: Array) -> Array:
        return np.bincount(bins, multiplicity * values) / weights

    weights = np.bincount(bins, multiplicity)
    centre = mean(logs)
    offsets = logs - centre[bins]
    standard_deviation = np.sqrt(mean(offsets**2))
    # Rounding errors matter where a bin holds one variance, which has none.
    safe = np.maximum(standard_deviation, 1e-9)
    half = mean(offsets**3) / safe**3 / 2
    root = np.sqrt(1 + half**2)
    nodes = [centre + standard_deviation * (half + sign * root) for sign in (-1, 1)]
    parts = [weights * (1 - sign * half / root) / 2 for sign in (-1, 1)]
    binned = np.exp(np.concatenate(nodes))
    order = np.argsort(binned)
    return binned[order], np.concatenate(parts)[order]


def _panels(
    sums: Callable[[float], tuple[float, float]], n: int, count: int, deviations: Array
) -> Array:
    """Edges in z = √x of the panels on which B(z²) may be on either side of N."""

    def level(mean: float) -> float:
        """The z at which the mean of B is about the given one."""
        if mean >= n:
            return 0.0

        def excess(z: float) -> float:
            return np.log(max(sums(z)[0], 1e-300) / mean)

        tolerances = {"xtol": 1e-9 * deviations[0], "rtol": 1e-4}
        return optimize.brentq(excess, 0.0, 40 * deviations[-1], **tolerances)

    mean, squares = sums(level(count))
    means = around_step(count, count, mean - squares, _NEGLIGIBLE)
    edges = np.array([level(mean_count) for mean_count in means])
    # Each group of similar variances has a step of its own in Σ p_j, of the width of its √v.
    doublings = np.ceil(np.log2(40 * deviations[-1] / deviations[0]))
    doubling = deviations[0] * 2.0 ** np.arange(doublings)
    between = doubling[(doubling > edges.min()) & (doubling < edges.max())]
    return np.unique(np.concatenate([edges, between]))


def _binomial_minimum(count: int, mean: Array, squares: Array) -> Array:
    """E min(N, B) of the binomial law with mean Σp and variance Σp − Σp².

    N P(B ≥ N) + νπ P(B' ≤ N − 2), with B' the binomial law of ν − 1 trials.
    """
    success = squares / mean
    failures = mean / success - count + 1
    # With ν ≤ N − 1 trials B is less than N.
    is_between = failures > 0
    failures = np.where(is_between, failures, 1.0)
    at_least = special.betainc(count, failures, success)
    fewer = special.betaincc(count - 1, failures, success) if count > 1 else 0.0
    return np.where(is_between, count * at_least + mean * fewer, mean)
