"""Computations of an extraction, one matrix each, in this process or on workers.

A worker reads the matrices itself. Adapters come back as the bytes of a safetensors file in base64,
so that every backend can carry them.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from loca_theory.checkpoints.adapter_size import AdapterSize
from loca_theory.checkpoints.best_adapters import (
    BestAdapter,
    best_components,
    best_factors,
    energy_of,
)
from loca_theory.checkpoints.checkpoint import DamagedError
from loca_theory.checkpoints.computation import PACKAGES
from loca_theory.checkpoints.energy_profile import EnergyProfile, component_counts
from loca_theory.checkpoints.linear_layers import Layer
from loca_theory.checkpoints.pairs import CheckpointPair, not_finite
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.sweeps.store import Point

if TYPE_CHECKING:
    import torch

DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Types in which an adapter can be stored, and their bytes per number."""


class LeftOutError(Exception):
    """A matrix cannot be part of the adapter, for the reason in the message."""


def point_of(experiment: str, layer: Layer, **asked: Any) -> Point:
    """The computation for one layer."""
    labels = {"name": layer.name, "transposed": layer.is_transposed, "kernel": list(layer.kernel)}
    return Point(experiment, {**labels, **asked}, PACKAGES)


def profile_point(point: Point, pair: CheckpointPair, device: str) -> dict[str, Any]:
    """Compute the retained energy by size, for each of the point's ``methods``."""

    def profiles(increment: torch.Tensor, exponent: int) -> dict[str, Any]:
        found = {method: _profile(increment, method) for method in point.parameters["methods"]}
        for one in found.values():
            one["retained"] = np.ldexp(one["retained"], 2 * exponent).tolist()
        energy = math.ldexp(energy_of(increment), 2 * exponent)
        return {"shape": list(increment.shape), "energy": energy, "methods": found}

    return _computed(point, pair, device, profiles)


def _profile(increment: torch.Tensor, method: str) -> dict[str, Any]:
    if method == "lora":
        values = squared_singular_values(increment)[::-1]
        return {"units": None, "retained": np.cumsum(values)}
    from loca_theory.transforms import dct2

    # NumPy sorts large arrays several times as fast as torch on the CPU.
    values = np.sort(dct2(increment).flatten().square_().cpu().numpy())[::-1]
    counts = component_counts(len(values))
    return {"units": counts.tolist(), "retained": np.cumsum(values, dtype=np.float64)[counts - 1]}


def restored_profile(name: str, found: dict[str, Any], method: str, cost: int) -> EnergyProfile:
    """The energy profile that :func:`profile_point` found for a method."""
    one = found["methods"][method]
    retained = np.asarray(one["retained"])
    units = np.arange(1, len(retained) + 1) if one["units"] is None else np.asarray(one["units"])
    # The last value is the energy, up to the rounding of the transform.
    return EnergyProfile(name, cost, units, retained, float(retained[-1]))


def adapter_point(
    point: Point, pair: CheckpointPair, size: AdapterSize, dtype: str, device: str
) -> dict[str, Any]:
    """Compute the best adapter of one increment; of several methods, the one of least error.

    The point's ``count`` is the number of units, or None if the size is the same for all matrices.
    """

    def adapter(increment: torch.Tensor, exponent: int) -> dict[str, Any]:
        p, q = increment.shape
        candidates: list[tuple[str, int, BestAdapter]] = []
        for method in point.parameters["methods"]:
            count = point.parameters["count"] or size.count(method, p, q)
            compute = best_components if method == "loca" else best_factors
            found = compute(increment, count, exponent, _torch_dtype(dtype))
            candidates.append((method, count, found))
        method, count, best = min(candidates, key=lambda one: one[2].error)
        if not _is_storable(best):
            raise LeftOutError(_out_of_range(dtype, exponent))
        return {
            "shape": [p, q],
            "method": method,
            "count": count,
            "error": best.error,
            "gap": best.gap,
            "energy": math.ldexp(energy_of(increment), 2 * exponent),
            "tensors": _packed(_shaped(best.tensors, point.parameters["kernel"])),
        }

    return _computed(point, pair, device, adapter)


def _computed(
    point: Point,
    pair: CheckpointPair,
    device: str,
    compute: Callable[[torch.Tensor, int], dict[str, Any]],
) -> dict[str, Any]:
    """What is computed from an increment, or why it is left out or damaged."""
    from loca_theory.transforms.devices import device_memory

    name = point.parameters["name"]
    p, q = pair.shape(name)
    way_out = f'leave it out with max_size={p * q - 1}, or use device="cpu"'
    try:
        with device_memory(f"the adapter of {name} ({p}x{q})", device, way_out):
            return compute(*_increment(point, pair, device))
    except LeftOutError as error:
        return {"left_out": str(error)}
    except DamagedError as error:
        return {"damaged": str(error)}


def _is_storable(adapter: BestAdapter) -> bool:
    learned = [one for one in adapter.tensors.values() if one.is_floating_point()]
    return all(bool(one.isfinite().all()) and bool(one.any()) for one in learned)


def _increment(point: Point, pair: CheckpointPair, device: str) -> tuple[torch.Tensor, int]:
    """(x, e) with ΔW = 2ᵉ x, not zero, as PEFT's layer has it."""
    from loca_theory.transforms.inputs import balanced, fits_squared

    increment = pair.increment(point.parameters["name"])
    if reason := not_finite(increment):
        raise DamagedError(reason)
    found, exponent = balanced(increment.to(device), "increment")
    if not found.any():
        raise LeftOutError("unchanged by the fine-tune")  # noqa: EM101
    if not fits_squared(exponent):
        raise LeftOutError(_out_of_range("float32", exponent))
    return found.T if point.parameters["transposed"] else found, exponent


def _out_of_range(dtype: str, exponent: int) -> str:
    reason = f"too large or too small: an adapter holds {dtype} numbers"
    return f"{reason}, and the entries of the increment are about 2^{exponent}"


def _torch_dtype(name: str) -> torch.dtype:
    import torch

    return getattr(torch, name)


def _shaped(tensors: dict[str, torch.Tensor], kernel: list[int]) -> dict[str, torch.Tensor]:
    """LoRA's factors of a convolution: A has the kernel, and B one of side 1."""
    if not kernel:
        return tensors
    a, b = tensors["lora_A.weight"], tensors["lora_B.weight"]
    return {
        "lora_A.weight": a.reshape(len(a), -1, *kernel),
        "lora_B.weight": b.reshape(*b.shape, *[1] * len(kernel)),
    }


def _packed(tensors: dict[str, torch.Tensor]) -> str:
    from safetensors.torch import save

    return base64.b64encode(save(tensors)).decode()


def unpacked(text: str) -> dict[str, torch.Tensor]:
    """The tensors of a result of :func:`adapter_point`."""
    from safetensors.torch import load

    return load(base64.b64decode(text))
