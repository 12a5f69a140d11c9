"""The section on non-i.i.d. effects: its covariance, crossings, statistic and critical value."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from scipy import stats

from loca_theory.claims.measurement import Measurement, Part, Setting
from loca_theory.dependence import STRUCTURES, Protocol, Study
from loca_theory.dependence import draws as sweep
from loca_theory.dependence.detection import centred, upper_critical_value
from loca_theory.expressivity import sample_leading_eigenvalues
from loca_theory.increments import spectral_statistics, squared_singular_values

SIZE = 300
# Steps of 0.05 hold any crossing up to 0.3, the printed and the observed ones.
_GRID = tuple(round(0.05 * i, 2) for i in range(7))
_FEWEST_NULLS = 400
_HALF = float(stats.norm.ppf(0.975))


def marginals(setting: Setting, *, structure: str, rho: float) -> Measurement:
    """Variance of an entry under a covariance, at one ρ.

    Source: "while maintaining the marginal distributions of individual parameters".
    """
    del setting
    energy = STRUCTURES[structure].energy(SIZE, SIZE, rho)
    return Measurement.exact(energy / SIZE**2)


def same_draw_gap(
    setting: Setting, *, structure: str, rho: float, ranks: Sequence[int]
) -> Measurement:
    """Mean error of R less that of D on the same correlated matrices, a part a rank.

    Source: "the critical correlation value where LoRA's reconstruction ability begins to
    outperform LoCA".
    """
    draws, seed = setting.scaled(25, 100, 400), setting.seed()
    blocks = [
        sweep.compute(
            sweep.point(
                structure, rho, SIZE, SIZE, tuple(ranks), seed, (i, min(i + sweep.BLOCK, draws))
            )
        )
        for i in range(0, draws, sweep.BLOCK)
    ]
    means, errors = sweep.Blocks(blocks).gap()
    return Measurement.of(
        Part(f"r = {r}", float(mean), float(error), draws)
        for r, mean, error in zip(ranks, means, errors, strict=True)
    )


def reference_crossings(
    setting: Setting, *, structure: str, ranks: Sequence[int], differences: bool = False
) -> Measurement:
    """The ρ at which R's error passes below that of D for independent entries, a part a rank.

    Args:
        setting: How much work.
        structure: ``equicorrelated``, (1−ρ)I + ρ11ᵀ, or ``shared-mean``, I + ρ11ᵀ as printed.
        ranks: r, increasing.
        differences: The steps from rank to rank instead.

    Source: the printed ρ_c and the figure sim_3.
    """
    draws = setting.scaled(50, 800, 3200)
    study = Study(
        SIZE,
        SIZE,
        tuple(ranks),
        structures=(structure,),
        protocols=(Protocol.IID_REFERENCE,),
        grids={"rho": _GRID},
        draws=draws,
        seed=setting.seed(),
        null_draws=_FEWEST_NULLS,
        jobs=1,
    )
    rows = study.run()["crossings"]
    if any(row["crossing"] is None for row in rows):
        return Measurement.exact(0.0, "There is no crossing up to 0.3.")
    parts = [
        Part(f"r = {row['r']}", row["crossing"], (row["high"] - row["low"]) / (2 * _HALF), draws)
        for row in rows
    ]
    if differences:
        # Errors of neighbours are positively correlated (same draws), so this is on the safe side.
        parts = [
            Part(
                f"{a.name} to {b.name}",
                b.value - a.value,
                a.standard_error + b.standard_error,
                draws,
            )
            for a, b in pairwise(parts)
        ]
    return Measurement.of(parts)


def _statistics(
    setting: Setting, rhos: Sequence[float], draws: int, *, is_centred: bool
) -> np.ndarray:
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


def _null(setting: Setting, draws: int, rows: int) -> np.ndarray:
    """T of independent entries, through the bidiagonal model."""
    return np.array(
        [
            spectral_statistics(
                sample_leading_eigenvalues(rows, SIZE, min(rows, SIZE), setting.rng)[0], rows, SIZE
            )["T"]
            for _ in range(draws)
        ]
    )


def statistic(setting: Setting, *, rhos: Sequence[float]) -> Measurement:
    """Mean of T, columns as they are, a part a value of ρ.

    Source: the four printed values of T.
    """
    found = _statistics(setting, rhos, setting.scaled(150, 4000, 20_000), is_centred=False)
    parts = [Part.mean(row, f"rho = {rho:g}") for rho, row in zip(rhos, found, strict=True)]
    shown = ", ".join(f"{row.std(ddof=1):.3f}" for row in found)
    return Measurement.of(parts, f"Standard deviations of T over draws: {shown}.")


def critical_value(setting: Setting, *, printed: float) -> Measurement:
    """Share of matrices with independent entries whose T exceeds the printed critical value.

    Source: "the critical value at the 0.95 significance level is 0.005".
    """
    draws = setting.scaled(1000, 8000, 50_000)
    null = _null(setting, draws, SIZE)
    note = f"The 0.95 quantile of T at K = {SIZE} is {upper_critical_value(null, 0.05):.4f}."
    return Measurement.of(Part.share(int((null > printed).sum()), draws), note)


def power(setting: Setting, *, rhos: Sequence[float], is_centred: bool) -> Measurement:
    """Share of correlated matrices whose T exceeds its 0.95 quantile, a part a value of ρ.

    Args:
        setting: How much work.
        rhos: ρ of (1−ρ)I + ρ11ᵀ.
        is_centred: Subtract each column's mean first, as a sample correlation matrix does.

    Source: "all these test statistics substantially exceed the critical value".
    """
    bound = upper_critical_value(
        _null(setting, setting.scaled(500, 4000, 20_000), SIZE - is_centred), 0.05
    )
    draws = setting.scaled(60, 400, 2000)
    found = _statistics(setting, rhos, draws, is_centred=is_centred)
    return Measurement.of(
        (
            Part.share(int((row > bound).sum()), draws, f"rho = {rho:g}")
            for rho, row in zip(rhos, found, strict=True)
        ),
        f"Critical value {bound:.4f}.",
    )
