"""The learning rate at which one adapter moves a weight as far as another one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from loca_theory.adapters.steps.first_step import first_step
from loca_theory.errors import InvalidArgumentError

Norm = Literal["frobenius", "spectral"]

# The increment grows with the learning rate; the search ends within this fraction of the norm.
_CLOSE, _MOST_ROUNDS = 1e-3, 40


def equivalent_lr(
    config: Any,
    reference: Any,
    shape: tuple[int, int],
    *,
    lr: float = 1e-4,
    norm: Norm = "frobenius",
    draws: int = 8,
    seed: int = 0,
) -> float:
    """The learning rate at which one adapter moves a weight as far as another one does at ``lr``.

    Args:
        config: The configuration of PEFT whose learning rate is wanted.
        reference: The configuration that is trained with ``lr``.
        shape: (p, q) of the weight.
        lr: Learning rate of the reference.
        norm: By which norm the first step of both is as large: ``frobenius`` or ``spectral``.
        draws: Number of draws of each; the draws of one adapter are the same at all rates.
        seed: Root seed of the draws.

    Raises:
        InvalidArgumentError: as for :func:`~loca_theory.adapters.first_step`, or no learning rate
            moves the weight so far, since the adapter bounds its change.

    Example:
        >>> from peft import LoraConfig
        >>> half = LoraConfig(r=8, lora_alpha=4)
        >>> round(equivalent_lr(half, LoraConfig(r=8, lora_alpha=8), (32, 48), lr=1e-4), 6)
        0.0002
    """
    if norm not in ("frobenius", "spectral"):
        raise InvalidArgumentError(f"norm must be frobenius or spectral, not {norm!r}")

    def size(adapter: Any, rate: float) -> float:
        step = first_step(adapter, shape, lr=rate, draws=draws, seed=seed)
        return getattr(step, norm).value

    return matched_rate(lambda rate: size(config, rate), size(reference, lr), lr)


def matched_rate(size: Callable[[float], float], target: float, lr: float) -> float:
    """The learning rate at which a step has the size ``target``, searched from ``lr``.

    Raises:
        InvalidArgumentError: no learning rate has it.
    """
    rate = lr
    for _ in range(_MOST_ROUNDS):
        ratio = target / size(rate)
        if abs(ratio - 1) < _CLOSE:
            return rate * ratio
        rate *= ratio
    raise InvalidArgumentError(
        f"no learning rate moves the weight as far as the reference does, by {target:.3g}: the "
        "adapter bounds its change; take a smaller lr"
    )
