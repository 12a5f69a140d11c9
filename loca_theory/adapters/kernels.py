"""Kernels of the operators of the LoCA layer, on plain tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from loca_theory.adapters.costs import one_sided_pays
from loca_theory.adapters.pattern import SparsityPattern, sample_product, shifted, sparse_product
from loca_theory.locations.gradient import NEIGHBOURS, Sample
from loca_theory.transforms.dct_implementations import transform
from loca_theory.transforms.matrices import dct_matrix
from loca_theory.transforms.transposed import rows_to_spectra, spectra_to_columns_, spectra_to_rows

# Tokens are processed in equal blocks of at most about this many entries. On a CPU, smaller blocks
# stay in the cache, but a transform of 340 tokens takes nearly as long as one of 512. This was the
# fastest size at 768x768, and no slower than others at 4096x4096. A GPU needs large blocks.
_BLOCK, _BLOCK_ON_DEVICE = 2**19, 2**24


def token_blocks(tokens: torch.Tensor, width: int) -> Iterator[slice]:
    """Split tokens, (T, q) or (T, p), into blocks that fit in the cache; the other width too."""
    count, other = tokens.shape
    entries = _BLOCK if tokens.device.type == "cpu" else _BLOCK_ON_DEVICE
    longest = max(16, entries // max(other, width))
    pieces = max(math.ceil(count / longest), 1)
    size = max(math.ceil(count / pieces), 1)
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def form(coefficients: torch.Tensor, s: SparsityPattern, p: int, q: int) -> torch.Tensor:
    """Form ΔW from α a."""
    if not one_sided_pays((p, q), s.columns.shape[0], coefficients.device):
        spectrum = coefficients.new_zeros(p * q).index_add_(0, s.flat, coefficients)
        return transform(spectrum.view(p, q), 2, inverse=True)
    # A sparse product with the smaller DCT matrix replaces the transform along this side. If B is a
    # few times larger than the side, the product is far cheaper.
    side = dct_matrix(min(p, q), dtype=coefficients.dtype, device=coefficients.device)
    if p < q:
        return spectra_to_rows(sparse_product(s.starts_t, s.rows, coefficients[s.order_t], side))
    return spectra_to_columns_(sparse_product(s.starts, s.columns, coefficients[s.order], side))


def from_dense(samples: Samples, g: torch.Tensor, indices: torch.Tensor) -> Sample:
    """The entries of Z from G = ∂L/∂ΔW, added to ``samples`` where these are few."""
    p, q = g.shape
    kind: Any = {"dtype": g.dtype, "device": g.device}
    if not one_sided_pays((p, q), samples.count, g.device):
        z, has_neighbours = transform(g, 2), samples.has_neighbours
        return reader(z, indices, samples.pattern.flat, has_neighbours=has_neighbours)
    if p < q:
        samples.add(dct_matrix(p, **kind), rows_to_spectra(g))
    else:
        samples.add(rows_to_spectra(g.T), dct_matrix(q, **kind))
    return samples


class Samples:
    """The entries of Z = Σ L Rᵀ at and next to each component, summed over blocks of tokens."""

    def __init__(
        self,
        pattern: SparsityPattern,
        coefficients: torch.Tensor,
        rule: Any,
        needs: Sequence[bool],
        width: int,
    ) -> None:
        self.pattern, self._like, self._width = pattern, coefficients, width
        shifts = {(0, 0)} if needs[1] else set()
        self._directions = sorted(shifts | (NEIGHBOURS[rule] if needs[2] else set()))
        self._sums: dict[tuple[int, int], torch.Tensor] = {}

    @property
    def has_neighbours(self) -> bool:
        """Whether entries next to the components are needed."""
        return self._directions not in ([], [(0, 0)])

    @property
    def count(self) -> int:
        """The number of entries of Z that are computed."""
        return len(self._directions) * self._like.shape[0]

    def add(self, left: torch.Tensor, right: torch.Tensor) -> None:
        """Add the entries of L Rᵀ for L (p×T) and R (q×T)."""
        s = self.pattern
        for by in self._directions:
            sums = sample_product(*shifted(s.starts, s.columns, by, self._width), left, right)
            self._sums[by] = self._sums[by] + sums if by in self._sums else sums

    def __call__(self, down: int, along: int) -> torch.Tensor:
        """The sums at a displacement from each component, in the order of the components."""
        values = torch.zeros_like(self._like)
        if self._sums:  # there were tokens
            values[self.pattern.order] = self._sums[down, along]
        return values


def reader(
    z: torch.Tensor, indices: torch.Tensor, flat: torch.Tensor, *, has_neighbours: bool
) -> Sample:
    """Make a function that has the entries of the full matrix Z; ``flat`` as in the pattern.

    The eight neighbours of all components are read at once: a GPU needs longer to start an
    operation than for that.
    """
    if not has_neighbours:
        entries = z.reshape(-1).index_select(0, flat)
        return lambda down, along: entries
    p, q = z.shape
    step = torch.arange(-1, 2, device=z.device)
    rows = (indices[:, :1].long() + step).clamp(0, p - 1)
    columns = (indices[:, 1:].long() + step).clamp(0, q - 1)
    around = z.reshape(-1)[rows[:, :, None] * q + columns[:, None]]
    return lambda down, along: around[:, 1 + down, 1 + along]
