"""Proposition 1: the law of ΔW = W′ − W₀, from simulated M-estimators; its assumptions, one by one.

The model is a layer of K outputs and d inputs, Y = XW̄ + E with isotropic X, so that Fisher's
information is a multiple of the identity and assumption (A2) holds. W̄ is drawn around W̄₀ with
standard deviation σ̄ (A1); W′ is estimated from n′ samples and W₀ from N. Only W′ − W̄ is simulated;
W̄ − W̄₀ and W̄₀ − W₀ enter through their exact variances.

Errors and the prior of W̄ are normal, so that ΔW is nearly normal by construction. From
:func:`errors_alone` on, one of the two is missing or has another law.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import linalg, stats

from loca_theory.claims.estimates import Estimate, Returned, Rng, Tier
from loca_theory.increments import calibrated_test
from loca_theory.increments.histogram import histogram

_Array = NDArray[np.float64]
Draw = Callable[[Rng, tuple[int, ...]], _Array]
_INPUTS, _OUTPUTS = 8, 8
_SPREAD = 0.1  # σ̄
_PRE_TRAINING = 100_000  # N
_FREEDOM, _TUNING, _ROUNDS = 3.0, 1.345, 60
_BATCHES = 20


def least_squares(rng: Rng, n: int, replicates: int, ar: float) -> _Array:
    """(XᵀX)⁻¹XᵀE of every replicate, shape (replicates, d, K), E standard normal.

    X enters only through XᵀX = LLᵀ. Given X, the product XᵀE is L times standard normal numbers.
    """
    factors = mix(ar) @ _factors(rng, n, replicates)
    normal = rng.standard_normal((replicates, _INPUTS, _OUTPUTS))
    return np.linalg.solve(factors.transpose(0, 2, 1), normal).astype(np.float64)


def mix(ar: float, size: int = _INPUTS) -> _Array:
    """Cholesky factor of correlations ρ^|i−j|, of the inputs or of as many variables as given."""
    return np.linalg.cholesky(linalg.toeplitz(ar ** np.arange(size))).astype(np.float64)


def _factors(rng: Rng, n: int, replicates: int) -> _Array:
    """Cholesky factors L of XᵀX for n standard normal inputs, by Bartlett's decomposition."""
    factor = np.tril(rng.standard_normal((replicates, _INPUTS, _INPUTS)), -1)
    diagonal = np.arange(_INPUTS)
    factor[:, diagonal, diagonal] = np.sqrt(rng.chisquare(n - diagonal, (replicates, _INPUTS)))
    return factor


def huber(x: _Array, y: _Array) -> NDArray[np.floating]:
    """Huber's estimator with unit scale for each column of y, by reweighted least squares."""
    w = np.linalg.solve(x.T @ x, x.T @ y)
    for _ in range(_ROUNDS):
        weight = np.minimum(1.0, _TUNING / np.maximum(np.abs(y - x @ w), 1e-12))
        weighted = x.T[None] * weight.T[:, None, :]  # (K, d, n)
        moment = weighted @ y.T[..., None]
        before, w = w, np.linalg.solve(weighted @ x, moment)[..., 0].T
        if np.abs(w - before).max() < 1e-6:  # far below the errors, which are about 0.1
            break
    return w


def fitted(
    rng: Rng, estimator: str, noise: Draw, n: int, replicates: int, ar: float = 0.0
) -> _Array:
    """W′ − W̄ of every replicate, shape (replicates, d, K), from inputs and errors themselves."""
    fits, factor = np.empty((replicates, _INPUTS, _OUTPUTS)), mix(ar)
    for i in range(replicates):
        x = rng.standard_normal((n, _INPUTS)) @ factor.T
        y = noise(rng, (n, _OUTPUTS))
        fits[i] = huber(x, y) if estimator == "huber" else np.linalg.solve(x.T @ x, x.T @ y)
    return fits


def _students(rng: Rng, shape: tuple[int, ...]) -> _Array:
    return rng.standard_t(_FREEDOM, shape)


@cache
def _asymptotic_variance(estimator: str) -> float:
    """σ₀² = E ψ²/(E ψ′)², for unit isotropic inputs."""
    if estimator == "least-squares":
        return 1.0
    t = np.linspace(-400, 400, 4_000_001)
    density = stats.t.pdf(t, _FREEDOM)
    psi = np.clip(t, -_TUNING, _TUNING)
    slope = float(np.trapezoid(density * (np.abs(t) < _TUNING), t))
    return float(np.trapezoid(psi**2 * density, t)) / slope**2


