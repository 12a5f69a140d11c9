"""The statistic T of the section on non-i.i.d. effects: its values, critical value and power."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.claims.measurement import Estimate, Measurement, Setting
from loca_theory.dependence.detection import centred, upper_critical_value
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.expressivity.bidiagonal import sample_leading_eigenvalues
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.increments.spectrum import spectral_statistics

_Array = NDArray[np.float64]
SIZE = 300
# Number of draws of which each printed value is assumed to be the mean.
_AVERAGED = 100


def _statistics(setting: Setting, rhos: Sequence[float], draws: int, *, is_centred: bool) -> _Array:
    """T under (1−ρ)I + ρ11ᵀ, shape (len(rhos), draws); the draws are shared by all ρ."""
    found = np.empty((len(rhos), draws))
    for draw in range(draws):
        family = STRUCTURES["equicorrelated"].family(SIZE, SIZE, setting.rng)
        for i, rho in enumerate(rhos):
            matrix = family(rho)
            matrix = centred(matrix) if is_centred else matrix
            eigenvalues = squared_singular_values(torch.from_numpy(matrix))
            found[i, draw] = spectral_statistics(eigenvalues, SIZE - is_centred, SIZE)["T"]
    return found


def _null(setting: Setting, draws: int, rows: int, columns: int) -> _Array:
    """T of independent entries, through the bidiagonal model."""
    count = min(rows, columns)
    return np.array(
        [
            spectral_statistics(
                sample_leading_eigenvalues(rows, columns, count, setting.rng)[0], rows, columns
            )["T"]
            for _ in range(draws)
        ]
    )


def _correlation_null(setting: Setting, draws: int) -> _Array:
    """T of the sample correlation matrix of independent entries."""
    found = np.empty(draws)
    for draw in range(draws):
        matrix = centred(setting.rng.standard_normal((SIZE, SIZE)))
        matrix /= np.sqrt(np.square(matrix).mean(axis=0))
        eigenvalues = squared_singular_values(torch.from_numpy(matrix))
        found[draw] = spectral_statistics(eigenvalues, SIZE - 1, SIZE)["T"]
    return found


def statistic(
    setting: Setting,
    *,
    rhos: Sequence[float],
    printed: Sequence[float] = (),
    is_centred: bool = False,
) -> Measurement:
    """Mean of T, one estimate per ρ.

    Args:
        setting: Tier and random generator.
        rhos: Values of ρ in (1−ρ)I + ρ11ᵀ.
        printed: Printed values of T. If given, each estimate is the printed value less the mean, in
            standard errors of a mean of 100 draws.
        is_centred: Subtract each column's mean first.

    Source: the four printed values of T.
    """
    # The claims on T need thousands of draws; 200 would not decide them either.
    draws = setting.scaled(30, 5000, 20_000)
    found = _statistics(setting, rhos, draws, is_centred=is_centred)
    parts = [Estimate.mean(row, f"rho = {rho:g}") for rho, row in zip(rhos, found, strict=True)]
    shown = ", ".join(f"{row.std(ddof=1):.3f}" for row in found)
    note = f"Standard deviations of T over draws: {shown}."
    if printed:
        units = found.std(axis=1, ddof=1) / np.sqrt(_AVERAGED)
        parts = [
            Estimate(one.name, (value - one.value) / unit, one.standard_error / unit, one.n)
            for one, value, unit in zip(parts, printed, units, strict=True)
        ]
    return Measurement.of(parts, note)


def critical_level(setting: Setting, *, printed: float, columns: str = "raw") -> Measurement:
    """Fraction of 300×300 matrices with independent entries whose T exceeds the printed value.

    Args:
        setting: Tier and random generator.
        printed: The printed critical value.
        columns: ``raw``, or ``standardised`` to mean 0 and variance 1, as for a sample correlation
            matrix.

    Source: "the critical value at the 0.95 significance level is 0.005".
    """
    if columns == "raw":
        null = _null(setting, setting.scaled(1000, 8000, 50_000), SIZE, SIZE)
    else:
        null = _correlation_null(setting, setting.scaled(150, 16_000, 64_000))
    note = f"The 0.95 quantile of T at K = {SIZE} is {upper_critical_value(null, 0.05):.4f}."
    return Measurement.of(Estimate.fraction(int((null > printed).sum()), len(null)), note)


def critical_value(setting: Setting, *, printed: float, rounding: float, size: int) -> Measurement:
    """Fractions of matrices whose T exceeds the printed value less, and plus, half a last digit.

    The 0.95 quantile rounds to the printed value if the first fraction is above 0.05 and the second
    is below 0.05.

    Args:
        setting: Tier and random generator.
        printed: The printed critical value.
        rounding: Unit of its last digit.
        size: K.

    Source: as for :func:`critical_level`.
    """
    null = _null(setting, setting.scaled(250, 1500, 10_000), size, size)
    parts = [
        Estimate.fraction(int((null > bound).sum()), len(null), f"T > {bound:g}")
        for bound in (printed - rounding / 2, printed + rounding / 2)
    ]
    fraction = float((null > printed).mean())
    note = f"The 0.95 quantile of T at K = {size} is {upper_critical_value(null, 0.05):.5f}; "
    return Measurement.of(
        parts, f"{note}{printed:g} itself is exceeded by a fraction of {fraction:.3f}."
    )


def power(setting: Setting, *, rhos: Sequence[float], is_centred: bool) -> Measurement:
    """Fraction of correlated matrices whose T exceeds its 0.95 quantile, one estimate per ρ.

    Args:
        setting: Tier and random generator.
        rhos: Values of ρ in (1−ρ)I + ρ11ᵀ.
        is_centred: Subtract each column's mean first, as for a sample correlation matrix.

    Source: "all these test statistics substantially exceed the critical value".
    """
    bound = upper_critical_value(
        _null(setting, setting.scaled(500, 4000, 20_000), SIZE - is_centred, SIZE), 0.05
    )
    draws = setting.scaled(60, 400, 2000)
    found = _statistics(setting, rhos, draws, is_centred=is_centred)
    return Measurement.of(
        (
            Estimate.fraction(int((row > bound).sum()), draws, f"rho = {rho:g}")
            for rho, row in zip(rhos, found, strict=True)
        ),
        f"Critical value {bound:.4f}.",
    )
