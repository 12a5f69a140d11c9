"""Parts of dependent normal matrices: maps from independent entries, covariances, directions."""

from __future__ import annotations

import numpy as np
from scipy import linalg, signal

from loca_theory._types import Array


def exchangeable(z: Array, rho: float, block: int, axis: int) -> Array:
    """E(ρ)^{1/2} along an axis: it multiplies the mean of a block of z and the rest."""
    sizes = list(z.shape)
    sizes[axis : axis + 1] = [z.shape[axis] // block, block]
    mean = z.reshape(sizes).mean(axis + 1).repeat(block, axis)
    return np.sqrt(1 - rho) * (z - mean) + np.sqrt(1 + (block - 1) * rho) * mean


def exchangeable_covariance(n: int, rho: float, block: int) -> Array:
    """E(ρ): (1−ρ) I + ρ 11ᵀ in every block."""
    square = (1 - rho) * np.eye(block) + rho
    return linalg.block_diag(*[square] * (n // block))


def autoregression(innovations: Array, rho: float, axis: int) -> Array:
    """x_0 = z_0, x_t = ρ x_{t−1} + √(1−ρ²) z_t along an axis: stationary with unit variance."""
    driven = np.sqrt(1 - rho * rho) * innovations
    driven.swapaxes(0, axis)[0] = innovations.swapaxes(0, axis)[0]
    return signal.lfilter([1.0], [1.0, -rho], driven, axis=axis)


def powers_of_lag(n: int, rho: float) -> Array:
    """A(ρ): ρ^|i−j|."""
    return np.asarray(linalg.toeplitz(rho ** np.arange(n)), dtype=np.float64)


def power_law_variances(n: int, exponent: float) -> Array:
    """Variances ∝ i^(−exponent) with mean 1."""
    variances = np.arange(1.0, n + 1) ** -exponent
    return variances / variances.mean()


def directions(n: int, count: int, rng: np.random.Generator) -> Array:
    """``count`` random orthonormal columns of length n, uniformly distributed (Stewart, 1980)."""
    q, r = np.linalg.qr(rng.standard_normal((n, count)))
    return q * np.sign(np.diag(r))