def variance(
    *, tier: Tier, rng: Rng, estimator: str, samples: Sequence[int], ar: float = 0.0
) -> Returned:
    """n′(Var ΔW − σ̄²)/σ₀² − 1 for each sample size n′, and its decrease with each step of n′.

    The part σ̄² of the variance is added by construction and taken at its exact value. What is
    measured is the mean square of W′ − W̄.

    Args:
        estimator: ``least-squares`` with normal errors, or ``huber`` with Student's errors (3
            degrees of freedom).
        samples: Values of n′, increasing; an output has 8 parameters.
        ar: Correlation of neighbouring inputs, ρ^|i−j|; 0 for isotropic ones.
    """
    base, parts = _asymptotic_variance(estimator), {}
    for n in samples:
        if estimator == "least-squares":
            errors = least_squares(rng, n, tier.scaled(60_000, 200_000, 600_000), ar)
        else:  # reweighted least squares takes about a hundred times as long
            errors = fitted(rng, estimator, _students, n, tier.scaled(800, 4000, 15_000), ar)
        squares = np.square(errors).mean(axis=(1, 2))
        parts[f"n' = {n}"] = Estimate.mean(n * squares / base - 1)
    return {**parts, **_steps(parts)}, f"σ0² = {base:.4f}."


def _steps(parts: Mapping[str, Estimate], times: float = 1.0) -> dict[str, Estimate]:
    """The difference of each estimate and a multiple of the next, which are independent."""
    return {
        f"{first} less {'twice ' if times == 2 else ''}{second}": a.less(b, times)
        for (first, a), (second, b) in pairwise(parts.items())
    }


def distance(
    *, tier: Tier, rng: Rng, samples: Sequence[int], halving: bool = False, levels: float = 0.0
) -> Returned:
    """Total variation of an entry of ΔW from the normal law of its variance, one estimate per n′.

    Given the inputs, an entry of the least-squares estimate is normal. Its density is therefore the
    mean of normal densities over draws of the inputs, which is compared with the normal one on a
    grid. The standard error comes from independent batches of draws.

    Args:
        samples: Values of n′; an output has 8 parameters.
        halving: Return each distance less twice that at the next n′ instead.
        levels: Standard deviation of the logarithm of the variance of the noise, which differs from
            one fine-tune to the next; 0 if it is 1 in all.
    """
    replicates, parts = tier.scaled(1000, 4000, 16_000), {}
    for n in samples:
        distances = [_total_variation(rng, n, replicates, levels) for _ in range(_BATCHES)]
        parts[f"n' = {n}"] = Estimate.mean(distances)
    shown = "; ".join(f"{name}: {part.value:.2g}" for name, part in parts.items())
    return _steps(parts, 2.0) if halving else parts, f"Total variation at {shown}."


def _total_variation(rng: Rng, n: int, replicates: int, levels: float = 0.0) -> float:
    unit = np.eye(_INPUTS)[:, :1]
    # (XᵀX)⁻¹ = L⁻ᵀL⁻¹: its first diagonal entry is the square of the first column of L⁻¹.
    columns = np.linalg.solve(_factors(rng, n, replicates), unit)
    variances = np.square(columns).sum(axis=(1, 2))
    if levels:
        variances *= np.exp(levels * rng.standard_normal(replicates))
    variances += _SPREAD**2 + 1 / _PRE_TRAINING
    standard_deviation = float(np.sqrt(variances.mean()))
    x = np.linspace(0, 12 * standard_deviation, 1201)
    scaled = x / np.sqrt(variances)[:, None]
    density = (np.exp(-np.square(scaled) / 2) / np.sqrt(variances)[:, None]).mean(axis=0)
    gap = np.abs(density - np.exp(-np.square(x / standard_deviation) / 2) / standard_deviation)
    return float(np.trapezoid(gap, x) / np.sqrt(2 * np.pi))  # both halves, halved


def neighbour_correlation(*, tier: Tier, rng: Rng, ar: float = 0.0) -> Returned:
    """Correlation of the least-squares errors of neighbouring parameters of an output.

    Args:
        ar: Correlation of neighbouring inputs, ρ^|i−j|; 0 for isotropic ones.
    """
    return prior_correlation(tier=tier, rng=rng, ar=ar, samples=200, spread=0.0)


