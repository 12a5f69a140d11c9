r"""How far the first steps of Adam move a weight through an adapter.

The first step of Adam moves every trained number :math:`\theta_k` by :math:`\eta` against the sign
of its gradient, whatever the gradient's size. So what the learning rate :math:`\eta` means for the
weight depends on the adapter: for a form that is linear in its numbers,

.. math:: \Delta W_1 = -\eta \sum_k \operatorname{sign}\langle G, A_k\rangle\, A_k,
          \qquad A_k = \partial W/\partial\theta_k .

Two adapters at one learning rate are therefore not trained alike, and learning rates of two
adapters are alike if they move the weight as far
(:func:`~loca_theory.adapters.equivalent_lr`).

Known before: for LoRA, Z. Zhang et al., *The Primacy of Magnitude in Low-Rank Adaptation*,
arXiv:2507.06558; the spectral norm as the unit of a step, G. Yang et al., arXiv:2310.17813.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from loca_theory._arguments import real_number, whole_number
from loca_theory._arguments import shape as checked_shape
from loca_theory.adapters.steps.probe import OneLayer, Steps, copy_of, draws_of_steps
from loca_theory.errors import InvalidArgumentError
from loca_theory.increments.truncated_svd import truncated_svd

_SPECTRAL_TOLERANCE = 1e-3


class MeanAndError(NamedTuple):
    """A mean over draws, and its standard error."""

    value: float
    standard_error: float


@dataclass(frozen=True)
class FirstStep:
    r"""The effect of the first steps on a p×q weight W.

    Attributes:
        numbers: How many numbers are trained.
        frobenius: Root mean square of :math:`\lVert\Delta W\rVert_F` over draws.
        spectral: Mean of :math:`\lVert\Delta W\rVert_2`.
        relative_frobenius: ``frobenius`` in units of :math:`\lVert W\rVert_F`, for the weights with
            which torch initialises a linear layer, of variance 1/(3q).
        relative_spectral: ``spectral`` in units of :math:`\lVert W\rVert_2`, for the same weights.
        output_rms: Root mean square of the change of an output, for inputs of unit variance:
            ``frobenius``/√p.
        decrease: Mean of :math:`\langle -G, \Delta W\rangle`, the first-order decrease of the loss,
            for a gradient G of independent N(0, 1) entries.
    """

    numbers: int
    frobenius: MeanAndError
    spectral: MeanAndError
    relative_frobenius: MeanAndError
    relative_spectral: MeanAndError
    output_rms: MeanAndError
    decrease: MeanAndError


def first_step(
    config: Any,
    shape: tuple[int, int],
    *,
    lr: float = 1e-4,
    steps: int = 1,
    draws: int = 8,
    seed: int = 0,
) -> FirstStep:
    """Measure how far the first steps of Adam move a weight, on PEFT's own layer.

    Args:
        config: A configuration of PEFT, such as ``LoraConfig(r=8, lora_alpha=16)``; which modules
            it targets does not count.
        shape: (p, q) of the weight: outputs, inputs.
        lr: Learning rate η of Adam, without warm-up and weight decay.
        steps: Number of steps with one constant gradient.
        draws: Number of draws of initial values, random locations and gradients, at least 2.
        seed: Root seed of the draws.

    Raises:
        InvalidArgumentError: the configuration is none of PEFT, does not suit the shape, or its
            adapter changes no weight; or a number is out of range.
        ResourceError: PEFT is not installed.

    Example:
        >>> from peft import LoraConfig
        >>> step = first_step(LoraConfig(r=8, lora_alpha=8), (96, 128), lr=1e-4)
        >>> 1.5e-3 < step.frobenius.value < 1.8e-3
        True
    """
    p, q = checked_shape(shape)
    _check(lr, steps, draws)
    draws_of_layers = draws_of_steps(
        config, lambda: OneLayer((p, q)), None, lr=lr, steps=steps, draws=draws, seed=seed
    )
    return _averaged([_sizes(taken) for layers in draws_of_layers for taken in layers.values()])


def first_steps(
    config: Any,
    model: nn.Module,
    loss: Callable[[nn.Module], torch.Tensor] | None = None,
    *,
    lr: float = 1e-4,
    steps: int = 1,
    draws: int = 2,
    seed: int = 0,
) -> dict[str, FirstStep]:
    """Measure how far the first steps of Adam move each adapted weight of a model.

    Args:
        config: A configuration of PEFT, whose target modules are those of the model.
        model: The model; copies of it are adapted and trained, in float64.
        loss: The loss of the model on a batch, whose gradients are used; without it, they are
            random.
        lr: Learning rate η of Adam, without warm-up and weight decay.
        steps: Number of steps, all with this batch, or with one random gradient.
        draws: Number of draws of initial values and random locations, at least 2.
        seed: Root seed of the draws.

    Returns:
        The steps by the names of the adapted linear layers; the relative norms are those of the
        model's own weights.

    Raises:
        InvalidArgumentError: as for :func:`first_step`, or no layer is adapted, or a weight of the
            model is quantised.
        ResourceError: PEFT is not installed.
    """
    _check(lr, steps, draws)
    draws_of_layers = draws_of_steps(
        config, lambda: copy_of(model), loss, lr=lr, steps=steps, draws=draws, seed=seed
    )
    sizes: dict[str, list[_Sizes]] = {}
    for layers in draws_of_layers:
        for name, taken in layers.items():
            sizes.setdefault(name, []).append(_sizes(taken))
    return {name: _averaged(drawn) for name, drawn in sizes.items() if len(drawn) == draws}


def _check(lr: float, steps: int, draws: int) -> None:
    if not 0 < real_number("lr", lr) < math.inf:
        raise InvalidArgumentError(f"lr must be positive, not {lr}; choose a value such as 1e-4")
    if whole_number("steps", steps) < 1 or whole_number("draws", draws) < 2:
        raise InvalidArgumentError(
            f"steps must be at least 1 and draws at least 2, not {steps} and {draws}"
        )


class _Sizes(NamedTuple):
    """Sizes of one increment ΔW, and of ΔW relative to its weight W."""

    numbers: int
    rows: int
    square: float
    spectral: float
    relative_square: float
    relative_spectral: float
    decrease: float


def _sizes(steps: Steps) -> _Sizes:
    square, of_weight = (float(change.square().sum()) for change in (steps.increment, steps.weight))
    spectral, largest = (
        float(truncated_svd(matrix, 1, tolerance=_SPECTRAL_TOLERANCE).s[0])
        for matrix in (steps.increment, steps.weight)
    )
    return _Sizes(
        numbers=steps.numbers,
        rows=len(steps.weight),
        square=square,
        spectral=spectral,
        relative_square=square / of_weight,
        relative_spectral=spectral / largest,
        decrease=steps.decrease,
    )


def _averaged(draws: Sequence[_Sizes]) -> FirstStep:
    frobenius = _root(_mean([draw.square for draw in draws]))
    return FirstStep(
        numbers=draws[0].numbers,
        frobenius=frobenius,
        spectral=_mean([draw.spectral for draw in draws]),
        relative_frobenius=_root(_mean([draw.relative_square for draw in draws])),
        relative_spectral=_mean([draw.relative_spectral for draw in draws]),
        output_rms=MeanAndError(*(value / math.sqrt(draws[0].rows) for value in frobenius)),
        decrease=_mean([draw.decrease for draw in draws]),
    )


def _mean(values: Sequence[float]) -> MeanAndError:
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return MeanAndError(mean, math.sqrt(variance / len(values)))


def _root(square: MeanAndError) -> MeanAndError:
    """The root of a mean of squares; its standard error by linearisation."""
    value = math.sqrt(square.value)
    return MeanAndError(value, square.standard_error / (2 * value))
