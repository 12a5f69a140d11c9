"""Orthonormal bases of the p×q matrices, as coordinates in and out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Basis(ABC):
    """An orthonormal basis. One of your own overrides the first two functions.

    Equal bases share one transform where several methods look at one matrix.
    """

    @abstractmethod
    def coordinates(self, matrix: torch.Tensor) -> torch.Tensor:
        """The pq coordinates of a matrix, shape (p·q,)."""

    @abstractmethod
    def matrix(self, coordinates: torch.Tensor, p: int, q: int) -> torch.Tensor:
        """The p×q matrix with these coordinates."""

    def energies(self, matrix: torch.Tensor) -> torch.Tensor:
        """Squared coordinates in a tensor of their own, for sums that no order matters to."""
        return self.coordinates(matrix).square()


@dataclass(frozen=True)
class Entries(Basis):
    """The entries of the matrix themselves."""

    def coordinates(self, matrix: torch.Tensor) -> torch.Tensor:
        """See :class:`Basis`."""
        return matrix.flatten()

    def matrix(self, coordinates: torch.Tensor, p: int, q: int) -> torch.Tensor:
        """See :class:`Basis`."""
        return coordinates.unflatten(0, (p, q))


@dataclass(frozen=True)
class Cosine(Basis):
    """The two-dimensional DCT."""

    def coordinates(self, matrix: torch.Tensor) -> torch.Tensor:
        """See :class:`Basis`."""
        from loca_theory.transforms import dct2

        return dct2(matrix).flatten()

    def matrix(self, coordinates: torch.Tensor, p: int, q: int) -> torch.Tensor:
        """See :class:`Basis`."""
        from loca_theory.transforms import idct2

        return idct2(coordinates.unflatten(0, (p, q)))

    def energies(self, matrix: torch.Tensor) -> torch.Tensor:
        """See :class:`Basis`; in the memory of the coordinates."""
        return self.coordinates(matrix).square_()


@dataclass(frozen=True)
class Fourier(Basis):
    """The real coordinates of the DFT: :class:`~loca_theory.transforms.RealSpectrum`.

    First the s self-conjugate entries, then the m real and the m imaginary parts of the pairs.
    """

    def coordinates(self, matrix: torch.Tensor) -> torch.Tensor:
        """See :class:`Basis`."""
        from loca_theory.transforms import RealSpectrum

        return RealSpectrum(*matrix.shape).forward(matrix)

    def matrix(self, coordinates: torch.Tensor, p: int, q: int) -> torch.Tensor:
        """See :class:`Basis`."""
        from loca_theory.transforms import RealSpectrum

        return RealSpectrum(p, q).inverse(coordinates)

    def energies(self, matrix: torch.Tensor) -> torch.Tensor:
        """See :class:`Basis`; in order by kind only, and without a table of the pairs."""
        from loca_theory.transforms import RealSpectrum

        return RealSpectrum(*matrix.shape).coordinate_energies(matrix)


ENTRIES, COSINE, FOURIER = Entries(), Cosine(), Fourier()
