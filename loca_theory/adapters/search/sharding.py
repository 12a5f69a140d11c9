"""Parameters of which each process holds a part: DTensors of FSDP2, and those in DeepSpeed's ZeRO.

The functions take ordinary parameters as well.
"""

from __future__ import annotations

from typing import Any

import torch

from loca_theory.adapters.search.zero import get_values, is_in_zero, set_values


def is_sharded(tensor: Any) -> bool:
    """Whether the tensor is a DTensor."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without its graph; gathered from all processes if they share it out."""
    if is_in_zero(tensor):
        return get_values(tensor)
    found: Any = tensor.detach()
    return found.full_tensor() if is_sharded(found) else found


def fill_with_zeros(tensor: torch.Tensor, mask: torch.Tensor) -> None:
    """Set the entries of a mask to zero, in place.

    Args:
        tensor: May be sharded.
        mask: The whole mask, the same in all processes.
    """
    if is_in_zero(tensor):
        set_values(tensor, get_values(tensor).masked_fill(mask, 0.0))
        return
    mask = mask.to(tensor.device)
    local(tensor).masked_fill_(part(mask, tensor), 0.0)


def assign(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Set all entries, in place.

    Args:
        tensor: May be sharded.
        values: All values, the same in all processes.
    """
    if is_in_zero(tensor):
        set_values(tensor, values)
        return
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
