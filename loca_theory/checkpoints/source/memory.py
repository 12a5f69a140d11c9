"""Tensors in memory, or mapped into it: of state dicts, modules and single matrices."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy

from loca_theory.checkpoints.source.checkpoint import (
    DEQUANTISE,
    Checkpoint,
    LeftOutError,
    TensorEntry,
    any_error_as,
)
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
        first: dict[Hashable, str] = {}
        for name, tensor in self.tensors.items():
            local = _local(tensor)
            if is_lazy(tensor):
                self.leave_out(name, "not initialised yet; run the model once")
            elif local.layout is not torch.strided or local.is_meta:
                self.leave_out(name, "not a plain tensor", f"{local.layout} on {local.device}")
            elif hasattr(local, "__tensor_flatten__"):
                self.leave_out(name, f"quantised ({type(local).__name__}); {DEQUANTISE}")
            elif local.numel() > local.untyped_storage().nbytes() // local.element_size():
                self.leave_out(name, "declares more entries than the file holds", damaged=True)
            else:
                owner = first.setdefault(memory_of(tensor), name)
                tied_to = None if owner == name else owner
                dtype = str(tensor.dtype).removeprefix("torch.")
                self.entries[name] = TensorEntry(tuple(tensor.shape), dtype, tied_to)

    def _read(self, name: str, expert: int | None) -> torch.Tensor:
        tensor: Any = self.tensors[name].detach()
        tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        return (tensor if expert is None else tensor[expert]).cpu()


def memory_of(tensor: torch.Tensor) -> Hashable:
    """The memory of a tensor of this process, and how the tensor is laid out there."""
    tensor = _local(tensor)
    has_none = tensor.is_meta or not tensor.numel() or hasattr(tensor, "__tensor_flatten__")
    return id(tensor) if has_none else (tensor.data_ptr(), tensor.shape, tensor.stride())


def _local(tensor: Any) -> torch.Tensor:
    # A distributed tensor has a part of its own in each process.
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """The model inside of what runs it in parallel, or compiled."""
    is_parallel = isinstance(module, DataParallel | DistributedDataParallel)
    inner = module.module if is_parallel else getattr(module, "_orig_mod", None)
    return module if inner is None else unwrapped(inner)


def is_array(source: object) -> TypeGuard[TensorLike]:
    """Whether a source is one array or tensor."""
    # Checked by attributes, so that torch need not be imported.
    return hasattr(source, "ndim") and hasattr(source, "dtype")


def tensors_in_memory(source: Any) -> TensorsCheckpoint:
    """The tensors of a state dict or a module, or one matrix."""
    module = unwrapped(source) if isinstance(source, torch.nn.Module) else None
    if module is not None:
        failure = f"the state dict of {type(module).__name__} cannot be made"
        with any_error_as(InvalidArgumentError, failure):
            source = module.state_dict()
    elif is_array(source):
        source = {_ALONE: _matrix(source)}
    if not isinstance(source, Mapping):
        raise InvalidArgumentError(
            "a checkpoint must be a path, a state dict, a module or a matrix, not a "
            f"{type(source).__name__}; convert a matrix with numpy.asarray"
        )
    tensors: dict[str, torch.Tensor] = {}
    left_out: dict[str, LeftOutError] = {}
    for name, value in source.items():
        # A quantised layer of torch has its weight and bias in one.
        array: Any = value[0] if isinstance(value, tuple) and value else value
        try:
            is_tensor = isinstance(array, torch.Tensor)
            tensors[str(name)] = array if is_tensor else as_tensor(array, str(name))
        except InvalidArgumentError:
            left_out[str(name)] = LeftOutError("not a tensor", type(value).__name__)
    if not tensors:
        raise InvalidArgumentError(
            "the state dict holds no tensor; pass what model.state_dict() returns"
        )
    if all(tensor.is_meta for tensor in tensors.values()):
        raise InvalidArgumentError(
            "the weights are on the meta device and have no values; load them first"
        )
    return TensorsCheckpoint(tensors, left_out=left_out, module=module)


def _matrix(array: TensorLike) -> torch.Tensor:
    if array.ndim != 2 or min(array.shape) < 2:
        raise InvalidArgumentError(
            f"the array has shape {tuple(array.shape)}; pass a matrix of at least two rows and "
            "columns, such as the weight of one layer"
        )
    wide, tensor = usable(array, "the array"), as_tensor(array, "the array")
    return tensor if tensor.is_floating_point() else wide
