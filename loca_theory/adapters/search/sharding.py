"""Parameters that FSDP2 (``fully_shard``) has sharded: each process holds a part as a DTensor."""

from __future__ import annotations

from typing import Any

import torch


def is_sharded(tensor: Any) -> bool:
    """Whether the tensor is a DTensor."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without its graph; gathered from all processes if it is sharded."""
    found: Any = tensor.detach()
    return found.full_tensor() if is_sharded(found) else found


def fill_with_zeros(tensor: torch.Tensor, mask: torch.Tensor) -> None:
    """Set the entries of a mask to zero, in place.

    Args:
        tensor: May be sharded.
        mask: The whole mask, the same in all processes.
    """
    mask = mask.to(tensor.device)
    local(tensor).masked_fill_(part(mask, tensor), 0.0)


def assign(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Set all entries, in place.

    Args:
        tensor: May be sharded.
        values: All values, the same in all processes.
    """
    local(tensor).copy_(part(values, tensor))


def local(tensor: Any) -> torch.Tensor:
    """What this process holds of a tensor, sharing its memory."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def part(values: torch.Tensor, like: Any) -> torch.Tensor:
    """What a process holds of values that are sharded as another tensor, without communication."""
    if not is_sharded(like):
        return values
    from torch.distributed.tensor import distribute_tensor

    shards = distribute_tensor(values, like.device_mesh, like.placements, src_data_rank=None)
    return shards.to_local()
