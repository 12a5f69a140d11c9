"""The section on non-i.i.d. effects: its covariance, and where low rank overtakes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from scipy import stats

from loca_theory.claims.measurement import Measurement, Part, Setting
from loca_theory.dependence import STRUCTURES, Protocol, Study
from loca_theory.dependence import draws as sweep
from loca_theory.expressivity import Budget, exact_error

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
    setting: Setting, *, structure: str, rhos: Sequence[float], ranks: Sequence[int]
) -> Measurement:
    """Mean error of R less that of D on the same correlated matrices, a part a rank.

    Args:
        setting: How much work.
        structure: ``equicorrelated``, (1−ρ)I + ρ11ᵀ, or ``shared-mean``, I + ρ11ᵀ as printed.
        rhos: ρ for each rank.
        ranks: r.

    Source: "the critical correlation value where LoRA's reconstruction ability begins to
    outperform LoCA", and the third implication, that advantages persist.
    """
    draws, seed = setting.scaled(25, 100, 400), setting.seed()
    parts = []
    for rho in dict.fromkeys(rhos):
        mine = [r for r, its in zip(ranks, rhos, strict=True) if its == rho]
        means, errors = _blocks(structure, rho, mine, draws, seed).gap()
        parts += [
            Part(f"r = {r}, rho = {rho:g}", float(mean), float(error), draws)
            for r, mean, error in zip(mine, means, errors, strict=True)
        ]
    return Measurement.of(parts)


def _blocks(
    structure: str, rho: float, ranks: Sequence[int], draws: int, seed: int
) -> sweep.Blocks:
    return sweep.Blocks(
        [
            sweep.compute(
                sweep.point(structure, rho, SIZE, SIZE, tuple(ranks), seed, (i, i + sweep.BLOCK))
            )
            for i in range(0, draws, sweep.BLOCK)
        ]
    )


def reference_gap(
    setting: Setting, *, structure: str, rhos: Sequence[float], ranks: Sequence[int]
) -> Measurement:
    """Mean loss of R over K², less that of D for independent entries, a part a rank.

    The figures divide by K² whatever ρ is; :func:`reference_crossings` divides by E‖W‖².

    Args:
        setting: How much work.
        structure: As in :func:`same_draw_gap`.
        rhos: ρ for each rank.
        ranks: r.

    Source: the axis "L/K²" of the figures, and the printed ρ_c.
    """
    draws, seed = setting.scaled(25, 100, 400), setting.seed()
    parts = []
    for r, rho in zip(ranks, rhos, strict=True):
        means, errors = _blocks(structure, rho, [r], draws, seed).losses("R")
        scale = STRUCTURES[structure].energy(SIZE, SIZE, rho) / SIZE**2
        reference = exact_error("D", Budget(SIZE, SIZE, r))
        gap = scale * float(means[0]) - reference
        parts.append(Part(f"r = {r}, rho = {rho:g}", gap, scale * float(errors[0]), draws))
    return Measurement.of(parts)


def reference_crossings(
    setting: Setting, *, structure: str, ranks: Sequence[int], differences: bool = False
) -> Measurement:
    """The ρ at which R's error passes below that of D for independent entries, a part a rank.

    Errors are relative to E‖W‖². Where there is no crossing up to 0.3 the part is 0.3, exactly.

    Args:
        setting: How much work.
        structure: As in :func:`same_draw_gap`.
        ranks: r, increasing.
        differences: The steps from rank to rank instead, from an eighth of the draws.

    Source: the printed ρ_c and the figure sim_3.
    """
    draws = setting.scaled(50, 800, 3200)
    draws = max(50, draws // 8) if differences else draws
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
    parts = [
        Part(f"r = {row['r']}, none up to {_GRID[-1]:g}", _GRID[-1])
        if row["crossing"] is None
        else Part(
            f"r = {row['r']}", row["crossing"], (row["high"] - row["low"]) / (2 * _HALF), draws
        )
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
