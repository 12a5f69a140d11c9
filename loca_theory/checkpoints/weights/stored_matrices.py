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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from loca_theory.checkpoints.weights.checkpoint import DamagedError

if TYPE_CHECKING:
    import torch

    from loca_theory.checkpoints.weights.checkpoint import Checkpoint

Experts = Literal["each", "stacked"]
EXPERTS: dict[str, Experts] = {"each": "each", "stacked": "stacked"}
"""The two interpretations of a tensor with the weights of several experts."""

_EXPERTS = re.compile(r"expert|(?<![a-z])moe(?![a-z])", re.IGNORECASE)
_MATRIX, _EXPERTS_DIMENSIONS, _LARGEST_KERNEL = 2, 3, 5


@dataclass(frozen=True)
class StoredMatrix:
    """A matrix in a stored tensor.

    Attributes:
        tensor: Name of the tensor.
        shape: Numbers of rows and columns.
        stored_shape: Shape of the tensor.
        expert: Index of the expert; None if the whole tensor is one matrix.
    """

    tensor: str
    shape: tuple[int, int]
    stored_shape: tuple[int, ...]
    expert: int | None = None

    @property
    def name(self) -> str:
        """Name of the matrix: that of the tensor, with the number of the expert in brackets."""
        return self.tensor if self.expert is None else f"{self.tensor}[{self.expert}]"

    def load(self, checkpoint: Checkpoint) -> torch.Tensor:
        """Load the matrix, which may be the checkpoint's own memory.

        Raises:
            DamagedError: the tensor cannot be read, or has another shape than it had.
        """
        found = checkpoint.load(self.tensor, self.expert)
        if tuple(found.shape) != (self.stored_shape if self.expert is None else self.shape):
            msg = f"{self.tensor} has changed its shape since it was opened; start again"
            raise DamagedError(msg)
        return found.reshape(self.shape)


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


def stored_matrices(
    tensor: str, shape: tuple[int, ...], experts: Experts = "each", *, weight: str | None = None
) -> Iterator[StoredMatrix]:
    """The matrices in a tensor.

    Args:
        tensor: Name of the tensor.
        shape: Its shape.
        experts: What a tensor with the weights of several experts is.
        weight: Name of the weight, which tells whether it is one of experts; by default the
            tensor's name.

    Example:
        >>> [one.name for one in stored_matrices("mlp.experts.down_proj", (2, 64, 32))]
        ['mlp.experts.down_proj[0]', 'mlp.experts.down_proj[1]']
        >>> [one.shape for one in stored_matrices("conv.weight", (64, 32, 3, 3))]
        [(64, 288)]
    """
    weight = weight or tensor
    flat = matrix_shape(weight, shape, experts)
    if flat is None:
        return
    if holds_experts(weight, shape) and experts == "each":
        for i in range(shape[0]):
            yield StoredMatrix(tensor, flat, shape, i)
    else:
        yield StoredMatrix(tensor, flat, shape)
