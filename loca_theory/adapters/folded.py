"""W + ΔW, kept between the micro-batches of one optimiser step."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch


class Lookup(NamedTuple):
    """What a forward pass found.

    Attributes:
        folded: W + ΔW if it was kept, else None.
        checksum: That of W if this pass's W + ΔW is to be kept, else None.
    """

    folded: torch.Tensor | None
    checksum: torch.Tensor | None


class FoldedWeight:
    """W + ΔW of the last backward pass, as long as coefficients, indices and W stay the same.

    All three are compared by their values, because code that writes to ``.data`` leaves no other
    trace: a and l entry by entry, W by a checksum, its product with a fixed random vector.

    It needs no memory at the peak, the end of a forward pass, because autograd then holds W + ΔW
    anyway. It is kept after a backward pass only, only if several passes of a step use the same
    coefficients (gradient accumulation), and not if checkpointing had dropped it. A pass without
    gradients drops it.
    """

    def __init__(self) -> None:
        self.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        return FoldedWeight, ()  # copies start empty

    def clear(self) -> None:
        """Drop what was kept."""
        self._inputs: tuple[torch.Tensor, torch.Tensor, float] | None = None
        self._kept: tuple[torch.Tensor, torch.Tensor] | None = None
        self._is_active = self._is_repeated = False

    def find(
        self,
        weight: torch.Tensor,
        coefficients: torch.Tensor,
        indices: torch.Tensor,
        scaling: float,
    ) -> Lookup:
        """Look W + ΔW up at the start of a forward pass with gradients.

        Args:
            weight: W, (p, q), on the CPU.
            coefficients: a, (B,).
            indices: (B, 2).
            scaling: α.
        """
        if torch._C._current_graph_task_id() != -1:  # checkpointing repeats a forward pass
            return Lookup(None, None)
        if self._is_of(coefficients, indices, scaling):
            self._is_active = self._is_repeated = True
        else:
            # The first pass of a step; was the previous step one of several passes?
            self._is_active, self._is_repeated = self._is_repeated, False
            self._kept = None
            self._inputs = coefficients.detach().clone(), indices.clone(), scaling
        if not self._is_active:
            return Lookup(None, None)
        checksum = weight.detach() @ _probe(weight.shape[1], weight.dtype)
        if self._kept is not None and torch.equal(self._kept[1], checksum):
            return Lookup(self._kept[0], checksum)
        self._kept = None
        return Lookup(None, checksum)

    def keep(
        self,
        folded: torch.Tensor,
        checksum: torch.Tensor,
        coefficients: torch.Tensor,
        indices: torch.Tensor,
        scaling: float,
    ) -> None:
        """Keep W + ΔW of a backward pass, unless the layer has moved on since its forward pass."""
        if self._is_of(coefficients, indices, scaling):
            self._kept = folded, checksum

    def _is_of(self, coefficients: torch.Tensor, indices: torch.Tensor, scaling: float) -> bool:
        if self._inputs is None:
            return False
        a, l, alpha = self._inputs  # noqa: E741
        same_kind = a.dtype == coefficients.dtype and l.dtype == indices.dtype
        same = same_kind and alpha == scaling and torch.equal(a, coefficients)
        return same and torch.equal(l, indices)


@cache
def _probe(columns: int, dtype: torch.dtype) -> torch.Tensor:
    with torch.inference_mode(mode=False):
        generator = torch.Generator().manual_seed(0)
        return torch.randn(columns, dtype=dtype, generator=generator)
