"""The matrices that a stored tensor holds.

- A tensor of two dimensions is a matrix.
- A tensor of three dimensions with ``expert`` or ``moe`` in its name holds the weights of the
  experts of one layer, along its first dimension. Each expert is a matrix, ``NAME[0]``,
  ``NAME[1]``, …; or all are stacked into one matrix of as many columns. Its rows are those that
  are stored: models such as Llama 4 and GPT-OSS store the transposes.
- Any other tensor of three to five dimensions is a convolution kernel of shape (outputs, inputs,
  …). It is flattened to a matrix with one row for each output, as mergekit and kohya's scripts do.
"""

from __future__ import annotations

import math
import re
from typing import Literal

Experts = Literal["each", "stacked"]
EXPERTS: dict[str, Experts] = {"each": "each", "stacked": "stacked"}
"""The two interpretations of a tensor with the weights of several experts."""

_EXPERTS = re.compile(r"expert|(?<![a-z])moe(?![a-z])", re.IGNORECASE)
_MATRIX, _EXPERTS_DIMENSIONS, _LARGEST_KERNEL = 2, 3, 5


def holds_experts(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor holds the weights of several experts along its first dimension."""
    return len(shape) == _EXPERTS_DIMENSIONS and bool(_EXPERTS.search(name))


def matrix_shape(
    name: str, shape: tuple[int, ...], experts: Experts = "each"
) -> tuple[int, int] | None:
    """Numbers of rows and columns of the matrices in a tensor; None if it holds none."""
    if not _MATRIX <= len(shape) <= _LARGEST_KERNEL:
        return None
    if not holds_experts(name, shape):
        return shape[0], math.prod(shape[1:])
    return (shape[1] if experts == "each" else shape[0] * shape[1]), shape[2]
