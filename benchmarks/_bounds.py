"""Lower bounds on the cost of a step: launches of operations, bytes moved and products.

Three estimates of a time, each from a count and a rate that is measured on the machine: operations
that the processor launches; bytes, where every operation reads and writes each of its tensors once;
and the work of dense products, at the rate of a large one. The largest says what to improve first.
A cache that holds the tensors makes a step faster than its bytes say.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

_OURS = "loca_theory"  # operators whose own operations count
_REPEATS = 5
# Of these, only what is read or written of the first tensor counts, as often as the other one.
_GATHERS = ("index", "index_select", "gather", "embedding", "take")
_SCATTERS = ("index_add", "index_put", "scatter", "scatter_add")
_ALLOCATES = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
_FILLS = ("fill_", "zero_", "copy_")


def nbytes(tensor: torch.Tensor) -> int:
    """Bytes of the entries that are stored: of a sparse matrix, and of an expanded one, fewer."""
    if tensor.layout == torch.sparse_csr:
        return nbytes(tensor.values()) + nbytes(tensor.col_indices())
    if tensor.is_sparse:
        return nbytes(tensor._values()) + nbytes(tensor._indices())
    sides = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.element_size() * math.prod(side for side, stride in sides if stride or side == 0)


def moved(name: str, tensors: Sequence[torch.Tensor], written: Sequence[torch.Tensor]) -> int:
    """Bytes that an operation reads and writes."""
    base = name.rstrip("_")
    if base in _GATHERS:
        return sum(map(nbytes, tensors[1:])) + 2 * sum(map(nbytes, written))
    if base in _SCATTERS:
        changed = nbytes(tensors[-1])  # the values
        copied = 0 if name.endswith("_") else 2 * nbytes(tensors[0])
        return copied + sum(map(nbytes, tensors[1:])) + 2 * changed
    if name in _FILLS:
        return sum(map(nbytes, tensors))
    if "sparse" in name and "tensor" in name:
        return 0  # the parts of a matrix become a matrix
    return sum(map(nbytes, (*tensors, *written)))


class Work(TorchDispatchMode):
    """Counts the operations of a step that compute something, their bytes and their products."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = self.bytes = 0
        self.flops: Counter[torch.dtype] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, and count it."""
        kwargs = kwargs or {}
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if func.namespace == _OURS:
            keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
            with self:
                return func.redispatch(keys, *args, **kwargs)
        result = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if not func.is_view and name not in _ALLOCATES:
            written = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
            self.operations += 1
            self.bytes += moved(name, tensors, written)
            if formula := flop_registry.get(func.overloadpacket):
                self.flops[written[0].dtype] += formula(*args, **kwargs, out_val=result)
        return result


@dataclass(frozen=True)
class Rates:
    """The work that a machine does in a second.

    Attributes:
        launches: Operations that it starts.
        bytes: Bytes that it reads or writes.
        flops: Operations on numbers in a large product, by the dtype.
    """

    launches: float
    bytes: float
    flops: Mapping[torch.dtype, float]


@cache
def rates(device: str) -> Rates:
    """The rates of a device, as the best of several measurements."""
    is_card = device.startswith("cuda")
    number = torch.ones(1, device=device)
    large = torch.ones(2**26 if is_card else 2**24, device=device)
    side = 8192 if is_card else 1024
    flops = {}
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.ones(side, side, device=device, dtype=dtype)
        flops[dtype] = 2 * side**3 / _seconds(lambda: matrix @ matrix, device, 4)  # noqa: B023
    return Rates(
        launches=1 / _seconds(lambda: number.add_(1), device, 1000),
        bytes=2 * 4 * large.numel() / _seconds(large.clone, device, 4),
        flops=flops,
    )


def _seconds(step: Callable[[], object], device: str, calls: int) -> float:
    step()
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        for _ in range(calls):
            step()
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
        times.append((time.perf_counter() - start) / calls)
    return min(times)


def bounds(step: Callable[[], object], device: str) -> dict[str, Any]:
    """Milliseconds that a step takes for each reason alone, and the reason that decides.

    Nothing is known of a step without an operation of torch.
    """
    with Work() as work:
        step()
    if not work.operations:
        return {}
    machine = rates(device)
    seconds_by_reason = {
        "launches": work.operations / machine.launches,
        "bytes": work.bytes / machine.bytes,
        "flops": sum(
            count / machine.flops.get(dtype, machine.flops[torch.float32])
            for dtype, count in work.flops.items()
        ),
    }
    decisive = max(seconds_by_reason, key=lambda reason: seconds_by_reason[reason])
    return {
        "operations": work.operations,
        **{f"{reason}_ms": 1e3 * seconds for reason, seconds in seconds_by_reason.items()},
        "bound_ms": 1e3 * seconds_by_reason[decisive],
        "bound_by": decisive,
    }
