"""Following the steps of optimisers, whoever makes them."""

from __future__ import annotations

import sys
from typing import Any
from weakref import WeakSet

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from loca_theory.adapters.search.sharding import fill_with_zeros
from loca_theory.adapters.search.zero import is_in_zero, part_of

_followers: WeakSet[Any] = WeakSet()
_hooks: list[Any] = []


def follow_steps(follower: Any) -> None:
    """Call its ``before_optimizer_step`` and ``after_optimizer_step`` as long as it lives.

    The first is called when the gradients of a step are there, the second after the step, and
    ``begin_optimizer_step`` before anything else; all get the optimiser.
    """
    _followers.add(follower)
    if not _hooks:
        _hooks.append(register_optimizer_step_pre_hook(_before))
        _hooks.append(register_optimizer_step_post_hook(_after))


def _before(optimizer: torch.optim.Optimizer, args: Any, kwargs: dict[str, Any]) -> Any:
    for follower in list(_followers):
        follower.begin_optimizer_step(optimizer)
    is_named = "closure" in kwargs
    closure = kwargs["closure"] if is_named else args[1] if len(args) > 1 else None
    if not callable(closure):
        _tell(optimizer)
        return None

    def computed() -> Any:
        """Gradients of a closure exist only after it was called.

        An optimiser with another one inside, as that of SAM, may compute several of them, and
        restore what has a gradient, before the other one steps by the last.
        """
        loss = closure()
        if not _contains_another(optimizer):
            _tell(optimizer)
        return loss

    if is_named:
        return args, {**kwargs, "closure": computed}
    return (args[0], computed, *args[2:]), kwargs


def _tell(optimizer: torch.optim.Optimizer) -> None:
    for follower in list(_followers):
        follower.before_optimizer_step(optimizer)


def _contains_another(optimizer: torch.optim.Optimizer) -> bool:
    return any(isinstance(value, torch.optim.Optimizer) for value in vars(optimizer).values())


def _after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for follower in list(_followers):
        follower.after_optimizer_step(optimizer)


def skips(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a fused optimiser skips this step itself, because a GradScaler found an overflow."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)


def loss_scale() -> float:
    """By what a GradScaler has multiplied the loss of the step under way; 1 without one.

    torch tells optimisers only if they are fused, so this looks for the scaler on the stack.
    """
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code is GradScaler.step.__code__:
            return frame.f_locals["self"].get_scale()
        frame = frame.f_back
    return 1.0


def held(optimizer: Any) -> set[int]:
    """The identities of an optimiser's parameters."""
    return {id(p) for group in optimizer.param_groups for p in group["params"]}


def rate_of(optimizer: torch.optim.Optimizer | None, parameter: torch.Tensor) -> tuple[float, bool]:
    """The parameter's learning rate as a fraction of its initial one, and ``maximize``.

    The fraction is at most 1: schedulers that begin low, such as ``OneCycleLR``, call the low rate
    the initial one. In ZeRO the parameter is taken to be in the first group.
    """
    for group in () if optimizer is None else optimizer.param_groups:
        if is_in_zero(parameter) or any(p is parameter for p in group["params"]):
            first = float(group.get("initial_lr", 0.0))
            rate = min(float(group["lr"]) / first, 1.0) if first > 0 else 1.0
            return rate, bool(group.get("maximize"))
    return 1.0, False


def forget_momentum(
    optimizer: torch.optim.Optimizer, parameter: torch.Tensor, moved: torch.Tensor
) -> None:
    """Let components that moved start without the momentum of their old locations.

    Adam scales by the mean square of their old gradients, which stays: it is the best guess at hand
    of the new one.
    """
    if is_in_zero(parameter):
        part = part_of(parameter)
        states = {} if part is None else part.states
        moved = moved if part is None else moved.narrow(0, part.start, part.numel)
    else:
        states = optimizer.state.get(parameter, {})
    for name, value in states.items():
        if name in ("exp_avg", "momentum_buffer") and isinstance(value, torch.Tensor):
            fill_with_zeros(value, moved)
