"""Theory beyond the paper: spikes in a spectrum."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

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
    fraction = optimize.brentq(
        lambda one: (
            spiked_low_rank_bound(one, count, budget)
            - spiked_selection_bound(one, np.ones(count), budget)
        ),
        1e-3,
        0.25,
    )
    fraction -= weaker
    distances, gaps = [], []
    for _ in range(tier.scaled(10, 12, 100)):
        noise, matrix = _spiked(rng, size, fraction, count)
        with_spikes = np.linalg.svd(matrix, compute_uv=False)
        distances.append(kolmogorov(with_spikes, np.linalg.svd(noise, compute_uv=False)))
        low_rank = np.square(with_spikes[:r]).sum() / np.square(with_spikes).sum()
        gaps.append(low_rank - fractions(matrix[None], "D", budget)[0])
    return {
        "distance over s/K": max(distances) * size / count,
        "LoRA less LoCA": Estimate.mean(gaps),
    }, f"The spikes have {fraction:.4f} of the energy."


def kolmogorov(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Kolmogorov distance between two empirical distributions."""
    points = np.concatenate([first, second])
    ranks = [np.searchsorted(np.sort(one), points, side="right") for one in (first, second)]
    return float(np.abs(ranks[0] / len(first) - ranks[1] / len(second)).max())


def _spiked(rng: Rng, size: int, fraction: float, count: int) -> tuple[_Array, _Array]:
    """A matrix of independent entries, and the same with equal spikes in random directions.

    The spikes have the fraction ``fraction`` of the mean energy.
    """
    noise = rng.standard_normal((size, size))
    left, right = (np.linalg.qr(rng.standard_normal((size, count)))[0] for _ in range(2))
    strength = size * np.sqrt(fraction / (1 - fraction) / count)
    return noise, noise + strength * left @ right.T


def histogram(
    *,
    tier: Tier,
    rng: Rng,
    size: int,
    fraction: float,
    scale: Literal["known", "entries"] = "known",
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
    known, fitted = [], []
    for _ in range(tier.scaled(2, 10, 100)):
        pair = _spiked(rng, size, fraction, 1)
        at_scale, least = [], []
        for matrix in pair:
            values = np.linalg.svd(matrix, compute_uv=False) / np.sqrt(size)
            sigma = 1.0 if scale == "known" else float(np.sqrt(np.mean(matrix**2)))
            at_scale.append(law_distance(values / sigma))
            least.append(min(law_distance(values / one) for one in _SCALES))
        known.append(abs(at_scale[1] - at_scale[0]))
        fitted.append(abs(least[1] - least[0]))
    return {
        "K times the change": size * max(known),
        "K times the change, fitted scale": size * max(fitted),
    }, f"{len(known)} matrices."


def law_distance(singular_values: _Array) -> float:
    """Kolmogorov distance from the distribution of singular values to their limit, if K = p = q.

    Args:
        singular_values: Of a K×K matrix of entries with variance 1/K.
    """
    values = np.sort(singular_values)
    law, steps = MarchenkoPastur(1.0).cdf(values**2), np.arange(len(values) + 1) / len(values)
    return float(max((steps[1:] - law).max(), (law - steps[:-1]).max()))


def limit(
    *, tier: Tier, rng: Rng, size: int, r: int, count: int, margin: float, bulk: bool = True
) -> Returned:
    """What low rank retains less what D retains, on both sides of the limiting threshold.

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
    budget, found = Budget(size, size, r), {}
    for side, name in ((-1, "below"), (1, "above")):
        gaps = []
        for _ in range(tier.scaled(12, 24, 100)):
            matrix = _spiked(rng, size, threshold + side * margin, count)[1]
            energies = np.square(np.linalg.svd(matrix, compute_uv=False))
            gaps.append(energies[:r].sum() / energies.sum())
            gaps[-1] -= fractions(matrix[None], "D", budget)[0]
        found[f"LoRA less LoCA, {name} the threshold"] = Estimate.mean(gaps)
    return found, f"The threshold is {threshold:.4f}."
