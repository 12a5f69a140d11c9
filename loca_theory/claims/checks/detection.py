"""The statistic T of the section on non-i.i.d. effects: its values, critical value and power."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.claims.estimates import Estimate, Returned, Rng, Tier
from loca_theory.dependence.detection import centred, upper_critical_value
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.expressivity.bidiagonal import sample_leading_eigenvalues
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.increments.spectrum import spectral_statistics

_Array = NDArray[np.float64]
SIZE = 300
# Number of draws of which each printed value is assumed to be the mean.
_AVERAGED = 100


def _statistics(rng: Rng, rhos: Sequence[float], draws: int, *, is_centred: bool) -> _Array:
    """T under (1−ρ)I + ρ11ᵀ, shape (len(rhos), draws); the draws are shared by all ρ."""
    found = np.empty((len(rhos), draws))
    for draw in range(draws):
        family = STRUCTURES["equicorrelated"].family(SIZE, SIZE, rng)
        for i, rho in enumerate(rhos):
            matrix = family(rho)
            matrix = centred(matrix) if is_centred else matrix
            eigenvalues = squared_singular_values(torch.from_numpy(matrix))
            found[i, draw] = spectral_statistics(eigenvalues, SIZE - is_centred, SIZE)["T"]
    return found


def _null(rng: Rng, draws: int, rows: int, columns: int) -> _Array:
    """T of independent entries, through the bidiagonal model."""
    count = min(rows, columns)
    return np.array(
        [
            spectral_statistics(
                sample_leading_eigenvalues(rows, columns, count, rng)[0], rows, columns
            )["T"]
            for _ in range(draws)
        ]
    )


def _correlation_null(rng: Rng, draws: int) -> _Array:
    """T of the sample correlation matrix of independent entries."""
    found = np.empty(draws)
    for draw in range(draws):
        matrix = centred(rng.standard_normal((SIZE, SIZE)))
        matrix /= np.sqrt(np.square(matrix).mean(axis=0))
        eigenvalues = squared_singular_values(torch.from_numpy(matrix))
        found[draw] = spectral_statistics(eigenvalues, SIZE - 1, SIZE)["T"]
    return found


def statistic(
    *,
    tier: Tier,
    rng: Rng,
    rhos: Sequence[float],
    printed: Sequence[float] = (),
    is_centred: bool = False,
) -> Returned:
    """Mean of T, one estimate per ρ.

    Args:
        rhos: Values of ρ in (1−ρ)I + ρ11ᵀ.
        printed: Printed values of T. If given, each estimate is the printed value less the mean, in
            standard errors of a mean of 100 draws.
        is_centred: Subtract each column's mean first.

    Source: the four printed values of T.
    """
    # The claims on T need thousands of draws; 200 would not decide them either.
    draws = tier.scaled(30, 5000, 20_000)
    found = _statistics(rng, rhos, draws, is_centred=is_centred)
    parts = [Estimate.mean(row) for row in found]
    if printed:
        units = found.std(axis=1, ddof=1) / np.sqrt(_AVERAGED)
        parts = [
            Estimate((value - one.value) / unit, one.standard_error / unit, one.n)
            for one, value, unit in zip(parts, printed, units, strict=True)
        ]
    shown = ", ".join(f"{row.std(ddof=1):.3f}" for row in found)
    return _by_rho(rhos, parts), f"Standard deviations of T over draws: {shown}."


def _by_rho(rhos: Sequence[float], parts: Iterable[Estimate]) -> dict[str, Estimate]:
    return {f"rho = {rho:g}": one for rho, one in zip(rhos, parts, strict=True)}


def critical_level(*, tier: Tier, rng: Rng, printed: float, columns: str = "raw") -> Returned:
    """Fraction of 300×300 matrices with independent entries whose T exceeds the printed value.

    Args:
        printed: The printed critical value.
        columns: ``raw``, or ``standardised`` to mean 0 and variance 1, as for a sample correlation
            matrix.

    Source: "the critical value at the 0.95 significance level is 0.005".
    """
    if columns == "raw":
        null = _null(rng, tier.scaled(1000, 8000, 50_000), SIZE, SIZE)
    else:
        null = _correlation_null(rng, tier.scaled(150, 16_000, 64_000))
    note = f"The 0.95 quantile of T at K = {SIZE} is {upper_critical_value(null, 0.05):.4f}."
    return _above(null, printed), note


def critical_value(*, tier: Tier, rng: Rng, printed: float, rounding: float, size: int) -> Returned:
    """Fractions of matrices whose T exceeds the printed value less, and plus, half a last digit.

    The 0.95 quantile rounds to the printed value if the first fraction is above 0.05 and the second
    is below 0.05.

    Args:
        printed: The printed critical value.
        rounding: Unit of its last digit.
        size: K.

    Source: as for :func:`critical_level`.
    """
    null = _null(rng, tier.scaled(250, 1500, 10_000), size, size)
    bounds = (printed - rounding / 2, printed + rounding / 2)
    parts = {f"T > {bound:g}": _above(null, bound) for bound in bounds}
    fraction = float((null > printed).mean())
    note = f"The 0.95 quantile of T at K = {size} is {upper_critical_value(null, 0.05):.5f}; "
    return parts, f"{note}{printed:g} itself is exceeded by a fraction of {fraction:.3f}."


def _above(values: _Array, bound: float) -> Estimate:
    return Estimate.fraction(int((values > bound).sum()), len(values))


def power(*, tier: Tier, rng: Rng, rhos: Sequence[float], is_centred: bool) -> Returned:
    """Fraction of correlated matrices whose T exceeds its 0.95 quantile, one estimate per ρ.

    Args:
        rhos: Values of ρ in (1−ρ)I + ρ11ᵀ.
        is_centred: Subtract each column's mean first, as for a sample correlation matrix.

    Source: "all these test statistics substantially exceed the critical value".
    """
    null = _null(rng, tier.scaled(500, 4000, 20_000), SIZE - is_centred, SIZE)
    bound = upper_critical_value(null, 0.05)
    found = _statistics(rng, rhos, tier.scaled(60, 400, 2000), is_centred=is_centred)
    parts = (_above(row, bound) for row in found)
    return _by_rho(rhos, parts), f"Critical value {bound:.4f}."