def random_parameter(
    *, tier: Tier, rng: Rng, parameter: str = "independent", limit: str = "normal"
) -> Returned:
    """P(√n g(X_n, S) ≤ t) less its limit at three values of t.

    For the normal limit, g is the standardised mean of n = 2000 gamma variables of shape s. For the
    exponential one, √n g is ns times the least of n variables with P(X > x) = (1 − x)^s. S is
    uniform on (½, 2).

    Args:
        limit: ``normal`` or ``exponential``.
        parameter: S is ``independent`` of X_n, or ``chosen``: of two such values, the one with the
            larger g.
    """
    trials, n = tier.scaled(200_000, 1_000_000, 4_000_000), 2000

    def drawn() -> _Array:
        shape = rng.uniform(0.5, 2.0, trials)
        if limit == "exponential":
            return n * shape * (1 - rng.uniform(size=trials) ** (1 / (n * shape)))
        return (rng.gamma(n * shape) - n * shape) / np.sqrt(n * shape)

    value = drawn()
    value = np.maximum(value, drawn()) if parameter == "chosen" else value
    is_normal = limit == "normal"
    law, points = (stats.norm, [-1.0, 0.0, 1.0]) if is_normal else (stats.expon, [0.5, 1.0, 2.0])
    hits = {t: Estimate.fraction(int((value <= t).sum()), trials) for t in points}
    limits = {t: Estimate(float(law.cdf(t)), n=trials) for t in points}
    return {f"t = {t:g}": hits[t].less(limits[t]) for t in points}


_GRID = 20_001  # points of an integral over a density
# Laws of errors and priors, with variance 1 where there is one.
LAWS: dict[str, Draw] = {
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
    """
    settings = estimator, LAWS[law], samples, tier.scaled(125, 250, 1000)
    return Estimate.mean([_distance(rng, fitted(rng, *settings)) for _ in range(_BATCHES)])


def _distance(rng: Rng, entries: _Array) -> float:
    counts = histogram(torch.from_numpy(entries.ravel()))
    return calibrated_test(counts, rng, epsilon=0.0, replicates=99).estimate


def prior_distance(*, tier: Tier, rng: Rng, prior: str, samples: int) -> Returned:
    """Total variation of an entry of ΔW from the normal law, for a prior of W̄ of a given law.

    The prior has the standard deviation 0.1. W′ is the least-squares estimate with normal errors.

    Args:
        prior: Law of W̄ − W̄₀.
        samples: n′.
    """
    replicates, distances = tier.scaled(250, 1000, 4000), []
    for _ in range(_BATCHES):
        errors = least_squares(rng, samples, replicates, 0.0)
        distances.append(_distance(rng, errors + _SPREAD * LAWS[prior](rng, errors.shape)))
    return Estimate.mean(distances)


def prior_correlation(
    *, tier: Tier, rng: Rng, ar: float, samples: int, spread: float = 0.1
) -> Returned:
    """Correlation of neighbouring entries of ΔW, for correlated inputs and a normal prior of W̄.

    Args:
        ar: Correlation of neighbouring inputs, ρ^|i−j|, which makes (A2) false unless it is 0.
        samples: n′.
        spread: σ̄, the standard deviation of the prior; 0 for none.
    """
    errors = least_squares(rng, samples, tier.scaled(2000, 8000, 30_000), ar)
    errors += spread * rng.standard_normal(errors.shape)
    products = (errors[:, :-1] * errors[:, 1:]).mean(axis=(1, 2))
    return Estimate.mean(products / np.square(errors).mean())


def pre_training(*, tier: Tier, rng: Rng, law: str, samples: Sequence[int]) -> Returned:
    """Fraction of estimates with √N |W₀ − W̄₀| > 3, one per sample size N.

    W₀ is the least-squares estimate; a term is O_P(1/√N) if √N times the term does not spread as N
    grows. The errors have variance 1, so that the fraction of a normal limit is 0.0027.

    Args:
        law: Law of the errors.
        samples: Values of N.
    """
    replicates = tier.scaled(1000, 4000, 16_000)
    fits = {n: fitted(rng, "least-squares", LAWS[law], n, replicates) for n in samples}
    first = {n: np.sqrt(n) * np.abs(errors[:, 0, 0]) for n, errors in fits.items()}
    return {f"N = {n}": Estimate.exceeding(scaled, 3) for n, scaled in first.items()}


def mixture_distance(*, spreads: Sequence[float]) -> Returned:
    """Total variation of a mixture of centred normal laws from the normal law of its variance.

    Args:
        spreads: Standard deviations of the laws, which have equal weights.
    """
    normal = stats.norm(scale=np.sqrt(np.mean(np.square(spreads))))
    x = np.linspace(-12 * max(spreads), 12 * max(spreads), _GRID)
    mixture = np.mean([stats.norm.pdf(x, scale=spread) for spread in spreads], axis=0)
    return float(np.trapezoid(np.abs(mixture - normal.pdf(x)), x)) / 2


def mean_distance(*, count: int) -> Returned:
    """Total variation of a mean of i.i.d. exponential variables from the normal law.

    The mean of n such variables, times n, has the gamma law with shape n.

    Args:
        count: n.
    """
    law, normal = stats.gamma(count), stats.norm(count, np.sqrt(count))
    x = count + np.sqrt(count) * np.linspace(-12, 40, _GRID)
    return float(np.trapezoid(np.abs(law.pdf(x) - normal.pdf(x)), x)) / 2
