"""Tensors in memory: state dicts, modules and single matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch

from loca_theory.checkpoints.weights.checkpoint import Checkpoint, Entry, LeftOutError
from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms.inputs import TensorLike, as_tensor, usable

_ALONE = "increment"  # the name given to a single matrix


@dataclass
class TensorsCheckpoint(Checkpoint):
    """Tensors that are already in memory or mapped into it.

    Args:
        tensors: The tensors by name.
    """

    tensors: Mapping[str, torch.Tensor]

    def __post_init__(self) -> None:
        first: dict[tuple[int, tuple[int, ...], tuple[int, ...]], str] = {}
        for name, tensor in self.tensors.items():
            if tensor.layout is not torch.strided or tensor.is_meta:
                reason = f"not a plain tensor: {tensor.layout} on {tensor.device}"
                self.left_out[name] = LeftOutError(reason)
                continue
            if tensor.numel() > tensor.untyped_storage().nbytes() // tensor.element_size():
                reason = "declares more entries than the file holds"
                self.left_out[name] = LeftOutError(reason, damaged=True)
                continue
            storage = (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()))
            owner = first.setdefault(storage, name) if tensor.numel() else name
            dtype = str(tensor.dtype).removeprefix("torch.")
            tied_to = None if owner == name else owner
            self.entries[name] = Entry(tuple(tensor.shape), dtype, tied_to)

    def load(self, name: str, expert: int | None = None) -> torch.Tensor:
        """Load one tensor; see :class:`Checkpoint`."""
        found = self.tensors[name].detach()
        return (found if expert is None else found[expert]).cpu()


def is_array(source: object) -> TypeGuard[TensorLike]:
    """Whether a source is one array or tensor."""
    # Checked by attributes, so that torch need not be imported.
    return hasattr(source, "ndim") and hasattr(source, "dtype")


def tensors_in_memory(source: Any) -> TensorsCheckpoint:
    """The tensors of a state dict or a module, or one matrix."""
    if isinstance(source, torch.nn.Module):
        source = source.state_dict()
    elif is_array(source):
        source = {_ALONE: _matrix(source)}
    if not isinstance(source, Mapping):
        msg = "a checkpoint must be a path, a state dict, a module or a matrix, not a "
        msg += f"{type(source).__name__}; convert a matrix with numpy.asarray"
        raise InvalidArgumentError(msg)
    tensors: dict[str, torch.Tensor] = {}
    left_out: dict[str, LeftOutError] = {}
    for name, value in source.items():
        try:
            is_tensor = isinstance(value, torch.Tensor)
            tensors[str(name)] = value if is_tensor else as_tensor(value, str(name))
        except InvalidArgumentError:
            left_out[str(name)] = LeftOutError(f"not a tensor: {type(value).__name__}")
    if not tensors:
        msg = "the state dict holds no tensor; pass what model.state_dict() returns"
        raise InvalidArgumentError(msg)
    if all(tensor.is_meta for tensor in tensors.values()):
        msg = "the weights are on the meta device and have no values; load them first"
        raise InvalidArgumentError(msg)
    found = TensorsCheckpoint(tensors)
    found.left_out |= left_out
    return found


def _matrix(array: TensorLike) -> torch.Tensor:
    if array.ndim != 2 or min(array.shape) < 2:
        msg = f"the array has shape {tuple(array.shape)}; pass a matrix of at least two rows and "
        msg += "columns, such as the weight of one layer"
        raise InvalidArgumentError(msg)
    wide, tensor = usable(array, "the array"), as_tensor(array, "the array")
    return tensor if tensor.is_floating_point() else wide
