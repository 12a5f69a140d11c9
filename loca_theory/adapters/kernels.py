"""Kernels of the operators of the LoCA layer, on plain tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from loca_theory.adapters.costs import one_sided_pays
from loca_theory.adapters.pattern import (
    SparsityPattern,
    sample_product,
    shifted,
    sparse_product,
)
from loca_theory.locations.gradient import NEIGHBOURS, Sample, location_gradient
from loca_theory.transforms.dct_paths import transform
from loca_theory.transforms.matrices import dct_matrix
from loca_theory.transforms.transposed import rows_to_spectra, spectra_to_columns_, spectra_to_rows

# Tokens are processed in equal blocks of at most about this many entries. On a CPU, smaller blocks
# stay in the cache, but a transform of 340 tokens takes nearly as long as one of 512. This was the
# fastest size at 768x768, and no slower than others at 4096x4096. A GPU needs large blocks.
_BLOCK, _BLOCK_ON_DEVICE = 2**19, 2**24


def add_product(
    y: torch.Tensor, x: torch.Tensor, coefficients: torch.Tensor, s: SparsityPattern
) -> list[torch.Tensor]:
    """Add x ΔWᵀ to y without forming ΔW.

    Args:
        y: (T, p), changed in place.
        x: (T, q).
        coefficients: α a.
        s: The pattern of S.

    Returns:
        The spectra of x, one tensor per block of tokens.
    """
    matrix, spectra = (s.starts, s.columns, coefficients[s.order]), []
    for block in blocks(x, y.shape[1]):
        spectra.append(rows_to_spectra(x[block]))
        y[block] += spectra_to_rows(sparse_product(*matrix, spectra[-1]))
    return spectra


def add_transposed_product(
    of_x: torch.Tensor | None,
    g: torch.Tensor,
    spectra: Sequence[torch.Tensor],
    samples: Samples | None,
    coefficients: torch.Tensor,
    s: SparsityPattern,
    columns: int,
) -> None:
    """Add g ΔW to ``of_x`` and the entries of Z to ``samples``; either may be None.

    Args:
        of_x: (T, q), changed in place, or None.
        g: Gradient of the output, (T, p).
        spectra: The spectra that :func:`add_product` returned.
        samples: Sums of the entries of Z, or None.
        coefficients: α a.
        s: The pattern of S.
        columns: q.
    """
    matrix = s.starts_t, s.rows, coefficients[s.order_t]
    for i, block in enumerate(blocks(g, columns)):
        of_g = rows_to_spectra(g[block])
        if of_x is not None:
            of_x[block] += spectra_to_rows(sparse_product(*matrix, of_g))
        if samples is not None:
            samples.add(of_g, spectra[i])


def from_tokens(samples: Samples, g: torch.Tensor, x: torch.Tensor) -> Samples:
    """The entries of Z of g and x, added to ``samples``."""
    for block in blocks(g, x.shape[1]):
        samples.add(rows_to_spectra(g[block]), rows_to_spectra(x[block]))
    return samples


def blocks(tokens: torch.Tensor, width: int) -> Iterator[slice]:
    """Split the tokens into blocks that fit in the cache.

    Args:
        tokens: Inputs (T, q) or gradients (T, p).
        width: p for inputs, q for gradients.
    """
    count, other = tokens.shape
    entries = _BLOCK if tokens.device.type == "cpu" else _BLOCK_ON_DEVICE
    most = max(16, entries // max(other, width))
    pieces = max(math.ceil(count / most), 1)
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
        return reader(transform(g, 2), indices, samples.pattern.flat)
    if p < q:
        samples.add(dct_matrix(p, **kind), rows_to_spectra(g))
    else:
        samples.add(rows_to_spectra(g.T), dct_matrix(q, **kind))
    return samples


def gradients(
    sample: Any,
    coefficients: torch.Tensor,
    indices: torch.Tensor,
    shape: tuple[int, int],
    scaling: float,
    rule: Any,
    needs: Sequence[bool],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute ∂L/∂a and ∂L/∂l from the entries of Z; those that are not needed are empty.

    ``sample`` is None if neither is needed.
    """
    of_a, of_l = coefficients.new_empty(0), coefficients.new_empty(0, 2)
    if needs[1]:
        of_a = sample(0, 0) * scaling
    if needs[2]:
        of_l = location_gradient(rule, sample, coefficients * scaling, indices, shape)
    return of_a, of_l


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
        here = {(0, 0)} if needs[1] else set()
        self._directions = sorted(here | (NEIGHBOURS[rule] if needs[2] else set()))
        self._sums: dict[tuple[int, int], torch.Tensor] = {}

    @property
    def count(self) -> int:
        """The number of entries of Z that are computed."""
        return len(self._directions) * self._like.shape[0]

    def add(self, left: torch.Tensor, right: torch.Tensor) -> None:
        """Add the entries of L Rᵀ for L (p×T) and R (q×T)."""
        s = self.pattern
        for by in self._directions:
            found = sample_product(*shifted(s.starts, s.columns, by, self._width), left, right)
            self._sums[by] = self._sums[by] + found if by in self._sums else found

    def __call__(self, down: int, along: int) -> torch.Tensor:
        """The sums at a displacement from each component, in the order of the components."""
        values = torch.zeros_like(self._like)
        if self._sums:  # there were tokens
            values[self.pattern.order] = self._sums[down, along]
        return values


def reader(z: torch.Tensor, indices: torch.Tensor, flat: torch.Tensor) -> Sample:
    """Make a function that takes the entries from the full matrix Z; ``flat`` as in the pattern."""

    def sample(down: int, along: int) -> torch.Tensor:
        if down == along == 0:
            return z.reshape(-1).index_select(0, flat)
        row, column = (indices[:, 0] + down).long(), (indices[:, 1] + along).long()
        return z[row.clamp(0, z.shape[0] - 1), column.clamp(0, z.shape[1] - 1)]

    return sample
