"""Check that a simulation fits in memory before it starts."""

from __future__ import annotations

import psutil

from loca_theory.errors import ResourceError
from loca_theory.expressivity.budgets import Budget

# Peak memory in float64 arrays, without the interpreter and libraries, rounded up from measurements
# of every method. The dense sampler is measured in p×q matrices at sizes 1024 to 4096 (the
# methods LoRA and DoRA take the most), the reduced one in arrays as long as LoRA's factors.
_DENSE_MATRICES = 12
_REDUCED_ARRAYS = 12


def check_memory(budget: Budget, *, dense: bool, processes: int, device: str = "cpu") -> None:
    """Check that a simulation fits in memory, before anything is allocated."""
    if dense:
        name, numbers = "dense", _DENSE_MATRICES * budget.p * budget.q
    else:
        name = "reduced"
        numbers = _REDUCED_ARRAYS * ((budget.p + budget.q) * budget.r + min(budget.p, budget.q))
    needed, free = 8 * numbers * processes, _free_bytes(device)
    if needed > free:
        way_out = 'sampler="reduced"' if dense else 'engine="exact"'
        raise ResourceError(
            f"the {name} sampler needs about {_gib(needed)} for {budget.p}x{budget.q} in "
            f"{processes} process(es), and {_gib(free)} are free on {device}; "
            f"use {way_out}, fewer workers (jobs=1) or a smaller matrix"
        )


def _free_bytes(device: str) -> int:
    if device.startswith("cuda"):
        import torch  # already imported, because torch resolved the device

        # Memory that torch has reserved but not allocated is available as well.
        reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + reserve
    return psutil.virtual_memory().available


def _gib(count: int) -> str:
    size = count / 2**30
    return f"{size:,.0f} GiB" if size >= 10 else f"{size:.1f} GiB"
