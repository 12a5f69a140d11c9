"""What is left of an adapter if its base is stored in few bits, and the sum again."""

from __future__ import annotations

import torch

from loca_theory.errors import InvalidArgumentError

_BLOCK, _LEVELS = 64, 127
# Quantiles of a normal law, 0 among them. Source: T. Dettmers et al., QLoRA (2023), appendix E.
_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip


def check_requantise(bits: int | None) -> None:
    """Refuse a number of bits that no base is rounded to."""
    if bits not in (None, 8, 4):
        msg = f"requantise must be 8 or 4 bits, not {bits}"
        raise InvalidArgumentError(msg)


def quantised(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """Weights rounded to LLM.int8 (8 bits, a scale per row) or NF4 (4 bits, one per 64 entries)."""
    flat = weight.float().flatten(0, -2)
    if bits == 8:
        scale = flat.abs().amax(1, keepdim=True).clamp(min=torch.finfo(flat.dtype).tiny) / _LEVELS
        return ((flat / scale).round() * scale).reshape(weight.shape)
    count = flat.numel()
    padded = torch.nn.functional.pad(flat.flatten(), (0, -count % _BLOCK)).reshape(-1, _BLOCK)
    scale = padded.abs().amax(1, keepdim=True).clamp(min=torch.finfo(flat.dtype).tiny)
    codes = torch.tensor(_NF4)
    nearest = torch.bucketize(padded / scale, (codes[1:] + codes[:-1]) / 2)
    return (codes[nearest] * scale).flatten()[:count].reshape(weight.shape)


def surviving_energy(before: torch.Tensor, after: torch.Tensor, bits: int) -> float:
    r"""Fraction of the energy of an adapter that is left in a base of few bits.

    The base is W = Q(before), and the sum is stored as Q(W + Δ) with Δ = after − before. This is
    :math:`1 - \|Q(W + Δ) - W - Δ\|^2 / \|Δ\|^2`. It is below 0 if rounding the sum moves it by more
    than the adapter does.
    """
    change = after.float() - before.float()
    base = quantised(before, bits)
    moved = quantised(base + change, bits) - base
    energy = float(change.double().square().sum())
    return 1 - float((moved - change).double().square().sum()) / energy if energy else 1.0
