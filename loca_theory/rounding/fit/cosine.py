r"""The increment of N cosine components that lies nearest to the cells of all entries.

As :mod:`~loca_theory.rounding.fit.low_rank`, with ΔW = Cᵀ S D and N coefficients instead of
the rank. Their locations are searched by turns with their values: the N largest coefficients of
c + DCT(gap)/f are the next locations, where the gap leads from the entries to their cells, and f is
the fraction of entries outside. The transform is orthonormal, so that this is a step of projected
Newton descent with the mean curvature f (iterative hard thresholding).

Source: T. Blumensath and M. E. Davies, Appl. Comput. Harmon. Anal. 27 (2009), for the thresholding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from loca_theory._arguments import whole_number
from loca_theory.errors import InvalidArgumentError
from loca_theory.rounding.cells import RoundingCells
from loca_theory.rounding.fit.descent import Evaluation, minimise
from loca_theory.rounding.fit.low_rank import ENOUGH
from loca_theory.transforms import dct2, idct2

# Turns at most, and steps of descent in each but the last one.
_TURNS, _STEPS, _LAST_STEPS = 12, 8, 60


@dataclass(frozen=True)
class CosineFit:
    """An increment Cᵀ S D near to the cells.

    Attributes:
        coefficients: The non-zero entries of S, shape (N,).
        indices: Their rows and columns, shape (N, 2).
        shape: p and q.
        inside: Fraction of the entries of the increment that lie in their cells.
    """

    coefficients: torch.Tensor
    indices: torch.Tensor
    shape: tuple[int, int]
    inside: float

    def increment(self) -> torch.Tensor:
        """Cᵀ S D, shape (p, q)."""
        spectrum = self.coefficients.new_zeros(self.shape)
        spectrum[self.indices[:, 0], self.indices[:, 1]] = self.coefficients
        return idct2(spectrum)


def fit_cosines(
    change: torch.Tensor, cells: RoundingCells, components: int, *, turns: int = _TURNS
) -> CosineFit:
    """Fit an increment of N cosine components to the cells of a pair of matrices.

    Args:
        change: d = W' - W as stored, float32, shape (p, q); 0 where a cell is infinite.
        cells: The cells, float32. An entry whose cell is infinite has no influence.
        components: N, from 1 to p·q.
        turns: Turns of the search at most; 0 for the N largest coefficients of d.

    Returns:
        Coefficients and their locations.

    Raises:
        InvalidArgumentError: N is not between 1 and p·q.
    """
    p, q = change.shape
    if not 1 <= whole_number("components", components) <= p * q:
        raise InvalidArgumentError(
            f"components must be from 1 to {p * q} for a matrix of shape {(p, q)}, not {components}"
        )
    spectrum = dct2(change).reshape(-1)
    chosen = _largest(spectrum, components)
    values = spectrum[chosen]
    narrow = cells.shrunk(2 * components) if turns else cells
    for turn in range(turns):
        distance = CosineDistance(narrow, chosen)

        def is_done(x: torch.Tensor, distance: CosineDistance = distance) -> bool:
            return bool(cells.contain(distance.increment(x)).double().mean() > 1 - ENOUGH)

        steps = _STEPS if turn < turns - 1 else _LAST_STEPS
        values = minimise(distance.evaluate, values, steps=steps, is_done=is_done)
        if is_done(values):
            break
        gap = distance.gap(values)
        outside = max(1, int(gap.count_nonzero())) / gap.numel()
        proposed = dct2(gap).reshape(-1).div_(outside)
        proposed[chosen] += values
        chosen = _largest(proposed, components)
        values = proposed[chosen]
    fit = CosineDistance(cells, chosen).increment(values)
    inside = float(cells.contain(fit).double().mean())
    indices = torch.stack([chosen // q, chosen % q], dim=1)
    return CosineFit(values, indices, (p, q), inside)


def _largest(spectrum: torch.Tensor, count: int) -> torch.Tensor:
    """Flat indices of the largest coefficients, in order."""
    return spectrum.abs().topk(count, sorted=False).indices.sort().values


class CosineDistance:
    """Half the squared distance to cells, as a function of the coefficients at some locations."""

    def __init__(self, cells: RoundingCells, chosen: torch.Tensor) -> None:
        self._cells, self._chosen = cells, chosen

    def increment(self, x: torch.Tensor) -> torch.Tensor:
        """The increment of these coefficients."""
        spectrum = x.new_zeros(self._cells.low.shape)
        spectrum.view(-1)[self._chosen] = x
        return idct2(spectrum)

    def gap(self, x: torch.Tensor) -> torch.Tensor:
        """How far each entry of it is from its cell."""
        increment = self.increment(x)
        return self._cells.nearest(increment).sub_(increment)

    def evaluate(self, x: torch.Tensor) -> Evaluation:
        """The distance and its gradient."""
        gap = self.gap(x)
        outside = int(gap.count_nonzero()) / gap.numel()
        value = float(torch.dot(gap.reshape(-1), gap.reshape(-1))) / 2
        return Evaluation(value, -dct2(gap).reshape(-1)[self._chosen], outside)
