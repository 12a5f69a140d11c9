"""Whether several processes train together."""

from __future__ import annotations

import torch


def is_distributed() -> bool:
    """Whether this is one of several processes of torch.distributed."""
    distributed = torch.distributed
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )
