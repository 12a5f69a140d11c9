"""Orthonormal bases of the p×q matrices: maps from a matrix to its coordinates and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import torch


class Basis(ABC):
    """An orthonormal basis; your own overrides :meth:`coordinates` and :meth:`matrix`.

    Methods whose bases compare equal share one transform of a matrix.

    Attributes:
        atom_singular_values: Nonzero singular values of an atom, that is, of the matrix of unit
            energy with a single nonzero coordinate; those of nearly all atoms if a few differ. None
            if they are not known. See :func:`~loca_theory.expressivity.spectral_error`.
    """

    atom_singular_values: ClassVar[tuple[float, ...] | None] = None

    @abstractmethod
    def coordinates(self, matrix: torch.Tensor) -> torch.Tensor:
        """The pq coordinates of a matrix, shape (p·q,)."""

    @abstractmethod
    def matrix(self, coordinates: torch.Tensor, p: int, q: int) -> torch.Tensor:
        """The p×q matrix with these coordinates."""

    def energies(self, matrix: torch.Tensor) -> torch.Tensor:
        """Squared coordinates in a new tensor, for sums that do not depend on their order."""
        return self.coordinates(matrix).square()


@dataclass(frozen=True)
class Entries(Basis):
    """The entries of the matrix themselves."""

    atom_singular_values = (1.0,)

    def coordinates(self, matrix: torch.Tensor) -> torch.Tensor:
        """See :class:`Basis`."""
        return matrix.flatten()

    def matrix(self, coordinates: torch.Tensor, p: int, q: int) -> torch.Tensor:
        """See :class:`Basis`."""
        return coordinates.unflatten(0, (p, q))


@dataclass(frozen=True)
class Cosine(Basis):
    """The two-dimensional DCT."""

    atom_singular_values = (1.0,)

    def coordinates(self, matrix: torch.Tensor) -> torch.Tensor:
        """See :class:`Basis`."""
        from loca_theory.transforms import dct2

        return dct2(matrix).flatten()

    def matrix(self, coordinates: torch.Tensor, p: int, q: int) -> torch.Tensor:
        """See :class:`Basis`."""
        from loca_theory.transforms import idct2

        return idct2(coordinates.unflatten(0, (p, q)))

    def energies(self, matrix: torch.Tensor) -> torch.Tensor:
        """See :class:`Basis`; the squares overwrite the coordinates."""
        return self.coordinates(matrix).square_()


@dataclass(frozen=True)
class Fourier(Basis):
    """The real coordinates of the DFT: :class:`~loca_theory.transforms.RealSpectrum`.

    First the s self-conjugate entries, then the m real and the m imaginary parts of the pairs.
    """

    # √2 cos(θ + φ) = √2 (cos θ cos φ − sin θ sin φ) has rank two unless a frequency is 0 or 1/2.
    atom_singular_values = (2**-0.5, 2**-0.5)

    def coordinates(self, matrix: torch.Tensor) -> torch.Tensor:
        """See :class:`Basis`."""
        from loca_theory.transforms import RealSpectrum

        return RealSpectrum(*matrix.shape).forward(matrix)

    def matrix(self, coordinates: torch.Tensor, p: int, q: int) -> torch.Tensor:
        """See :class:`Basis`."""
        from loca_theory.transforms import RealSpectrum

        return RealSpectrum(p, q).inverse(coordinates)

    def energies(self, matrix: torch.Tensor) -> torch.Tensor:
        """See :class:`Basis`; ordered only by kind, which needs no table of the pairs."""
        from loca_theory.transforms import RealSpectrum

        return RealSpectrum(*matrix.shape).coordinate_energies(matrix)


ENTRIES, COSINE, FOURIER = Entries(), Cosine(), Fourier()
