"""W + ΔW, kept between the micro-batches of one optimiser step."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch


class WeightState(NamedTuple):
    """What tells whether W has changed.

    Attributes:
        address: Of its first entry.
        version: Torch's count of writes; None for a tensor of inference mode.
        sums: Sums of every sixteenth row with random weights, for code that writes to ``.data``.
    """

    address: int
    version: int | None
    sums: torch.Tensor

    @classmethod
    def of(cls, weight: torch.Tensor) -> WeightState:
        """The state of W, (p, q)."""
        version = None if weight.is_inference() else weight._version
        sums = weight.detach()[::16] @ _probe(weight.shape[1], weight.dtype)
        return cls(weight.data_ptr(), version, sums)

    def is_that_of(self, other: WeightState) -> bool:
        """Whether W is the same."""
        return self[:2] == other[:2] and torch.equal(self.sums, other.sums)


class Lookup(NamedTuple):
    """What a forward pass found.

    Attributes:
        folded: W + ΔW if it was kept, else None.
        state: That of W if this pass's W + ΔW is to be kept, else None.
    """

    folded: torch.Tensor | None
    state: WeightState | None


class FoldedWeight:
    """W + ΔW of the last backward pass, as long as coefficients, indices and W stay the same.

    Coefficients and indices are compared entry by entry, because code that writes to ``.data``
    leaves no other trace; W by its :class:`WeightState`.

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
        self._stored: tuple[torch.Tensor, WeightState] | None = None
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
            self._stored = None
            self._inputs = coefficients.detach().clone(), indices.clone(), scaling
        if not self._is_active:
            return Lookup(None, None)
        state = WeightState.of(weight)
        stored = self._stored
        if stored is not None and state.is_that_of(stored[1]):
            return Lookup(stored[0], state)
        self._stored = None
        return Lookup(None, state)

    def keep(
        self,
        folded: torch.Tensor,
        state: WeightState,
        coefficients: torch.Tensor,
        indices: torch.Tensor,
        scaling: float,
    ) -> None:
        """Keep W + ΔW of a backward pass, unless the layer has moved on since its forward pass."""
        if self._is_of(coefficients, indices, scaling):
            self._stored = folded, state

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
