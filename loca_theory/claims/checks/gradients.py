"""The reparameterisation and its gradients: the equations of section 4 and Algorithm 1."""

from __future__ import annotations

from itertools import count
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.adapters import AlternatingSchedule, CosineSpectrum, follow
from loca_theory.claims.estimates import Deviations, Returned, Rng

_Array = NDArray[np.float64]
_ROWS, _COLUMNS, _COMPONENTS, _SCALING = 9, 7, 6, 1.7


def _printed_matrix(n: int) -> _Array:
    """C, entry by entry from the printed definition."""
    i, j = np.arange(n)[:, None], np.arange(n)[None, :]
    k = np.where(i == 0, np.sqrt(0.5), 1.0)
    return np.sqrt(2 / n) * k * np.cos(np.pi * (2 * j + 1) * i / (2 * n))


_C, _D = _printed_matrix(_ROWS), _printed_matrix(_COLUMNS)


def _indices(rng: Rng) -> NDArray[np.int64]:
    """Distinct locations that have both neighbours of the printed difference on each axis."""
    inner = [(i, j) for i in range(1, _ROWS - 1) for j in range(1, _COLUMNS - 1)]
    chosen = rng.choice(len(inner), _COMPONENTS, replace=False)
    return np.array(inner)[chosen]


def _layer(rng: Rng) -> tuple[CosineSpectrum, _Array]:
    """A spectrum after a backward pass with a random ∂L/∂ΔW, and that ∂L/∂ΔW."""
    layer = _searching(rng, _SCALING)
    with torch.no_grad():
        layer.coefficients.copy_(torch.from_numpy(rng.standard_normal(_COMPONENTS)))
    slope = rng.standard_normal((_ROWS, _COLUMNS))
    (layer.increment() * torch.from_numpy(slope)).sum().backward()
    return layer, slope


def _searching(rng: Rng, scaling: float = 1.0) -> CosineSpectrum:
    """A spectrum whose coefficients and random locations have gradients; nothing steps."""
    options = {"schedule": AlternatingSchedule(joint=True), "scaling": scaling}
    layer = CosineSpectrum((_ROWS, _COLUMNS), _COMPONENTS, **options).double()
    layer.set_indices(torch.from_numpy(_indices(rng)))
    follow(layer, torch.optim.SGD(layer.parameters(), 0.0))
    return layer


def location_identity(*, rng: Rng, form: str, difference: str = "central") -> Deviations:
    r"""Largest deviation of location gradients from the trace with the difference of spectra.

    The trace is :math:`\mathrm{tr}[(\partial L/\partial\Delta W)^\top \alpha C^\top
    [S(a_n, l + e) - S(a_n, l - e)] D]/2`, with dense matrices.

    Args:
        form: ``printed``, :math:`\alpha a_n (Z_{l^2, l^1+1} - Z_{l^2, l^1-1})/2` with
            Z = D (∂L/∂ΔW)ᵀ Cᵀ, or ``package``, the gradient that the layer computes.
        difference: The difference of spectra: ``central``, as above, or ``forward``,
            S(a_n, l + e) − S(a_n, l).
    """
    layer, g = _layer(rng)
    located: Any = layer.offset
    z = _D @ g.T @ _C.T
    for n, (i, j) in enumerate(layer.indices.tolist()):
        a = float(layer.coefficients.detach()[n])
        for axis, (di, dj) in enumerate(((1, 0), (0, 1))):
            # Forward differences start at the location itself.
            back, length = ((i - di, j - dj), 2) if difference == "central" else ((i, j), 1)
            step = np.zeros_like(g)
            step[i + di, j + dj], step[back] = a / length, -a / length
            trace = _SCALING * float(np.trace(g.T @ (_C.T @ step @ _D)))
            if form == "printed":
                printed = _SCALING * a * (z[j + dj, i + di] - z[j - dj, i - di]) / 2
            else:  # the offset is on the scale of u = l/(dim − 1)
                printed = float(located.grad[n, axis]) / ((_ROWS, _COLUMNS)[axis] - 1)
            yield printed - trace


def coefficient_identity(*, rng: Rng, scaling: float = _SCALING) -> Deviations:
    """Largest deviation of α Z[l] from ∂L/∂a, both of the layer and of the dense form.

    Args:
        scaling: The factor of Z[l]; α is 1.7.
    """
    layer, g = _layer(rng)
    learned = cast("Any", layer.coefficients)
    z = _D @ g.T @ _C.T
    for n, (i, j) in enumerate(layer.indices.tolist()):
        unit = np.zeros_like(g)
        unit[i, j] = 1.0
        # L is linear in a, so its value at a unit coefficient is the derivative.
        derivative = float((g * (_SCALING * _C.T @ unit @ _D)).sum())
        printed = scaling * float(z[j, i])
        yield from (printed - derivative, printed - float(learned.grad[n]))


def first_location_gradient(*, rng: Rng, steps: int | None = None) -> Returned:
    """Smallest location gradient when locations first move, after B_a steps of a from a = 0.

    The loss is ‖ΔW − M‖²/2 for a random M. No location is at the border.

    Args:
        steps: Steps of the first phase of coefficients; None for B_a.
    """
    layer = _searching(rng)
    target = torch.from_numpy(rng.standard_normal((_ROWS, _COLUMNS)))
    learned, located = cast("Any", layer.coefficients), cast("Any", layer.offset)
    steps = AlternatingSchedule().coefficient_steps if steps is None else steps
    for step in range(steps + 1):
        if step:
            with torch.no_grad():
                learned -= 0.1 * learned.grad
        layer.zero_grad()
        ((layer.increment() - target).square().sum() / 2).backward()
    return located.grad.abs().min()


def first_phase(*, first: int) -> Returned:
    """Steps before locations first move under t mod (B_a + B_l) < B_a, divided by B_a.

    B_a = 10 and B_l = 20, as in the experiments.

    Args:
        first: The first t, 1 as printed.
    """
    coefficients, locations = 10, 20
    t = next(t for t in count(first) if t % (coefficients + locations) >= coefficients)
    return (t - first) / coefficients
