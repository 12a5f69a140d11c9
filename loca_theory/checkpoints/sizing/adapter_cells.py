"""Computations of an extraction, one matrix each, in this process or on workers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from loca_theory.checkpoints.computation import PACKAGES
from loca_theory.checkpoints.pairs.pair import CheckpointPair, not_finite
from loca_theory.checkpoints.sizing.adapter_size import AdapterSize
from loca_theory.checkpoints.sizing.best_adapters import best_components, best_factors, energy_of
from loca_theory.checkpoints.statistics.energy_profile import component_energies
from loca_theory.checkpoints.weights.checkpoint import DamagedError, LeftOutError, skipped
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.sweeps.store import Cell
from loca_theory.transforms.devices import device_memory
from loca_theory.transforms.inputs import balanced, fits_squared

DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Types in which an adapter can be stored, and their bytes per number."""


@dataclass(frozen=True)
class ProfileCell(Cell):
    """The retained energy of one layer by size.

    Attributes:
        name: Name of the matrix in the pair.
        is_transposed: Whether PEFT's layer has the transposed matrix.
        methods: Methods of the adapter.
        entries: Digest of what the increment is computed from, if the result is stored.
    """

    experiment: ClassVar[str] = "energy-profile"
    packages: ClassVar[tuple[str, ...]] = PACKAGES

    name: str
    is_transposed: bool
    methods: tuple[str, ...]
    entries: str | None = None


@dataclass(frozen=True)
class AdapterCell(ProfileCell):
    """The best adapter of one layer.

    Attributes:
        kernel: Shape of the kernel of a convolution.
        count: LoRA's rank or the number of LoCA's coefficients; None if each method has its own.
    """

    experiment: ClassVar[str] = "adapter"

    kernel: tuple[int, ...] = ()
    count: int | None = None


def compute_profiles(cell: ProfileCell, pair: CheckpointPair, device: str) -> dict[str, Any]:
    """The retained energy by size, for each method of the cell."""

    def profiles(increment: torch.Tensor, exponent: int) -> dict[str, Any]:
        found = {}
        for method in cell.methods:
            if method == "lora":
                retained = np.cumsum(squared_singular_values(increment)[::-1])
                units = np.arange(1, len(retained) + 1)
            else:
                units, retained = component_energies(increment)
            found[method] = {
                "units": units.tolist(),
                "retained": np.ldexp(retained, 2 * exponent).tolist(),
            }
        return found

    return _computed(cell, pair, device, profiles)


def compute_adapter(
    cell: AdapterCell, pair: CheckpointPair, size: AdapterSize, dtype: str, device: str
) -> dict[str, Any]:
    """The best adapter of one increment; of several methods, the one of least error."""

    def adapter(increment: torch.Tensor, exponent: int) -> dict[str, Any]:
        p, q = increment.shape
        candidates = []
        for method in cell.methods:
            count = cell.count or size.count(method, p, q)
            compute = best_components if method == "loca" else best_factors
            found = compute(increment, count, exponent, getattr(torch, dtype))
            candidates.append((method, count, found))
        method, count, best = min(candidates, key=lambda one: one[2].error)
        learned = [one for one in best.tensors.values() if one.is_floating_point()]
        if not all(bool(one.isfinite().all()) and bool(one.any()) for one in learned):
            raise _out_of_range(dtype, exponent)
        tensors = best.tensors
        if cell.kernel:
            # LoRA's factors of a convolution: A has the kernel, and B one of side 1.
            a, b = tensors["lora_A.weight"], tensors["lora_B.weight"]
            tensors = {
                "lora_A.weight": a.reshape(len(a), -1, *cell.kernel),
                "lora_B.weight": b.reshape(*b.shape, *[1] * len(cell.kernel)),
            }
        return {
            "method": method,
            "count": count,
            "error": best.error,
            "gap": best.gap,
            "energy": math.ldexp(energy_of(increment), 2 * exponent),
            "tensors": tensors,
        }

    return _computed(cell, pair, device, adapter)


def _computed(
    cell: ProfileCell,
    pair: CheckpointPair,
    device: str,
    compute: Callable[[torch.Tensor, int], dict[str, Any]],
) -> dict[str, Any]:
    """What is computed from an increment, or why it is left out."""
    p, q = pair.matrices[cell.name].shape
    way_out = f'leave it out with max_size={p * q - 1}, or use device="cpu"'
    try:
        with device_memory(f"the adapter of {cell.name} ({p}x{q})", device, way_out):
            return compute(*_increment(cell, pair, device))
    except (LeftOutError, DamagedError) as error:
        return {"skipped": skipped(error)}


def _increment(cell: ProfileCell, pair: CheckpointPair, device: str) -> tuple[torch.Tensor, int]:
    """(x, e) with ΔW = 2ᵉ x, not zero, as PEFT's layer has it."""
    increment = pair.increment(cell.name)
    if reason := not_finite(increment):
        raise DamagedError(reason)
    found, exponent = balanced(increment.to(device), "increment")
    if not found.any():
        raise LeftOutError("unchanged by the fine-tune")  # noqa: EM101
    if not fits_squared(exponent):
        raise _out_of_range("float32", exponent)  # noqa: EM101
    return found.T if cell.is_transposed else found, exponent


def _out_of_range(dtype: str, exponent: int) -> LeftOutError:
    reason = f"too large or too small: an adapter holds {dtype} numbers"
    return LeftOutError(f"{reason}, and the entries of the increment are about 2^{exponent}")
