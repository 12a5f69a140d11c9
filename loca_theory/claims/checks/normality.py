"""Proposition 1: the law of ΔW = W′ − W₀ by simulated M-estimators.

The model is a layer of K outputs and d inputs, Y = XW̄ + E with isotropic X, so that Fisher's
information is a multiple of the identity and assumption (A2) holds. W̄ is drawn around W̄₀ with
deviation σ̄ (A1); W′ is estimated from n′ samples and W₀ from N. Simulated is W′ − W̄, to which
W̄ − W̄₀ and W̄₀ − W₀ are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special, stats

from loca_theory.claims.measurement import Measurement, Part, Setting
from loca_theory.increments import calibrated_test, histogram

_Array = NDArray[np.float64]
_INPUTS, _OUTPUTS = 8, 8
_SPREAD = 0.1  # σ̄
_PRE_TRAINING = 100_000  # N
_FREEDOM, _TUNING, _ROUNDS = 3.0, 1.345, 30


def _errors(setting: Setting, estimator: str, n: int, replicates: int, ar: float = 0.0) -> _Array:
    """W′ − W̄ of every replicate, shape (replicates, d, K)."""
    found = []
    mix = np.linalg.cholesky(ar ** np.abs(np.subtract.outer(*[np.arange(_INPUTS)] * 2)))
    for _ in range(replicates):
        x = setting.rng.standard_normal((n, _INPUTS)) @ mix.T
        if estimator == "least-squares":
            noise = setting.rng.standard_normal((n, _OUTPUTS))
            found.append(np.linalg.solve(x.T @ x, x.T @ noise))
        else:
            found.append(_huber(x, setting.rng.standard_t(_FREEDOM, (n, _OUTPUTS))))
    return np.array(found)


def _huber(x: _Array, y: _Array) -> NDArray[np.floating]:
    """Huber's estimator with unit scale by reweighted least squares, a column of y at a time."""
    w = np.linalg.solve(x.T @ x, x.T @ y)
    for _ in range(_ROUNDS):
        weight = np.minimum(1.0, _TUNING / np.maximum(np.abs(y - x @ w), 1e-12))
        weighted = x.T[None] * weight.T[:, None, :]  # (K, d, n)
        moment = weighted @ y.T[..., None]
        w = np.linalg.solve(weighted @ x, moment)[..., 0].T
    return w


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


def _increments(setting: Setting, estimator: str, n: int, replicates: int) -> _Array:
    """ΔW of every replicate."""
    errors = _errors(setting, estimator, n, replicates)
    prior = _SPREAD * setting.rng.standard_normal(errors.shape)
    # W₀ − W̄₀ by its limiting law: it is not what is looked at.
    deviation = np.sqrt(_asymptotic_variance(estimator) / _PRE_TRAINING)
    return errors + prior - deviation * setting.rng.standard_normal(errors.shape)


def variance(setting: Setting, *, estimator: str, samples: Sequence[int]) -> Measurement:
    """Mean square of the entries of ΔW over σ₀²/n′ + σ̄², a part a sample size n′.

    Args:
        setting: How much work.
        estimator: ``least-squares`` with normal errors, or ``huber`` with Student's errors (3
            degrees of freedom).
        samples: n′; there are 8 parameters an output.

    Source: Proposition 1.
    """
    # Reweighting takes some fifty times as long.
    numbers = (2000, 8000, 30_000) if estimator == "least-squares" else (1000, 4000, 15_000)
    replicates = setting.scaled(*numbers)
    base = _asymptotic_variance(estimator)
    parts = []
    for n in samples:
        squares = np.square(_increments(setting, estimator, n, replicates)).mean(axis=(1, 2))
        parts.append(Part.mean(squares / (base / n + _SPREAD**2), f"n' = {n}"))
    return Measurement.of(parts, f"σ0² = {base:.4f}, σ̄² = {_SPREAD**2:g}.")


def distance(setting: Setting, *, estimator: str, n: int) -> Measurement:
    """Total variation of the entries of ΔW from the normal law, counting taken out.

    Source: Proposition 1.
    """
    replicates = setting.scaled(2000, 8000, 30_000)
    found = _increments(setting, estimator, n, replicates)
    test = calibrated_test(histogram(torch.from_numpy(found)), setting.rng, epsilon=0.0)
    error = (test.high - test.estimate) / float(stats.norm.ppf(0.975))
    return Measurement.of(
        Part("", test.estimate, error, found.size), f"p-value of normality: {test.p_value:.3f}."
    )


def neighbour_correlation(setting: Setting, *, ar: float) -> Measurement:
    """Correlation of the errors of neighbouring parameters of an output, by least squares.

    Args:
        setting: How much work.
        ar: Correlation of neighbouring inputs, ρ^|i−j|; 0 for isotropic ones.

    Source: assumption (A2) of Proposition 1.
    """
    replicates = setting.scaled(2000, 8000, 30_000)
    errors = _errors(setting, "least-squares", 200, replicates, ar)
    products = (errors[:, :-1] * errors[:, 1:]).mean(axis=(1, 2))
    return Measurement.of(Part.mean(products / np.square(errors).mean()))


def random_parameter(setting: Setting) -> Measurement:
    """P(√n g(X_n, S) ≤ t) less Φ(t) at t = −1, 0, 1.

    g is the standardised mean of n = 2000 gamma variables of shape s, and S uniform on (½, 2),
    independent of them.

    Source: the lemma in the derivation of Proposition 1.
    """
    trials, n = setting.scaled(200_000, 1_000_000, 4_000_000), 2000
    shape = setting.rng.uniform(0.5, 2.0, trials)
    value = (setting.rng.gamma(n * shape) - n * shape) / np.sqrt(n * shape)
    limits = np.array([-1.0, 0.0, 1.0])
    parts = []
    for t, expected in zip(limits, special.ndtr(limits), strict=True):
        hits = Part.share(int((value <= t).sum()), trials)
        parts.append(Part(f"t = {t:g}", hits.value - float(expected), hits.standard_error, trials))
    return Measurement.of(parts)
