"""Parameters in DeepSpeed's ZeRO: its optimiser holds a flat master copy, shared out by parts.

A process has the part of a parameter that its share of the copy covers, possibly none. The steps
of DeepSpeed are not those of torch's optimisers, so a search follows its engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple

import torch

from loca_theory.errors import InvalidArgumentError


class Part(NamedTuple):
    """Entries ``start`` to ``start + numel`` of a parameter, as views of what this process holds.

    ``master`` is the copy that is stepped, and ``states`` are those of the optimiser, by name.
    """

    start: int
    numel: int
    master: torch.Tensor
    states: dict[str, torch.Tensor]


def is_in_zero(parameter: Any) -> bool:
    """Whether ZeRO manages the parameter, at stage 1, 2 or 3."""
    return hasattr(parameter, "_hp_mapping") or hasattr(parameter, "_z3_optimizer")


def part_of(parameter: Any) -> Part | None:
    """What this process holds of a parameter in ZeRO; None for nothing."""
    zero = getattr(parameter, "_z3_optimizer", None)
    if zero is None:
        mapping = parameter._hp_mapping
        if mapping is None:
            return None
        address = mapping.lp_fragment_address
        states = dict(mapping.optim_fragment or {})
        return Part(address.start, address.numel, mapping.hp_fragment, states)
    group, offset, size = zero.grad_position[zero.get_param_id(parameter)]
    flat = zero.fp32_partitioned_groups_flat[group]
    start = size * zero._get_param_partition_rank(parameter)
    numel = min(size, parameter.ds_numel - start)  # the rest of the last part is padding
    states = {
        name: state.narrow(0, offset, numel)
        for name, state in zero.optimizer.state.get(flat, {}).items()
        if isinstance(state, torch.Tensor) and state.shape == flat.shape
    }
    return Part(start, numel, flat.narrow(0, offset, numel), states) if numel > 0 else None


def get_values(parameter: Any) -> torch.Tensor:
    """All entries of the master copy, gathered from all processes."""
    zero = getattr(parameter, "_z3_optimizer", None)
    return parameter.get_full_hp_param() if zero is None else zero.get_full_hp_param(parameter)


@torch.no_grad()
def set_values(parameter: Any, values: torch.Tensor) -> None:
    """Set all entries, of the master copy and of what the model computes with.

    Args:
        parameter: In ZeRO.
        values: The same in all processes.
    """
    if parameter.data.numel() == values.numel():  # at stage 3 it may be there only in passes
        parameter.data.copy_(values)
    part = part_of(parameter)
    if part is not None:
        mine = values.narrow(0, part.start, part.numel)
        part.master.copy_(mine)
        if hasattr(parameter, "ds_tensor"):
            parameter.ds_tensor.data.narrow(0, 0, part.numel).copy_(mine)


@contextmanager
def unchanged(parameters: list[Any]) -> Iterator[None]:
    """Leave parameters and their momenta as they are, whatever the engine does meanwhile.

    A flat optimiser steps all its parameters, also those without a gradient.
    """
    before = [(a, get_values(a), part_of(a)) for a in parameters]
    states = [
        {} if part is None else {name: state.clone() for name, state in part.states.items()}
        for *_, part in before
    ]
    yield
    for (a, values, _), old in zip(before, states, strict=True):
        set_values(a, values)
        part = part_of(a)
        for name, state in ({} if part is None else part.states).items():
            state.copy_(old[name]) if name in old else state.zero_()


def follow_deepspeed(training: Any, engine: Any) -> None:
    """Let a search follow the steps of a DeepSpeed engine, with ZeRO of stage 1, 2 or 3.

    Call it once, after ``deepspeed.initialize``. AdamW then counts the steps of flat parameters,
    also those in which coefficients are not learned. Gradient clipping, which DeepSpeed does by
    default (``gradient_clipping`` is 1), does not scale the gradients of locations.

    Args:
        training: The :class:`~loca_theory.adapters.LocationTraining`.
        engine: What ``deepspeed.initialize`` returns first.

    Raises:
        InvalidArgumentError: the engine scales its loss for float16, or is not one of ZeRO.
    """
    coefficients = [spectrum.coefficients for spectrum in training.spectra]
    if not all(is_in_zero(a) for a in coefficients):
        msg = "DeepSpeed's optimiser does not hold the coefficients of LoCA in ZeRO; set "
        msg += "zero_optimization.stage to 1, 2 or 3, and add the adapter before initialize()"
        raise InvalidArgumentError(msg)
    if engine.fp16_enabled():
        msg = "LoCA's search under DeepSpeed does not support the loss scaling of fp16; use bf16"
        raise InvalidArgumentError(msg)
    training.automatic = False
    take_step = engine.step

    @wraps(take_step)
    def step(*args: Any, **kwargs: Any) -> Any:
        if training.is_over or not engine.is_gradient_accumulation_boundary():
            return take_step(*args, **kwargs)
        training.before_step()
        with unchanged(training.resting()):
            result = take_step(*args, **kwargs)
        training.step(engine.optimizer)
        return result

    engine.step = step
