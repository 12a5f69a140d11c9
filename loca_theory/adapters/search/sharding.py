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
    detached = tensor.detach()
    return detached.full_tensor() if is_sharded(detached) else detached


def shared_out(values: torch.Tensor, template: Any) -> torch.Tensor:
    """Values that all processes have, on the device of another tensor and shared out as it is."""
    values = values.to(template.device)
    if not is_sharded(template):
        return values
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(values, template.device_mesh, template.placements, src_data_rank=None)
