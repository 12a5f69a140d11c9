r"""The law of one coordinate of a matrix with random singular vectors, by quadrature.

The coordinate x has the moment generating function M(z) of
:mod:`loca_theory.expressivity.spectral`, for singular values with the energy fractions w_i.

For c > 0, with a contour that passes to the right of 0 and to the left of
:math:`1/\max\sqrt{w_i}`,

.. math:: P(|x| > c) = \frac1{2π i} \int M(z)\, \frac{2e^{-cz}}{z}\, dz, \qquad
          E[x^2; |x| > c] = \frac1{2π i} \int M(z)\, 2e^{-cz}
          \Bigl(\frac{c^2}{z} + \frac{2c}{z^2} + \frac2{z^3}\Bigr) dz .

For the modulus of a location the kernels are :math:`2c K_1(cz)` and, relative to its mean energy,
:math:`c^3 K_1(cz) + 2c^2 K_2(cz)/z`. The contour is the hyperbola z(u) = cosh(u + 3πi/8): its nodes
cover many orders of magnitude, which a single singular value needs (there M decays only like 1/z),
and along it :math:`e^{-cz}` decays. The trapezoidal rule in u, with step h, is accurate to
rounding. Truncation: the sum ends where :math:`|M| < 10^{-18}`. Aliasing: in the strip of width π/8
on either side of the nodes Re z² ≤ 1/2, so that :math:`|M| \le \sqrt2` for every spectrum, and the
error is :math:`O(h^{-2} e^{-π^2/4h})`, which is below 1e-16 at h = 1/20.

Source: for contours of this kind see J. A. C. Weideman and L. N. Trefethen, Math. Comp. 76 (2007).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

_Complex = NDArray[Any]
_Kernel = Callable[[float, _Complex], _Complex]

_STEP, _ANGLE, _BLOCK = 1 / 20, 3 * np.pi / 8, 64
_NEGLIGIBLE = 1e-18
_FAR = 50.0  # exp(-50) is negligible
_SMALLEST_THRESHOLD = 1e-12


# Bases with the same atoms, and the ranks of one matrix, share these results.
@lru_cache(maxsize=64)
def energy_beyond(
    weights: bytes, atom: tuple[float, ...], is_location: bool, fraction: float
) -> tuple[float, float]:
    """Energy of the largest coordinates, and c³ times the density at the smallest of them, c."""
    nodes, values = _contour(weights, atom)
    kernels = _LOCATION_KERNELS if is_location else _COORDINATE_KERNELS

    def integral(kernel: _Kernel, c: float) -> float:
        near = np.searchsorted(np.real(nodes) * c, _FAR)
        return float(np.imag(values[:near] @ kernel(c, nodes[:near])))

    probability, energy, density = (partial(integral, kernel) for kernel in kernels)
    high = 1.0
    while probability(high) > fraction:
        high *= 2
    if probability(_SMALLEST_THRESHOLD) <= fraction:
        return 1.0, 0.0
    c = optimize.brentq(
        lambda c: probability(c) - fraction, _SMALLEST_THRESHOLD, high, xtol=1e-14, rtol=1e-14
    )
    return energy(c), density(c)


@lru_cache(maxsize=4)
def _contour(weights: bytes, atom: tuple[float, ...]) -> tuple[_Complex, _Complex]:
    """Nodes z on the upper half of the contour, and M(z)·dz/π."""
    w = np.frombuffer(weights)
    nodes, values = list[_Complex](), list[_Complex]()
    while not values or abs(values[-1][-1]) > _NEGLIGIBLE * abs(nodes[-1][-1]):
        u = _STEP * (len(nodes) * _BLOCK + np.arange(_BLOCK)) + 1j * _ANGLE
        z = np.cosh(u)
        log = np.zeros_like(z)
        for square, count in zip(*np.unique(np.square(atom), return_counts=True), strict=True):
            log -= count / 2 * np.log1p(np.multiply.outer(-square * z * z, w)).sum(axis=1)
        nodes.append(z)
        values.append(np.exp(log) * np.sinh(u) * _STEP / np.pi)
    values[0][0] /= 2  # on the real axis, which both halves share
    return np.concatenate(nodes), np.concatenate(values)


def _location_energy(c: float, z: _Complex) -> _Complex:
    k0, k1 = special.kv(0, c * z), special.kv(1, c * z)
    return c**3 * k1 + 2 * c * c * (k0 + 2 * k1 / (c * z)) / z


# Kernels of P(|x| > c), of E[x²; |x| > c] and of c³ times the density, for E x² = 1.
_COORDINATE_KERNELS: tuple[_Kernel, ...] = (
    lambda c, z: 2 * np.exp(-c * z) / z,
    lambda c, z: 2 * np.exp(-c * z) * (c * c / z + 2 * c / z**2 + 2 / z**3),
    lambda c, z: 2 * np.exp(-c * z) * c**3,
)
# The same for the modulus of two coordinates, the energies relative to their mean of 2.
_LOCATION_KERNELS: tuple[_Kernel, ...] = (
    lambda c, z: 2 * c * special.kv(1, c * z),
    _location_energy,
    lambda c, z: c**4 * z * special.kv(0, c * z),
)
