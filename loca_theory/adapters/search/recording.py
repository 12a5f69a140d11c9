"""Identity functions whose backward pass records gradients for a search.

Eager code calls :func:`record` in the steps that record. Compiled code calls :func:`record_if_due`
in every step: an operator that asks the search when it runs, so that the graph neither breaks nor
changes from step to step.
"""

from __future__ import annotations

from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.autograd.function import once_differentiable

_numbers = count()
_recorders: WeakValueDictionary[int, Any] = WeakValueDictionary()


def handle_of(recorder: Any) -> torch.Tensor:
    """A tensor by which compiled code finds an object with ``add(x, g)`` while it lives."""
    number = next(_numbers)
    _recorders[number] = recorder
    return torch.tensor(number, device="cpu")


def record(recorder: Any, x: torch.Tensor | None, y: torch.Tensor) -> torch.Tensor:
    """Return y with a backward pass that calls ``recorder.add(x, g)``.

    Args:
        recorder: The statistics, or a search.
        x: Inputs (..., q) of the outputs y (..., p); None if y is ΔW, (p, q), itself.
        y: What has the gradient g.
    """
    recorded: Any = _Record.apply(y, None if x is None else x.detach(), recorder)
    return recorded


class _Record(torch.autograd.Function):
    """The identity with a recording backward pass; it copies, so in-place changes do no harm."""

    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, x: torch.Tensor | None, recorder: Any) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.recorder = recorder
        return y.clone()

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, g: torch.Tensor
    ) -> tuple[torch.Tensor, None, None]:
        ctx.recorder.add(*ctx.saved_tensors, g)
        return g, None, None


@torch.library.custom_op("loca_theory::record", mutates_args=())
def record_if_due(y: torch.Tensor, x: torch.Tensor | None, handle: torch.Tensor) -> torch.Tensor:
    """As :func:`record`, for the object of a :func:`handle_of`, in compiled code."""
    del x, handle
    return y.clone()


@record_if_due.register_fake
def _(y, x, handle):  # noqa: ARG001
    return torch.empty_like(y)


@torch.library.custom_op("loca_theory::record_backward", mutates_args=())
def _record_backward(g: torch.Tensor, x: torch.Tensor | None, handle: torch.Tensor) -> torch.Tensor:
    recorder = _recorders.get(int(handle))
    if recorder is not None:
        recorder.add(x, g)
    return g.clone()


@_record_backward.register_fake
def _(g, x, handle):  # noqa: ARG001
    return torch.empty_like(g)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs[1:])


def _differentiate(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, None, None]:
    return _record_backward(g, *ctx.saved_tensors), None, None


record_if_due.register_autograd(_differentiate, setup_context=_setup)
