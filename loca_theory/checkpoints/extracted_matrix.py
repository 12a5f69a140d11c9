"""The row of one matrix of an extraction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loca_theory.checkpoints.pairs.linear_layers import Layer


@dataclass(frozen=True)
class ExtractedMatrix:
    """Size and error of the best adapter of one increment.

    Attributes:
        name: Name of the weight.
        shape: (p, q), after a ``Conv1D`` weight is transposed and a kernel is flattened.
        method: ``lora``, ``loca`` or ``entries``.
        r: The r of LoRA or SHiRA; None for LoCA; 0 if the split of a total left nothing for this
            matrix.
        components: Number of LoCA's coefficients; None for other methods.
        numbers: Number of learned parameters.
        error: Relative squared error of the reconstruction, with the parameters as they are stored.
        gap: Estimate of how much smaller the error of the best adapter of this size and method is.
        energy: Squared norm of the increment.
        uniform_error: Relative squared error with the uniform size; None if no total was split, or
            if methods are mixed, as for the next three.
        uniform_size: Rank or number of coefficients if all matrices get the same: the largest that
            the total pays for, or all that this matrix can have.
        equal_error: Error over all increments together if the split has only what the uniform sizes
            cost; the same in every row.
        least_error: Lower bound of this error with any split of the total; the same in every row.
        loaded_error: Relative squared error of this weight in the model, after PEFT has loaded and
            merged the adapter; None before :meth:`Extraction.verify`.
    """

    name: str
    shape: tuple[int, int]
    method: str
    r: int | None
    components: int | None
    numbers: int
    error: float
    gap: float
    energy: float
    uniform_error: float | None = None
    uniform_size: int | None = None
    equal_error: float | None = None
    least_error: float | None = None
    loaded_error: float | None = None


def extracted(layer: Layer, result: Mapping[str, Any], **split: Any) -> ExtractedMatrix:
    """The row of a layer, from what was computed for it."""
    count = result["count"]
    is_loca = result["method"] == "loca"
    return ExtractedMatrix(
        name=layer.own,
        shape=layer.shape,
        method=result["method"],
        r=None if is_loca else count,
        components=count if is_loca else None,
        numbers=count if is_loca else sum(layer.shape) * count,
        error=result["error"],
        gap=result["gap"],
        energy=result["energy"],
        **split,
    )


def retained(rows: Sequence[ExtractedMatrix]) -> float:
    """Fraction of the energy that the adapters of some rows retain."""
    energy = sum(one.energy for one in rows)
    return sum(one.energy * (1 - one.error) for one in rows) / energy if energy else 0.0
