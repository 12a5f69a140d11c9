"""The change of one layer by a fine-tune, as a form of adapters approximates it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch

from loca_theory.checkpoints.change.pair import CheckpointPair, check_finite
from loca_theory.checkpoints.form.inside import PairCells
from loca_theory.checkpoints.form.layer import Layer
from loca_theory.checkpoints.source.checkpoint import LeftOutError, Reason
from loca_theory.increments.truncated_svd import TruncatedSVD, svd_of_product
from loca_theory.transforms.devices import device_memory
from loca_theory.transforms.inputs import balanced, fits_squared

# The squares of larger products may not fit float64.
_LARGEST = 2.0**500


@dataclass
class Change:
    """ΔW = 2ᵉ x of a layer of PEFT; each part is computed when it is first asked for.

    Attributes:
        layer: The layer.
        pair: The checkpoints.
        device: Where the linear algebra runs.
        looks_inside: Whether adapters may leave the stored difference for its rounding cells.
    """

    layer: Layer
    pair: CheckpointPair
    device: str
    looks_inside: bool = False

    @cached_property
    def product(self) -> TruncatedSVD | None:
        """ΔW from the factors that an adapter stores, without ΔW itself; None if it has none."""
        factors = self.pair.factors(self.layer.name)
        if factors is None:
            return None
        b, a = factors
        check_finite(b)
        check_finite(a)
        if not float(b.norm()) * float(a.norm()) < _LARGEST:
            return None  # ΔW itself says what is wrong
        svd = svd_of_product(a.mT, b.mT) if self.layer.is_transposed else svd_of_product(b, a)
        if not len(svd.s):
            raise _unchanged()
        return svd

    @cached_property
    def increment(self) -> tuple[torch.Tensor, int]:
        """X and e; x is not zero, and has experts in one parameter as they are stored."""
        increment = self.pair.increment(self.layer.name)
        check_finite(increment)
        matrix, exponent = balanced(increment.to(self.device), "increment")
        if not any(matrix.aminmax()):
            raise _unchanged()
        if not fits_squared(exponent):
            raise out_of_range("float32", exponent)
        is_turned = self.layer.is_transposed and self.layer.experts == 1
        return (matrix.T if is_turned else matrix), exponent

    @property
    def experts(self) -> list[torch.Tensor]:
        """The part of x of each expert, as a layer of PEFT would have it."""
        matrix, _ = self.increment
        if self.layer.experts == 1:
            return [matrix]
        stack = matrix.reshape(self.layer.experts, -1, matrix.shape[1])
        return list(stack.mT if self.layer.is_transposed else stack)

    @cached_property
    def cells(self) -> PairCells | None:
        """The rounding cells of x; None without a base, or if they are not looked into."""
        if not self.looks_inside or self.pair.base is None:
            return None
        matrix, (_, exponent) = self.pair.matrices[self.layer.name], self.increment
        base, tuned = (
            matrix.load(side).to(self.device) for side in (self.pair.base, self.pair.tuned)
        )
        cells = PairCells.of(base, tuned, exponent)
        is_turned = self.layer.is_transposed and self.layer.experts == 1
        return cells.turned() if cells and is_turned else cells

    @property
    def expert_cells(self) -> list[PairCells] | list[None]:
        """The cells of each expert, as a layer of PEFT would have it."""
        count, cells = self.layer.experts, self.cells
        if cells is None:
            return [None] * count
        parts = cells.experts(count) if count > 1 else [cells]
        return (
            [part.turned() for part in parts] if count > 1 and self.layer.is_transposed else parts
        )


@contextmanager
def change_of(
    layer: Layer, pair: CheckpointPair, device: str, *, looks_inside: bool = False
) -> Iterator[Change]:
    """The change of a layer; says what does not fit into the memory of a device."""
    p, q = pair.matrices[layer.name].shape
    way_out = f'leave it out with max_size={p * q - 1}, or use device="cpu"'
    with device_memory(f"the adapter of {layer.name} ({p}x{q})", device, way_out):
        yield Change(layer, pair, device, looks_inside)


def out_of_range(dtype: str, exponent: int) -> LeftOutError:
    """The error for an increment whose adapter a type cannot store."""
    detail = f"an adapter holds {dtype} numbers, and the entries of the increment are about "
    return LeftOutError(Reason("too large or too small", f"{detail}2^{exponent}"))


def _unchanged() -> LeftOutError:
    return LeftOutError("unchanged by the fine-tune")
