"""An identity operator whose backward pass shows the gradient to a search.

It finds the search by a number when it runs, so compiled code is the same in all steps.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import torch

_recorders: WeakValueDictionary[int, Any] = WeakValueDictionary()


def handle_of(recorder: Any) -> torch.Tensor:
    """A tensor by which the operator finds an object with ``add(x, g)`` while it lives."""
    _recorders[id(recorder)] = recorder
    return torch.tensor(id(recorder), device="cpu")


@torch.library.custom_op("loca_theory::record", mutates_args=())
def record(y: torch.Tensor, x: torch.Tensor | None, handle: torch.Tensor) -> torch.Tensor:
    """Return y, and call ``add(x, g)`` of the object of the handle with the gradient g of y.

    Args:
        y: Outputs (..., p), or ΔW, (p, q), itself.
        x: Inputs (..., q) of these outputs; None for ΔW.
        handle: That of the object.
    """
    del x, handle
    return y.clone()


@torch.library.custom_op("loca_theory::record_backward", mutates_args=())
def _record_backward(g: torch.Tensor, x: torch.Tensor | None, handle: torch.Tensor) -> torch.Tensor:
    recorder = _recorders.get(int(handle))
    if recorder is not None:
        recorder.add(x, g)
    return g.clone()


@record.register_fake
@_record_backward.register_fake
def _(y, x, handle):  # noqa: ARG001
    return torch.empty_like(y)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs[1:])


def _differentiate(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, None, None]:
    return _record_backward(g, *ctx.saved_tensors), None, None


record.register_autograd(_differentiate, setup_context=_setup)
