"""Computations of an extraction, one matrix each, in this process or on workers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from loca_theory.checkpoints.change.pair import check_finite
from loca_theory.checkpoints.form.fit import (
    BestAdapter,
    best_coordinates,
    best_factors,
    joined,
)
from loca_theory.checkpoints.form.layer import Layer
from loca_theory.checkpoints.form.profile import largest_energies
from loca_theory.checkpoints.source.checkpoint import LeftOutError
from loca_theory.checkpoints.task import MatrixCell, Pairs
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.increments.truncated_svd import TruncatedSVD, svd_of_product, truncated_svd
from loca_theory.transforms import dct2
from loca_theory.transforms.devices import device_memory
from loca_theory.transforms.inputs import balanced, fits_squared

# The squares of larger products may not fit float64.
_LARGEST = 2.0**500

DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Types in which an adapter can be stored, and their bytes per number."""


@dataclass(frozen=True)
class LayerCell(MatrixCell):
    """What is computed of one layer, or of the experts in one parameter.

    PEFT's layer may have the transposed matrix. LoRA has factors of each expert, and LoCA has
    components of the matrix with the rows of all.
    """

    layer: Layer


@dataclass(frozen=True)
class ProfileCell(LayerCell):
    """The retained energy of one layer by size, for several methods."""

    experiment: ClassVar[str] = "energy-profile"

    methods: tuple[str, ...]


@dataclass(frozen=True)
class AdapterCell(LayerCell):
    """The best adapter of one layer.

    Attributes:
        sizes: The r of LoRA or SHiRA, or the number of LoCA's coefficients, by method.
        alpha: LoRA's α, or 0 for r; the product of the factors is multiplied by α/r when loaded.
    """

    experiment: ClassVar[str] = "adapter"

    sizes: tuple[tuple[str, int], ...]
    alpha: int


def compute_profiles(cell: ProfileCell, pairs: Pairs, device: str) -> dict[str, Any]:
    """The energy that each method of the cell retains, size by size as a profile has them."""
    if (product := _product(cell, pairs, cell.methods)) is not None:
        return {"lora": product.s.square().cumsum(0).tolist()}
    found = {}
    with _increment(cell, pairs, device) as (increment, exponent):
        for method in cell.methods:
            if method == "lora":
                squares = map(squared_singular_values, _matrices(cell, increment))
                retained = np.cumsum(np.sum(list(squares), axis=0)[::-1])
            else:
                coordinates = dct2(increment) if method == "loca" else increment
                retained = largest_energies(coordinates.square())
            found[method] = np.ldexp(retained, 2 * exponent).tolist()
    return found


def compute_adapter(cell: AdapterCell, pairs: Pairs, dtype: str, device: str) -> dict[str, Any]:
    """The best adapter of one increment; of several methods, the one of least error."""
    product = _product(cell, pairs, [method for method, _ in cell.sizes])
    stored, exponent = getattr(torch, dtype), 0
    if product is not None:
        rank = min(cell.sizes[0][1], len(product.s))
        best = best_factors(product, rank, exponent, stored, cell.alpha)
    else:
        with _increment(cell, pairs, device) as (increment, exponent):
            candidates = _candidates(cell, increment, exponent, stored)
            best = min(candidates, key=lambda one: one.error)
    learned = [one for one in best.tensors.values() if one.is_floating_point()]
    if not all(bool(one.isfinite().all()) and bool(one.any()) for one in learned):
        raise _out_of_range(dtype, exponent)
    if kernel := cell.layer.kernel:
        # LoRA's factors of a convolution: A has the kernel, and B one of side 1.
        a, b = best.tensors["lora_A.weight"], best.tensors["lora_B.weight"]
        best.tensors["lora_A.weight"] = a.reshape(len(a), -1, *kernel)
        best.tensors["lora_B.weight"] = b.reshape(*b.shape, *[1] * len(kernel))
    return {"adapter": replace(best, energy=math.ldexp(best.energy, 2 * exponent))}


def _candidates(
    cell: AdapterCell, increment: torch.Tensor, exponent: int, dtype: torch.dtype
) -> Iterator[BestAdapter]:
    """The best adapter of each method."""
    for method, count in cell.sizes:
        if method == "lora":
            found = [
                best_factors(truncated_svd(one, count), count, exponent, dtype, cell.alpha, one)
                for one in _matrices(cell, increment)
            ]
            yield joined(found)
        else:
            yield best_coordinates(method, increment, count, exponent, dtype)


def _matrices(cell: LayerCell, increment: torch.Tensor) -> list[torch.Tensor]:
    """The matrices of which LoRA has factors."""
    if cell.layer.experts == 1:
        return [increment]
    found = increment.reshape(cell.layer.experts, -1, increment.shape[1])
    return list(found.mT if cell.layer.is_transposed else found)


def _product(cell: LayerCell, pairs: Pairs, methods: Sequence[str]) -> TruncatedSVD | None:
    """ΔW from the factors that an adapter stores, if LoRA alone is asked for; otherwise None.

    ΔW itself is not formed.
    """
    factors = pairs[cell.tuned[0]].factors(cell.name) if set(methods) == {"lora"} else None
    if factors is None:
        return None
    b, a = factors
    check_finite(b)
    check_finite(a)
    if not float(b.norm()) * float(a.norm()) < _LARGEST:
        return None  # ΔW itself says what is wrong
    found = svd_of_product(a.mT, b.mT) if cell.layer.is_transposed else svd_of_product(b, a)
    if not len(found.s):
        raise LeftOutError("unchanged by the fine-tune")  # noqa: EM101
    return found


@contextmanager
def _increment(cell: LayerCell, pairs: Pairs, device: str) -> Iterator[tuple[torch.Tensor, int]]:
    """(x, e) with ΔW = 2ᵉ x, not zero, as PEFT's layer has it; says what does not fit a device."""
    pair = pairs[cell.tuned[0]]
    p, q = pair.matrices[cell.name].shape
    way_out = f'leave it out with max_size={p * q - 1}, or use device="cpu"'
    with device_memory(f"the adapter of {cell.name} ({p}x{q})", device, way_out):
        increment = pair.increment(cell.name)
        check_finite(increment)
        found, exponent = balanced(increment.to(device), "increment")
        if not any(found.aminmax()):
            raise LeftOutError("unchanged by the fine-tune")  # noqa: EM101
        if not fits_squared(exponent):
            raise _out_of_range("float32", exponent)  # noqa: EM101
        is_turned = cell.layer.is_transposed and cell.layer.experts == 1
        yield (found.T if is_turned else found), exponent


def _out_of_range(dtype: str, exponent: int) -> LeftOutError:
    reason = f"too large or too small: an adapter holds {dtype} numbers"
    return LeftOutError(f"{reason}, and the entries of the increment are about 2^{exponent}")
