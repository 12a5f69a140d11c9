"""Rows of an extraction, with sizes that come from the split of a total."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loca_theory.checkpoints.allocation import Allocation
from loca_theory.checkpoints.extraction_result import ExtractedMatrix
from loca_theory.checkpoints.linear_layers import Layer


@dataclass(frozen=True)
class Split:
    """The split of a total among matrices.

    Attributes:
        methods: Method of each matrix.
        allocation: Sizes and retained energies.
        shapes: (p, q) of each matrix.
        has_uniform: Whether a uniform split means something: all matrices have the same method.
    """

    methods: Mapping[str, str]
    allocation: Allocation
    shapes: Mapping[str, tuple[int, ...]]
    has_uniform: bool

    @property
    def sizes(self) -> dict[str, int]:
        """Number of units of each matrix."""
        return self.allocation.sizes

    def uniform_error(self, name: str) -> float | None:
        """Relative squared error of a matrix in the uniform split."""
        if not self.has_uniform:
            return None
        one = next(one for one in self.allocation.matrices if one.name == name)
        return max(0.0, 1 - one.uniform_retained / one.energy)

    @property
    def least_error(self) -> float | None:
        """Lower bound of the relative squared error over all matrices with any split."""
        found = self.allocation
        return max(0.0, 1 - found.retained - found.gap) if self.has_uniform else None

    def row_of_nothing(self, layer: Layer) -> ExtractedMatrix:
        """The row of a matrix that gets no parameters."""
        energy = next(one.energy for one in self.allocation.matrices if one.name == layer.name)
        p, q = self.shapes[layer.name]
        result = {
            "shape": (p, q), "method": self.methods[layer.name], "count": 0, "error": 1.0,
            "gap": 0.0, "energy": energy,
        }  # fmt: skip
        return row_of(layer, result, self)


def row_of(layer: Layer, result: Mapping[str, Any], split: Split | None) -> ExtractedMatrix:
    """The row of a layer, from what was computed for it.

    Args:
        layer: The layer.
        result: Its ``shape``, ``method``, ``count``, ``error``, ``gap`` and ``energy``.
        split: The split of a total that its size comes from.
    """
    p, q = result["shape"]
    count, is_loca = result["count"], result["method"] == "loca"
    return ExtractedMatrix(
        name=layer.own,
        shape=(p, q),
        method=result["method"],
        r=None if is_loca else count,
        components=count if is_loca else None,
        numbers=count if is_loca else (p + q) * count,
        error=result["error"],
        gap=result["gap"],
        uniform_error=None if split is None else split.uniform_error(layer.name),
        least_error=None if split is None else split.least_error,
        energy=result["energy"],
    )
