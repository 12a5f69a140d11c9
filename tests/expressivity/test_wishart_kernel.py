"""Laguerre functions of any size, and the kernel projected onto vectors."""

import numpy as np
import pytest
from scipy import special

from loca_theory.expressivity.laws.wishart_kernel import (
    _last_coefficient,
    laguerre_functions,
    pre_kernel,
)


def functions(p, q, u):
    """All f_j, j < q, at the points u."""
    blocks = [values for values, _ in laguerre_functions(p, q, u)]
    return np.vstack([blocks[0], *(block[1:] for block in blocks[1:])])


def by_definition(p, q, u):
    """The same from scipy's polynomials, for sizes at which nothing over- or underflows."""
    a, j = p - q, np.arange(q)[:, None]
    log = 0.5 * (np.log(2) + special.gammaln(j + 1) - special.gammaln(j + a + 1))
    log = log + special.xlogy(a, u) - 0.5 * u * u
    return np.exp(log) * special.eval_genlaguerre(j, a, u * u)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (9, 9), (12, 5), (60, 40), (160, 3)], ids=str)
def test_functions_are_laguerre_functions(shape):
    u = np.linspace(0.01, 15, 50)
    np.testing.assert_allclose(functions(*shape, u), by_definition(*shape, u), atol=1e-12)


@pytest.mark.parametrize("shape", [(600, 600), (5000, 40), (10**6, 20), (900, 500)], ids=str)
def test_functions_are_orthonormal(shape):
    """∫ f_i f_j u du = δ_ij, also where the first functions underflow and for a large exponent."""
    p, q = shape
    low, high = max(0.0, p**0.5 - q**0.5 - 9), p**0.5 + q**0.5 + 9
    x, w = np.polynomial.legendre.leggauss(int(3 * q + 150))
    u, w = low + 0.5 * (high - low) * (1 + x), 0.5 * (high - low) * w
    f = functions(p, q, u)[:: max(1, q // 40)]
    np.testing.assert_allclose((f * (w * u)) @ f.T, np.eye(len(f)), atol=1e-11)


@pytest.mark.parametrize(("p", "q"), [(9, 9), (8, 8), (40, 12), (1, 1)])
def test_the_projected_kernel(p, q):
    """Against the sum over the tridiagonal matrix, for a projection onto random vectors."""
    rng = np.random.default_rng([p, q])
    u, weights = np.linspace(0.1, 12, 60), rng.standard_normal((60, 7))
    f = functions(p, q, u) @ weights
    j = np.arange(1, q)
    upper = np.diag(0.5 * np.sqrt(j * (j + p - q)), 1)
    kernel, border = pre_kernel(p, q, u, weights)
    np.testing.assert_allclose(kernel, f.T @ (upper - upper.T) @ f, atol=1e-10)
    np.testing.assert_allclose(border, _last_coefficient(p, q) * f[-1], rtol=1e-12)
