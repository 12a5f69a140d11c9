"""How a tensor stores matrices: alone, with those of other experts, as a kernel, or transposed.

- A tensor of two dimensions is a matrix. GPT-2 and its relatives store some transposed, in layers
  of the class ``Conv1D``.
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
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from loca_theory.checkpoints.weights.checkpoint import Checkpoint

Experts = Literal["each", "stacked"]
EXPERTS: dict[str, Experts] = {"each": "each", "stacked": "stacked"}
"""The two interpretations of a tensor with the weights of several experts."""

_EXPERTS = re.compile(r"expert|(?<![a-z])moe(?![a-z])", re.IGNORECASE)
_LARGEST_KERNEL = 5
_CONV1D = re.compile(r"(^|\.)(c_attn|q_attn|c_proj|c_fc)\.weight$")
_FUSED = re.compile(r"(^|\.)c_attn\.weight$")


def holds_experts(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor holds the weights of several experts along its first dimension."""
    return len(shape) == 3 and bool(_EXPERTS.search(name))


def is_matrix(shape: tuple[int, ...]) -> bool:
    """Whether a tensor of this shape holds a matrix, or several."""
    return 2 <= len(shape) <= _LARGEST_KERNEL


def matrix_shape(name: str, shape: tuple[int, ...], experts: Experts) -> tuple[int, int]:
    """Numbers of rows and columns of the matrices in a tensor."""
    if not holds_experts(name, shape):
        return shape[0], math.prod(shape[1:])
    return (shape[1] if experts == "each" else shape[0] * shape[1]), shape[2]


def has_conv1d_name(name: str) -> bool:
    """Whether GPT-2 and its relatives store the weight of this name transposed.

    Other models give the same names to weights that they store as usual.
    """
    return bool(_CONV1D.search(name))


def stores_transposed(base: Checkpoint) -> bool | None:
    """Whether the fused query, key and value weights are d×3d, as ``Conv1D`` stores them.

    None if the base has no such weights.
    """
    shapes = [entry.shape for name, entry in base.entries.items() if _FUSED.search(name)]
    return any(len(one) == 2 and one[1] > one[0] for one in shapes) if shapes else None


def by(shape: tuple[int, ...]) -> str:
    """A shape in words, such as ``64x48``."""
    return "x".join(map(str, shape))


def resized(was: tuple[int, ...], now: tuple[int, ...]) -> str:
    """The reason for a weight that has another shape than that of the base."""
    return f"resized from {by(was)} to {by(now)}"
