"""The section on non-i.i.d. effects: its covariance, and the ρ at which LoRA overtakes LoCA."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.claims.estimates import Estimate, Named, Returned, Rng, Tier, draw_seed
from loca_theory.dependence import draws as sweep
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.expressivity import Budget, exact_error
from loca_theory.increments.eigenvalues import squared_singular_values

SIZE = 300
# All printed and all observed crossings are below 0.3.
_GRID = tuple(round(0.05 * i, 2) for i in range(7))


def marginals(*, structure: str, rho: float) -> Returned:
    """Variance of an entry under a covariance structure with one ρ."""
    return STRUCTURES[structure].energy(SIZE, SIZE, rho) / SIZE**2


def same_draw_gap(
    *, tier: Tier, rng: Rng, structure: str, rhos: Sequence[float], ranks: Sequence[int]
) -> Named:
    """Mean error of LoRA less that of LoCA on the same correlated matrices, by rank.

    Args:
        structure: ``equicorrelated``, (1−ρ)I + ρ11ᵀ, or ``shared-mean``, I + ρ11ᵀ as printed.
        rhos: One ρ for each rank.
        ranks: Values of r.
    """
    draws, seed = tier.scaled(25, 100, 400), draw_seed(rng)
    for rho in dict.fromkeys(rhos):
        at_rho = [r for r, its in zip(ranks, rhos, strict=True) if its == rho]
        settings = (STRUCTURES[structure], rho, SIZE, SIZE, tuple(at_rho), seed)
        blocks = [
            sweep.evaluate(sweep.DrawCell(*settings, (start, start + sweep.BLOCK)))
            for start in range(0, draws, sweep.BLOCK)
        ]
        for r, mean, error in zip(at_rho, *sweep.Blocks(blocks).gap(), strict=True):
            yield f"r = {r}, rho = {rho:g}", Estimate(float(mean), float(error), draws)


def reference_gap(
    *, tier: Tier, rng: Rng, structure: str, rhos: Sequence[float], ranks: Sequence[int]
) -> Named:
    """Mean loss of LoRA over K², less that of LoCA for independent entries, by rank.

    The figures divide by K² for every ρ; :func:`reference_crossings` divides by E‖W‖².

    Args:
        structure: As in :func:`same_draw_gap`.
        rhos: One ρ for each rank.
        ranks: Values of r.
    """
    draws, seed = tier.scaled(25, 100, 400), draw_seed(rng)
    for r, rho in zip(ranks, rhos, strict=True):
        losses = _low_rank_losses(structure, rho, [r], draws, seed)[:, 0] / SIZE**2
        reference = exact_error("LoCA", Budget(SIZE, SIZE, r))
        yield f"r = {r}, rho = {rho:g}", Estimate.mean(losses - reference)


def _low_rank_losses(
    structure: str, rho: float, ranks: Sequence[int], draws: int, seed: int
) -> NDArray[np.float64]:
    """‖W − Ŵ_R‖² of each draw and rank; the draws are the same for every ρ."""
    losses = np.empty((draws, len(ranks)))
    for draw in range(draws):
        family = STRUCTURES[structure].family(SIZE, SIZE, np.random.default_rng([seed, draw]))
        lost = np.cumsum(squared_singular_values(torch.from_numpy(family(rho))))
        losses[draw] = [lost[SIZE - r - 1] for r in ranks]
    return losses


def reference_crossings(
    *, tier: Tier, rng: Rng, structure: str, ranks: Sequence[int], fraction: float = 1.0
) -> Named:
    """The ρ from which LoRA has a smaller error than LoCA for independent entries, by rank.

    Errors are relative to E‖W‖². The mean gap between the two errors is computed on a grid of ρ,
    and once more where the straight line between the grid values around the crossing is 0. The
    parabola through these three values gives the root. Its standard error is that of the gap
    divided by the slope. If there is no crossing up to 0.3, the estimate is exactly 0.3.

    Args:
        structure: As in :func:`same_draw_gap`.
        ranks: Values of r, increasing.
        fraction: Fraction of the tier's draws to use, for values far from the bounds of the rule.
    """
    # With 1200 draws two seeds would disagree in 15 of 100 cases, with these in one.
    draws, seed = tier.scaled(25, 2400, 4800), draw_seed(rng)
    draws = max(25, round(draws * fraction))
    reference = [exact_error("LoCA", Budget(SIZE, SIZE, r)) for r in ranks]

    def gaps(rho: float) -> NDArray[np.float64]:
        losses = _low_rank_losses(structure, rho, ranks, draws, seed)
        return losses / STRUCTURES[structure].energy(SIZE, SIZE, rho) - reference

    means = np.array([gaps(rho).mean(axis=0) for rho in _GRID])
    for index, r in enumerate(ranks):
        below = np.flatnonzero(means[:, index] < 0)
        if not len(below) or below[0] == 0:
            yield f"r = {r}, none up to {_GRID[-1]:g}", _GRID[-1]
            continue
        near = slice(below[0] - 1, below[0] + 1)
        (a, b), (high, low) = _GRID[near], means[near, index]
        middle = float(a + (b - a) * high / (high - low))
        at_middle = gaps(middle)[:, index]
        # The parabola of ρ as a function of the gap, and its slope where the gap is 0.
        parabola = np.polyfit([high, at_middle.mean(), low], [a, middle, b], 2)
        error = abs(parabola[1]) * at_middle.std(ddof=1) / np.sqrt(draws)
        yield f"r = {r}", Estimate(float(parabola[2]), float(error), draws)
