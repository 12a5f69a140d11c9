"""Proposition 1 taken apart: what its assumptions and its terms deliver, one by one.

The model is that of :mod:`loca_theory.claims.checks.normality`: a layer of 8 inputs and 8 outputs,
Y = XW̄ + E. There, errors are normal and the prior of W̄ is normal, so that ΔW is nearly normal by
construction. Here, one of the two is missing or has another law.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from loca_theory.claims.checks.normality import (
    Draw,
    correlation_of_neighbours,
    fitted,
    least_squares,
)
from loca_theory.claims.estimates import Estimate, Returned, Rng, Tier
from loca_theory.increments import calibrated_test
from loca_theory.increments.histogram import histogram

_Array = NDArray[np.float64]
_BATCHES = 20
_GRID = 20_001  # points of an integral over a density
# Laws of errors and priors, with variance 1 where there is one.
_LAWS: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "t3": lambda rng, shape: rng.standard_t(3, shape) / np.sqrt(3),
    "t5": lambda rng, shape: rng.standard_t(5, shape) / np.sqrt(5 / 3),
    "exponential": lambda rng, shape: rng.standard_exponential(shape) - 1,
    "laplace": lambda rng, shape: rng.laplace(0, np.sqrt(0.5), shape),
    "t2": lambda rng, shape: rng.standard_t(2, shape),
}


def errors_alone(*, tier: Tier, rng: Rng, estimator: str, law: str, samples: int) -> Returned:
    """Total variation of an entry of W′ − W̄ from the normal law, without any prior.

    The estimate of each of 20 batches is free of the bias of its counting noise; the standard error
    is that of their mean.

    Args:
        estimator: ``least-squares`` or ``huber``.
        law: Law of the errors of Y: ``normal``, ``t3``, ``t5``, ``exponential`` or ``t2``.
        samples: n′; an output has 8 parameters.

    Source: assumption (A2) of Proposition 1, that W′ is an M-estimator with a normal limit.
    """
    replicates, found = tier.scaled(125, 250, 1000), []
    for _ in range(_BATCHES):
        errors = fitted(rng, estimator, _LAWS[law], samples, replicates)
        found.append(_distance(rng, errors))
    return Estimate.mean(found)


def _distance(rng: Rng, entries: _Array) -> float:
    counts = histogram(torch.from_numpy(entries.ravel()))
    return calibrated_test(counts, rng, epsilon=0.0, replicates=99).estimate


def prior_distance(*, tier: Tier, rng: Rng, prior: str, samples: int) -> Returned:
    """Total variation of an entry of ΔW from the normal law, for a prior of W̄ of a given law.

    The prior has the standard deviation 0.1. W′ is the least-squares estimate with normal errors.

    Args:
        prior: Law of W̄ − W̄₀.
        samples: n′.

    Source: assumptions (A1) and (A2) of Proposition 1.
    """
    replicates, found = tier.scaled(250, 1000, 4000), []
    for _ in range(_BATCHES):
        errors = least_squares(rng, samples, replicates, 0.0)
        shift = 0.1 * _LAWS[prior](rng, errors.shape)
        found.append(_distance(rng, errors + shift))
    return Estimate.mean(found)


def prior_correlation(
    *, tier: Tier, rng: Rng, ar: float, samples: int, spread: float = 0.1
) -> Returned:
    """Correlation of neighbouring entries of ΔW, for correlated inputs and a normal prior of W̄.

    Args:
        ar: Correlation of neighbouring inputs, ρ^|i−j|, which makes (A2) false unless it is 0.
        samples: n′.
        spread: σ̄, the standard deviation of the prior; 0 for none.

    Source: assumptions (A1) and (A2) of Proposition 1.
    """
    errors = least_squares(rng, samples, tier.scaled(2000, 8000, 30_000), ar)
    errors += spread * rng.standard_normal(errors.shape)
    return correlation_of_neighbours(errors)


def pre_training(*, tier: Tier, rng: Rng, law: str, samples: Sequence[int]) -> Returned:
    """Fraction of estimates with √N |W₀ − W̄₀| > 3, one per sample size N.

    W₀ is the least-squares estimate; a term is O_P(1/√N) if √N times the term does not spread as N
    grows. The errors have variance 1, so that the fraction of a normal limit is 0.0027.

    Args:
        law: Law of the errors.
        samples: Values of N.

    Source: the last term of Proposition 1, O_P(1/√N).
    """
    replicates, parts = tier.scaled(1000, 4000, 16_000), {}
    for n in samples:
        first = fitted(rng, "least-squares", _LAWS[law], n, replicates)[:, 0, 0]
        beyond = int((np.sqrt(n) * np.abs(first) > 3).sum())
        parts[f"N = {n}"] = Estimate.fraction(beyond, replicates)
    return parts


def mixture_distance(*, spreads: Sequence[float]) -> Returned:
    """Total variation of a mixture of centred normal laws from the normal law of its variance.

    Args:
        spreads: Standard deviations of the laws, which have equal weights.

    Source: appendix "Justification of Assumptions", on (A1).
    """
    laws = [stats.norm(scale=one) for one in spreads]
    whole = stats.norm(scale=np.sqrt(np.mean(np.square(spreads))))
    x = np.linspace(-12 * max(spreads), 12 * max(spreads), _GRID)
    mixture = np.mean([law.pdf(x) for law in laws], axis=0)
    return float(np.trapezoid(np.abs(mixture - whole.pdf(x)), x)) / 2


def mean_distance(*, count: int) -> Returned:
    """Total variation of a mean of i.i.d. exponential variables from the normal law.

    The mean of n such variables, times n, has the gamma law with shape n.

    Args:
        count: n.

    Source: appendix "Justification of Assumptions", on (A1).
    """
    law, normal = stats.gamma(count), stats.norm(count, np.sqrt(count))
    x = count + np.sqrt(count) * np.linspace(-12, 40, _GRID)
    return float(np.trapezoid(np.abs(law.pdf(x) - normal.pdf(x)), x)) / 2
