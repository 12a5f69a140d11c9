r"""The Tracy–Widom law of the largest eigenvalue of real sample covariance matrices.

:math:`F_1(s) = \det(I - B_s)` on :math:`L^2(0, \infty)` with the kernel
:math:`B_s(x, y) = \mathrm{Ai}(x + y + s)`. Quadrature turns the Fredholm determinant into an
ordinary one that converges exponentially.

Source: P. L. Ferrari and H. Spohn, J. Phys. A 38 (2005); F. Bornemann, Math. Comp. 79 (2010);
I. M. Johnstone, Ann. Stat. 29 (2001) for the scaling of Wishart matrices.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from loca_theory.errors import InvalidArgumentError

_NODES = 80
# Ai(x + s) is below 1e-18 from here on.
_END = 16.0


def tracy_widom_cdf(s: float) -> float:
    """F₁(s), with an absolute error of about 1e-13."""
    if s < -12:
        return 0.0
    if s > _END:
        return 1.0
    x, root = _nodes(_END - s)
    kernel = special.airy(x[:, None] + x[None, :] + s)[0]
    return float(np.linalg.det(np.eye(len(x)) - root[:, None] * kernel * root[None, :]))


def tracy_widom_quantile(probability: float) -> float:
    """The s with F₁(s) = probability."""
    if not 0 < probability < 1:
        msg = f"probability must be between 0 and 1, not {probability}"
        raise InvalidArgumentError(msg)
    return float(
        optimize.brentq(lambda s: tracy_widom_cdf(s) - probability, -12.0, _END, xtol=1e-12)
    )


def edge_scaling(p: int, q: int) -> tuple[float, float]:
    r"""Centre μ and scale σ with (λ₁ − μ)/σ → F₁ for the largest eigenvalue of WᵀW.

    .. math:: μ = (\sqrt{p-1/2} + \sqrt{q-1/2})^2, \quad
              σ = (\sqrt{p-1/2} + \sqrt{q-1/2})
                  \Bigl(\frac1{\sqrt{p-1/2}} + \frac1{\sqrt{q-1/2}}\Bigr)^{1/3}

    Subtracting the halves makes the error of the limit second order (Z. Ma, Bernoulli 18, 2012).
    """
    if not (p >= 1 and q >= 1):
        msg = f"p and q must give at least 1 row and 1 column, not {p}x{q}"
        raise InvalidArgumentError(msg)
    a, b = np.sqrt(p - 0.5), np.sqrt(q - 0.5)
    return float((a + b) ** 2), float((a + b) * (1 / a + 1 / b) ** (1 / 3))


@lru_cache(maxsize=64)
def _nodes(length: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gauss–Legendre nodes on (0, length) and the roots of their weights."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return 0.5 * length * (nodes + 1), np.sqrt(0.5 * length * weights)
