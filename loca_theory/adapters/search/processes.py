"""Detection of distributed training."""

from __future__ import annotations

import torch


def is_distributed() -> bool:
    """Whether this process is one of several in torch.distributed."""
    distributed = torch.distributed
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )
