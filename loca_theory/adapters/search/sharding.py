"""Parameters of which each process of FSDP2 holds a part; the functions take others as well."""

from __future__ import annotations

from typing import Any

import torch


def is_distributed() -> bool:
    """Whether this process is one of several in torch.distributed."""
    distributed = torch.distributed
    is_ready = distributed.is_available() and distributed.is_initialized()
    return is_ready and distributed.get_world_size() > 1


def is_sharded(tensor: Any) -> bool:
    """Whether the tensor is a DTensor."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Any) -> torch.Tensor:
    """The tensor without its graph; gathered from all processes if they share it out."""
    found = tensor.detach()
    return found.full_tensor() if is_sharded(found) else found


def assign(tensor: Any, values: torch.Tensor) -> None:
    """Set all entries in place to values that are the same in all processes."""
    _local(tensor).copy_(_part(values, tensor))


def fill_with_zeros(tensor: Any, mask: torch.Tensor) -> None:
    """Set the entries of a mask, the same in all processes, to zero in place."""
    _local(tensor).masked_fill_(_part(mask.to(tensor.device), tensor), 0.0)


def _local(tensor: Any) -> torch.Tensor:
    return tensor.to_local() if is_sharded(tensor) else tensor


def _part(values: torch.Tensor, like: Any) -> torch.Tensor:
    """What this process holds of values that are shared out as another tensor."""
    if not is_sharded(like):
        return values
    from torch.distributed.tensor import distribute_tensor

    shards = distribute_tensor(values, like.device_mesh, like.placements, src_data_rank=None)
    return shards.to_local()
