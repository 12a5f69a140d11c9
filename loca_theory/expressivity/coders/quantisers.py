r"""Scalar quantisers: the codes of a law, and their mean squared error.

A code c stands for the numbers of a cell around it. With the cell's partial moments
:math:`m_0, m_1, m_2` the error is :math:`\sum m_2 - 2 c m_1 + c^2 m_0`.

Source: S. P. Lloyd, IEEE Trans. Inf. Theory 28 (1982); J. Max, IRE Trans. Inf. Theory 6 (1960).
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.optimize import minimize_scalar, root
from scipy.special import ndtr, ndtri

from loca_theory._types import Array
from loca_theory.expressivity.coders.laws import Law, moment, normal

# Lloyd's iteration ends when it gains less than this fraction of the error, or after these steps.
_GAIN, _STEPS = 1e-8, 1000
# The step of a uniform quantiser is searched between these multiples of the standard deviation.
_LEAST_STEP, _MOST_STEP = 1e-4, 8.0


def cells(law: Law, edges: Array) -> Array:
    """Probability and partial moments of the cells between some edges and beyond them."""
    return np.diff(law(np.concatenate([[-np.inf], edges, [np.inf]])), axis=1)


def error_of(law: Law, edges: Array, codes: Array) -> float:
    """Mean squared error of the codes of cells."""
    mass, first, second = cells(law, edges)
    return float((second - 2 * codes * first + codes**2 * mass).sum())


def between(codes: Array) -> Array:
    """The edges between sorted codes, of which each stands for the numbers nearest to it."""
    return (codes[1:] + codes[:-1]) / 2


def lloyd_max(law: Law, width: int, beyond: float = 0.0) -> Array:
    """The 2^width codes with the least error, by Lloyd's iteration from those of a normal law.

    All numbers of the law exceed ``beyond`` on either side.
    """
    scale = np.sqrt(moment(law, 2) / moment(law, 0))
    # At high resolution the codes of N(0, 1) have the density of N(0, 3).
    start = ndtr(beyond / scale / np.sqrt(3))
    levels = start + (1 - start) * (np.arange(2 ** (width - 1)) + 0.5) / 2 ** (width - 1)
    sizes = scale * np.sqrt(3) * ndtri(levels)
    codes, before = np.concatenate([-sizes[::-1], sizes]), np.inf
    for _ in range(_STEPS):
        mass, first, second = cells(law, between(codes))
        codes = np.where(mass > 0, first / np.where(mass > 0, mass, 1.0), codes)
        error = float((second - codes**2 * mass).sum())
        if before - error <= _GAIN * error:
            break
        before = error
    return codes


@cache
def normal_codes(width: int) -> Array:
    """The best codes of the standard normal law, the means of their cells to rounding; read-only.

    Lloyd's iteration converges slowly, so its conditions are solved for the positive codes.
    """
    if width == 0:
        return np.zeros(1)
    start = lloyd_max(normal, width)[2 ** (width - 1) :]

    def gaps(sizes: Array) -> Array:
        mass, first, _ = cells(normal, np.concatenate([[0.0], between(sizes)]))
        return (first / mass)[1:] - sizes

    sizes = root(gaps, start, tol=1e-13).x
    codes = np.concatenate([-sizes[::-1], sizes])
    codes.flags.writeable = False
    return codes


def nearest_codes(values: Array, codes: Array) -> Array:
    """The code that is nearest to each of some values."""
    return codes[np.searchsorted(between(codes), values)]


def uniform(law: Law, width: int) -> Array:
    """2^width equidistant codes around 0 with the least error."""
    scale = np.sqrt(moment(law, 2))
    around = np.arange(2**width) - (2**width - 1) / 2
    optimum = minimize_scalar(
        lambda step: error_of(law, between(around * step * scale), around * step * scale),
        bounds=(_LEAST_STEP, _MOST_STEP),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return around * optimum.x * scale


def equal_cells(law: Law, step: float, reach: float) -> tuple[Array, Array, Array]:
    """Edges, codes and probabilities of cells of the width ``step``, the middle one at 0.

    The last cells lie at the distance ``reach``; each stands for all beyond it.
    """
    half = (np.arange(np.ceil(reach / step)) + 0.5) * step
    edges = np.concatenate([-half[::-1], half])
    mass, first, _ = cells(law, edges)
    return edges, np.divide(first, mass, out=np.zeros_like(mass), where=mass > 0), mass
