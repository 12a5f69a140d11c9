"""Theory beyond the paper: spikes in a spectrum."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from loca_theory.claims.checks.theory_bases import fractions
from loca_theory.claims.estimates import Estimate, Returned, Rng, Tier
from loca_theory.expressivity import Budget
from loca_theory.expressivity.energy_bounds import spiked_low_rank_bound, spiked_selection_bound
from loca_theory.expressivity.limits import coefficient_fraction, low_rank_fraction
from loca_theory.increments import MarchenkoPastur

_Array = NDArray[np.float64]
# Scales at which an empirical distribution is compared with the limit law.
_SCALES = np.linspace(0.95, 1.1, 31)


def spikes(*, tier: Tier, rng: Rng, size: int, r: int, count: int, weaker: float = 0.0) -> Returned:
    """Effect of spikes on the eigenvalue distribution, and on low rank against coefficients.

    The spikes have equal strength, random directions, and the smallest energy for which the bounds
    prove that low rank retains more.

    Args:
        tier: 10, 12 or 100 matrices.
        size: K.
        r: LoRA's rank.
        count: Number s of the spikes, at most r.
        weaker: The energy fraction that the spikes have less.

    Returns:
        The largest Kolmogorov distance between the eigenvalue distributions with and without the
        spikes, over s/K; and the mean of what low rank retains less what D retains.
    """
    budget = Budget(size, size, r)

    def advantage(fraction: float) -> float:
        low_rank = spiked_low_rank_bound(fraction, count, budget)
        return low_rank - spiked_selection_bound(fraction, np.ones(count), budget)

    fraction = optimize.brentq(advantage, 1e-3, 0.25) - weaker
    distances, gaps = [], []
    for _ in range(tier.scaled(10, 12, 100)):
        noise, matrix = _spiked(rng, size, fraction, count)
        with_spikes, without = (np.linalg.svd(w, compute_uv=False) for w in (matrix, noise))
        distances.append(float(stats.ks_2samp(with_spikes, without, method="asymp").statistic))
        low_rank = np.square(with_spikes[:r]).sum() / np.square(with_spikes).sum()
        gaps.append(low_rank - fractions(matrix[None], "LoCA", budget)[0])
    parts = {"distance over s/K": max(distances) * size / count}
    note = f"The spikes have {fraction:.4f} of the energy."
    return {**parts, "LoRA less LoCA": Estimate.mean(gaps)}, note


def _spiked(rng: Rng, size: int, fraction: float, count: int) -> tuple[_Array, _Array]:
    """A matrix of independent entries, and the same with equal spikes in random directions.

    The spikes have the fraction ``fraction`` of the mean energy.
    """
    noise = rng.standard_normal((size, size))
    left, right = (np.linalg.qr(rng.standard_normal((size, count)))[0] for _ in range(2))
    strength = size * np.sqrt(fraction / (1 - fraction) / count)
    return noise, noise + strength * left @ right.T


def histogram(
    *, tier: Tier, rng: Rng, size: int, fraction: float, scale: str = "known"
) -> Returned:
    """Change of the distance to the Marchenko–Pastur law by one spike.

    Args:
        tier: 2, 10 or 100 matrices.
        size: K.
        fraction: The energy of the spike as a fraction of the mean energy.
        scale: The scale of the limit law in the first estimate: ``known``, or ``entries`` for the
            root mean square of the entries.

    Returns:
        K times the largest absolute change; then the same if the distance is minimised over the
        scale.
    """
    draws = tier.scaled(2, 10, 100)
    distances = np.empty((draws, 2, 2))  # without and with the spike, at the scale and fitted
    for draw in range(draws):
        for i, matrix in enumerate(_spiked(rng, size, fraction, 1)):
            values = np.linalg.svd(matrix, compute_uv=False) / np.sqrt(size)
            sigma = 1.0 if scale == "known" else float(np.sqrt(np.mean(matrix**2)))
            fitted = min(law_distance(values / scale) for scale in _SCALES)
            distances[draw, i] = law_distance(values / sigma), fitted
    changes = size * np.abs(distances[:, 1] - distances[:, 0]).max(axis=0)
    names = ("K times the change", "K times the change, fitted scale")
    return dict(zip(names, changes.tolist(), strict=True)), f"{draws} matrices."


def law_distance(singular_values: _Array) -> float:
    """Kolmogorov distance of singular values from their limit, for K×K entries of variance 1/K."""
    law: Any = MarchenkoPastur(1.0).cdf  # of arrays, which the types of scipy do not know
    return float(stats.ks_1samp(singular_values**2, law, method="asymp").statistic)


def limit(
    *, tier: Tier, rng: Rng, size: int, r: int, count: int, margin: float, bulk: bool = True
) -> Returned:
    """Energy that LoRA retains less what LoCA does, on both sides of the limiting threshold.

    Args:
        tier: 12, 24 or 100 matrices.
        size: K.
        r: LoRA's rank.
        count: Number s of the spikes, which are equal.
        margin: Distance of the energy fraction π from the threshold, on either side.
        bulk: Whether low rank retains something of the entries without spikes, R(ρ).

    Returns:
        The mean differences below and above the threshold (F(ρ) − R(ρ))/(1 − R(ρ)), ρ = r/K.
    """
    low_rank = low_rank_fraction(r / size) if bulk else 0.0
    threshold = (coefficient_fraction(r / size) - low_rank) / (1 - low_rank)
    budget, estimates = Budget(size, size, r), {}
    for side, name in ((-1, "below"), (1, "above")):
        gaps = []
        for _ in range(tier.scaled(12, 24, 100)):
            matrix = _spiked(rng, size, threshold + side * margin, count)[1]
            energies = np.square(np.linalg.svd(matrix, compute_uv=False))
            gaps.append(energies[:r].sum() / energies.sum())
            gaps[-1] -= fractions(matrix[None], "LoCA", budget)[0]
        estimates[f"LoRA less LoCA, {name} the threshold"] = Estimate.mean(gaps)
    return estimates, f"The threshold is {threshold:.4f}."
