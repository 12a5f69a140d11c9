"""Theory beyond the paper: when the increment of a linear layer is of low rank from the start."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from loca_theory.claims.estimates import Estimate, Returned, Rng, Tier, extreme
from loca_theory.expressivity.energy_bounds import sign_energy_bound

_Array = NDArray[np.float64]
_SMALLEST = 1e-9


def rank(*, rng: Rng, optimizer: str, size: int, tokens: int, steps: Sequence[int]) -> Returned:
    """Rank of the increment less the number of tokens seen, the largest over several training runs.

    A layer y = tanh(W x) with random labels sees new tokens in every step.

    Args:
        optimizer: ``momentum`` (gradient descent with momentum 0.9) or ``adam``.
        size: K.
        tokens: Tokens in a step.
        steps: Numbers of steps of the runs.
    """
    excess = {}
    for count in steps:
        increment = _train(rng, optimizer, size, tokens, count)[0]
        values = np.linalg.svd(increment, compute_uv=False)
        excess[count] = int((values > _SMALLEST * values[0]).sum()) - min(size, tokens * count)
    shown = ", ".join(f"{value} after {count} steps" for count, value in excess.items())
    return max(excess.values()), f"Rank less tokens seen: {shown}."


def _train(rng: Rng, optimizer: str, size: int, tokens: int, steps: int) -> tuple[_Array, _Array]:
    """The increment, and the first gradient."""
    start = rng.standard_normal((size, size)) / np.sqrt(size)
    weights, mean, square = start.copy(), np.zeros_like(start), np.zeros_like(start)
    first = mean
    for step in range(1, steps + 1):
        x, labels = (rng.standard_normal((tokens, size)) for _ in range(2))
        y = np.tanh(x @ weights.T)
        gradient = ((y - labels) * (1 - y * y)).T @ x
        first = gradient if step == 1 else first
        if optimizer == "adam":
            mean = 0.9 * mean + 0.1 * gradient
            square = 0.999 * square + 0.001 * gradient**2
            scale = np.sqrt(square / (1 - 0.999**step)) + 1e-300
            weights -= 0.001 * mean / (1 - 0.9**step) / scale
        else:
            mean = 0.9 * mean + gradient
            weights -= 0.001 * mean
    return weights - start, first


def input_spectrum(
    *, tier: Tier, rng: Rng, size: int, tokens: int, r: int, common: float = 0.0
) -> Returned:
    """Energy of a gradient in the main directions of its inputs, less the inputs' own fraction.

    The inputs have the second moments 1/i². The output gradients are independent of each other and
    of the inputs, except for a part that all tokens share.

    Args:
        tier: 200, 1000 or 10,000 gradients.
        size: K.
        tokens: Number of tokens.
        r: Number of directions.
        common: Standard deviation of the part of the output gradients that all tokens share.

    Returns:
        The mean over gradients of the energy in the r main directions of the inputs, relative to
        the mean energy of a gradient, less the energy fraction of these directions in the inputs.
    """
    x = rng.standard_normal((tokens, size)) / np.arange(1, size + 1)
    _, values, directions = np.linalg.svd(x, full_matrices=False)
    inputs = np.square(values[:r]).sum() / np.square(values).sum()
    gaps = []
    for _ in range(tier.scaled(200, 1000, 10_000)):
        g = rng.standard_normal((tokens, size)) + common * rng.standard_normal(size)
        gradient = g.T @ x
        energy = np.square(gradient @ directions[:r].T).sum() / (size * np.square(values).sum())
        gaps.append(energy - inputs)
    return Estimate.mean(gaps), f"The inputs' fraction is {inputs:.4f}."


def _energies(matrix: _Array) -> _Array:
    """The squared singular values."""
    return np.square(np.linalg.svd(matrix, compute_uv=False))


def approximation(
    *, tier: Tier, rng: Rng, size: int, tokens: int, ranks: Sequence[int], more: int = 0
) -> Returned:
    """The two bounds on the energy of a gradient beyond rank r, less this energy.

    G = ΓᵀX, where the inputs X have the second moments 1/i² and the gradients Γ = tanh(XA) depend
    on them; A is random.

    Args:
        tier: 3, 20 or 200 gradients.
        size: K.
        tokens: Number of tokens.
        ranks: Values of r.
        more: Number of directions by which the r of the bounds is larger.

    Returns:
        The smallest difference for ‖Γ‖₂² ‖X − X_r‖², and for ‖X‖₂² ‖Γ − Γ_r‖², relative to ‖G‖².
    """
    gaps = []
    for _ in range(tier.scaled(3, 20, 200)):
        x = rng.standard_normal((tokens, size)) / np.arange(1, size + 1)
        gamma = np.tanh(x @ rng.standard_normal((size, size)))
        of_g, of_x, of_gamma = map(_energies, (gamma.T @ x, x, gamma))
        for r in ranks:
            beyond = of_g[r:].sum()
            bounds = of_gamma[0] * of_x[r + more :].sum(), of_x[0] * of_gamma[r + more :].sum()
            gaps.append([(bound - beyond) / of_g.sum() for bound in bounds])
    by_inputs, by_gradients = np.min(gaps, axis=0)
    return {"by the inputs": by_inputs, "by the gradients": by_gradients}


def concentration(
    *, tier: Tier, rng: Rng, size: int, tokens: int, r: int, whitened: bool = False
) -> Returned:
    """Energy fraction of the inputs beyond rank r, less that of a gradient in the mean.

    The inputs are those of :func:`input_spectrum`, the output gradients independent.

    Args:
        tier: 100, 400 or 4000 gradients.
        size: K, not below ``tokens``.
        tokens: Number of tokens.
        r: Number of directions.
        whitened: Whether the output gradients have the second moments (XXᵀ)⁻¹ over tokens instead
            of I.
    """
    x = rng.standard_normal((tokens, size)) / np.arange(1, size + 1)
    left, values, right = np.linalg.svd(x, full_matrices=False)
    inputs = np.square(values[r:]).sum() / np.square(values).sum()
    # (XXᵀ)^(−1/2) X has equal singular values.
    x = left @ right if whitened else x
    energy = size * np.square(x).sum()
    gaps = []
    for _ in range(tier.scaled(100, 400, 4000)):
        gradient = rng.standard_normal((tokens, size)).T @ x
        beyond = _energies(gradient)[r:].sum()
        gaps.append(inputs - beyond / energy)
    return Estimate.mean(gaps), f"The inputs' fraction is {inputs:.4f}."


def adam_first_step(*, rng: Rng, size: int, tokens: Sequence[int], more: int = 0) -> Returned:
    """Energy fraction in the k main directions of Adam's first update, less its bound.

    The gradients are those of the layer of :func:`rank`; k runs from 1 to the number of tokens. The
    first update of Adam is the sign of the gradient.

    Args:
        size: K.
        tokens: Numbers of tokens of the first step.
        more: Number of directions by which the bound's k is larger.

    Returns:
        The smallest difference.
    """
    gaps = {}
    for count in tokens:
        update, gradient = _train(rng, "adam", size, count, 1)
        energies = _energies(update)
        for k in range(1, count + 1):
            top = energies[:k].sum() / energies.sum()
            gaps[f"{count} tokens at k = {k}"] = top - sign_energy_bound(gradient, k + more)
    return extreme(min, gaps, "{count} cases; the smallest for {at}.")


def later_update(
    *, tier: Tier, rng: Rng, size: int, r: int, deltas: Sequence[float], allowed: float = 1.0
) -> Returned:
    """Energy fraction in r directions of a matrix of rank r that is scaled entry by entry.

    The scales are D_ij = u_i v_j (1 ± δ) with random positive u and v and random signs.

    Args:
        tier: 3, 20 or 200 matrices for each δ.
        size: K.
        r: Rank of the matrix before it is scaled.
        deltas: Values of δ, below 1.
        allowed: The energy fraction beyond r directions that the bound allows, over δ².

    Returns:
        The smallest difference between the fraction and its bound 1 − δ².
    """
    gaps = {}
    for delta in deltas:
        for _ in range(tier.scaled(3, 20, 200)):
            matrix = rng.standard_normal((size, r)) @ rng.standard_normal((r, size))
            u, v = np.exp(rng.standard_normal((2, size)))
            scales = np.outer(u, v) * (1 + delta * rng.choice([-1.0, 1.0], (size, size)))
            energies = _energies(matrix * scales)
            gap = energies[:r].sum() / energies.sum() - (1 - allowed * delta**2)
            gaps[f"{delta:g}"] = min(gaps.get(f"{delta:g}", np.inf), gap)
    return extreme(min, gaps, "The smallest is at δ = {at}.")
