r"""Random matrices W with dependent entries, whose dependence is set by one parameter.

A structure is one kind of dependence. From a single set of random numbers it computes W for any
value of the parameter. Losses at different values, and crossings, are therefore compared with
common random numbers.

============================= ========== ==================================================
structure                     parameter  law of W
============================= ========== ==================================================
``shared-mean``               rho        Σ = I + ρ 11ᵀ
``equicorrelated``            rho        Σ = (1−ρ) I + ρ 11ᵀ (unit variances)
``row-equicorrelated``        rho        independent rows with covariance (1−ρ) I + ρ 11ᵀ
``ar1``                       rho        Σ = A_p(ρ) ⊗ A_q(ρ), A(ρ)_ij = ρ^|i−j|
``spiked``                    fraction   Z + θ (u_1 v_1ᵀ + u_2 v_2ᵀ + …), random directions
``power-law``                 exponent   Z Λ^{1/2} Qᵀ, λ_j ∝ j^{-exponent}, Q random orthogonal
============================= ========== ==================================================

Σ is the covariance of all pq entries, 1 is a vector of ones, and Z is a p×q matrix of independent
N(0, 1) entries. The u_k and the v_k are orthonormal, and :func:`spike_strength` gives θ. The
paper's appendix prints the formula of ``shared-mean``, but its text describes ``equicorrelated``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import signal

from loca_theory._lookup import find
from loca_theory.errors import InvalidArgumentError

# How far a parameter must stay from an end of its range that does not belong to the range.
_OPEN = 1e-9

_Array = NDArray[np.float64]
Family = Callable[[float], _Array]


@dataclass(frozen=True)
class Structure:
    r"""A kind of dependence between the entries of a matrix.

    Attributes:
        name: Short name.
        parameter: Name of the parameter: ``rho``, ``fraction`` or ``exponent``.
        title: Title in a few words.
        reference: Publication.
        bounds: Function of (p, q) that returns the smallest and the largest value of the parameter.
        family: Function of (p, q, generator) that draws random numbers once and returns a function
            from values of the parameter to matrices.
        energy: Function of (p, q, value) that returns :math:`E\|W\|^2`.
    """

    name: str
    parameter: str
    title: str
    reference: str
    bounds: Callable[[int, int], tuple[float, float]]
    family: Callable[[int, int, np.random.Generator], Family]
    energy: Callable[[int, int, float], float]

    def check(self, p: int, q: int, value: float) -> None:
        """Check that a value of the parameter is in range for p×q matrices.

        Raises:
            InvalidArgumentError: the value is out of range; the message gives the range.
        """
        low, high = self.bounds(p, q)
        if not low <= value <= high:
            beyond = (low, high) == (-1 + _OPEN, 1 - _OPEN), high == 1 - _OPEN
            left, right = ("<" if is_open else "<=" for is_open in beyond)
            msg = f"{self.name} at {p}x{q} needs {low:.6g} {left} {self.parameter} {right} "
            msg += f"{high:.6g}, not {value:.6g}"
            if self.parameter == "rho":
                msg += ": the covariance would not be positive definite"
            raise InvalidArgumentError(msg)


def _shared_mean(p: int, q: int, rng: np.random.Generator) -> Family:
    z = rng.standard_normal((p, q))
    mean = z.mean()
    # 11ᵀ/n projects onto the mean; I + ρ 11ᵀ multiplies the variance of the mean by 1 + nρ.
    return lambda rho: z + (np.sqrt(1 + p * q * rho) - 1) * mean


def _equicorrelated(p: int, q: int, rng: np.random.Generator) -> Family:
    z = rng.standard_normal((p, q))
    mean = z.mean()
    n = p * q
    return lambda rho: np.sqrt(1 - rho) * (z - mean) + np.sqrt(1 + (n - 1) * rho) * mean


def _row_equicorrelated(p: int, q: int, rng: np.random.Generator) -> Family:
    z = rng.standard_normal((p, q))
    mean = z.mean(axis=1, keepdims=True)
    return lambda rho: np.sqrt(1 - rho) * (z - mean) + np.sqrt(1 + (q - 1) * rho) * mean


def _ar1(p: int, q: int, rng: np.random.Generator) -> Family:
    z = rng.standard_normal((p, q))

    def at(rho: float) -> _Array:
        return _autoregression(_autoregression(z, rho, 0), rho, 1)

    return at


def _autoregression(innovations: _Array, rho: float, axis: int) -> _Array:
    """x_0 = z_0, x_t = ρ x_{t−1} + √(1−ρ²) z_t along an axis: stationary with unit variance."""
    driven = np.sqrt(1 - rho * rho) * innovations
    first = [slice(None)] * 2
    first[axis] = slice(0, 1)
    driven[tuple(first)] = innovations[tuple(first)]
    return signal.lfilter([1.0], [1.0, -rho], driven, axis=axis)


def spike_strength(p: int, q: int, fraction: float, spikes: int) -> float:
    """The strength θ of ``spikes`` equal spikes that together have a given fraction of the energy.

    With s spikes, fraction = sθ²/(pq + sθ²).
    """
    return float(np.sqrt(fraction / (1 - fraction) * p * q / spikes))


def _directions(n: int, count: int, rng: np.random.Generator) -> _Array:
    """``count`` random orthonormal columns of length n, uniformly distributed (Stewart, 1980)."""
    q, r = np.linalg.qr(rng.standard_normal((n, count)))
    return q * np.sign(np.diag(r))


def spiked(spikes: int = 1) -> Structure:
    """Make the structure ``spiked``, which adds equally strong random rank-one terms to Z."""

    def family(p: int, q: int, rng: np.random.Generator) -> Family:
        z = rng.standard_normal((p, q))
        signal_part = _directions(p, spikes, rng) @ _directions(q, spikes, rng).T
        return lambda fraction: z + spike_strength(p, q, fraction, spikes) * signal_part

    return Structure(
        "spiked",
        "fraction",
        f"independent entries plus {spikes} random rank-one term{'s' * (spikes > 1)}",
        "I. M. Johnstone, Ann. Stat. 29 (2001); F. Benaych-Georges and R. R. Nadakuditi, "
        "J. Multivar. Anal. 111 (2012)",
        lambda p, q: (0.0, 1 - _OPEN),
        family,
        lambda p, q, fraction: p * q / (1 - fraction),
    )


def _power_law(p: int, q: int, rng: np.random.Generator) -> Family:
    z = rng.standard_normal((p, q))
    rotation = _directions(q, q, rng).T
    ranks = np.arange(1, q + 1)

    def at(exponent: float) -> _Array:
        variances = ranks**-exponent
        return (z * np.sqrt(variances / variances.mean())) @ rotation

    return at


def _unit_energy(p: int, q: int, value: float) -> float:
    del value  # variances average to 1
    return float(p * q)


STRUCTURES: dict[str, Structure] = {
    structure.name: structure
    for structure in (
        Structure(
            "shared-mean",
            "rho",
            "Σ = I + ρ 11ᵀ, as printed in the appendix",
            "the paper's appendix on non-i.i.d. effects",
            lambda p, q: (-1 / (p * q), np.inf),
            _shared_mean,
            lambda p, q, rho: (1 + rho) * p * q,
        ),
        Structure(
            "equicorrelated",
            "rho",
            "Σ = (1−ρ) I + ρ 11ᵀ, with unit variances, as the appendix's text says",
            "the paper's appendix on non-i.i.d. effects",
            lambda p, q: (-1 / max(p * q - 1, 1), 1.0),
            _equicorrelated,
            _unit_energy,
        ),
        Structure(
            "row-equicorrelated",
            "rho",
            "independent rows, correlation ρ within each",
            "T. W. Anderson, An Introduction to Multivariate Statistical Analysis, 3rd ed., 2003",
            lambda p, q: (-1 / max(q - 1, 1), 1.0),
            _row_equicorrelated,
            _unit_energy,
        ),
        Structure(
            "ar1",
            "rho",
            "AR(1) ⊗ AR(1): neighbours correlated along rows and columns",
            "R. J. Martin, Biometrika 66 (1979)",
            lambda p, q: (-1 + _OPEN, 1 - _OPEN),
            _ar1,
            _unit_energy,
        ),
        spiked(),
        Structure(
            "power-law",
            "exponent",
            "column covariance with eigenvalues j^(−exponent), random directions",
            "C. H. Martin and M. W. Mahoney, J. Mach. Learn. Res. 22 (2021)",
            lambda p, q: (0.0, 10.0),
            _power_law,
            _unit_energy,
        ),
    )
}


def find_structure(name: str, spikes: int = 1) -> Structure:
    """Find a structure by its name; ``spiked`` gets the given number of spikes.

    Raises:
        InvalidArgumentError: the name is unknown, or the number of spikes is less than 1.
    """
    found = find("structure", name, STRUCTURES)
    if spikes < 1:
        msg = f"spikes must be at least 1, not {spikes}"
        raise InvalidArgumentError(msg)
    return spiked(spikes) if name == "spiked" else found
