"""Orthonormal bases of the p×q matrices: maps from a matrix to its coordinates and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from torch import Tensor


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
    def coordinates(self, matrix: Tensor) -> Tensor:
        """The pq coordinates of a matrix, shape (p·q,)."""

    @abstractmethod
    def matrix(self, coordinates: Tensor, p: int, q: int) -> Tensor:
        """The p×q matrix with these coordinates."""

    def energies(self, matrix: Tensor) -> Tensor:
        """Squared coordinates in a new tensor, for sums that do not depend on their order."""
        return self.coordinates(matrix).square()


class SelfInverse(Basis):
    """A basis whose map is its own inverse."""

    def matrix(self, coordinates: Tensor, p: int, q: int) -> Tensor:
        """See :class:`Basis`."""
        return self.coordinates(coordinates.unflatten(0, (p, q))).unflatten(0, (p, q))


@dataclass(frozen=True)
class Entries(SelfInverse):
    """The entries of the matrix themselves."""

    atom_singular_values = (1.0,)

    def coordinates(self, matrix: Tensor) -> Tensor:
        """See :class:`Basis`."""
        return matrix.flatten()


@dataclass(frozen=True)
class Cosine(Basis):
    """The two-dimensional DCT."""

    atom_singular_values = (1.0,)

    def coordinates(self, matrix: Tensor) -> Tensor:
        """See :class:`Basis`."""
        from loca_theory.transforms import dct2

        return dct2(matrix).flatten()

    def matrix(self, coordinates: Tensor, p: int, q: int) -> Tensor:
        """See :class:`Basis`."""
        from loca_theory.transforms import idct2

        return idct2(coordinates.unflatten(0, (p, q)))

    def energies(self, matrix: Tensor) -> Tensor:
        """See :class:`Basis`; the squares overwrite the coordinates."""
        return self.coordinates(matrix).square_()


@dataclass(frozen=True)
class Fourier(Basis):
    """The real coordinates of the DFT: :class:`~loca_theory.transforms.real_spectrum.RealSpectrum`.

    First the s self-conjugate entries, then the m real and the m imaginary parts of the pairs.
    """

    # √2 cos(θ + φ) = √2 (cos θ cos φ − sin θ sin φ) has rank two unless a frequency is 0 or 1/2.
    atom_singular_values = (2**-0.5, 2**-0.5)

    def coordinates(self, matrix: Tensor) -> Tensor:
        """See :class:`Basis`."""
        from loca_theory.transforms.real_spectrum import RealSpectrum

        return RealSpectrum(*matrix.shape).forward(matrix)

    def matrix(self, coordinates: Tensor, p: int, q: int) -> Tensor:
        """See :class:`Basis`."""
        from loca_theory.transforms.real_spectrum import RealSpectrum

        return RealSpectrum(p, q).inverse(coordinates)

    def energies(self, matrix: Tensor) -> Tensor:
        """See :class:`Basis`; ordered only by kind, which needs no table of the pairs."""
        from loca_theory.transforms.real_spectrum import RealSpectrum

        return RealSpectrum(*matrix.shape).coordinate_energies(matrix)


@dataclass(frozen=True)
class Hartley(SelfInverse):
    r"""The two-dimensional discrete Hartley transform.

    :math:`H_{uv} = \sum_{xy} W_{xy} (\cos + \sin)(2\pi(ux/p + vy/q)) / \sqrt{pq}`.
    """

    atom_singular_values = (2**-0.5, 2**-0.5)

    def coordinates(self, matrix: Tensor) -> Tensor:
        """See :class:`Basis`."""
        import torch

        spectrum = torch.fft.fft2(matrix, norm="ortho")
        return (spectrum.real - spectrum.imag).flatten()


@dataclass(frozen=True)
class Hadamard(SelfInverse):
    """The Walsh–Hadamard transform along the rows.

    With q = 2^k·m, the transform is that of Sylvester's matrix of size 2^k on each of m consecutive
    parts of a row; for odd q the coordinates are the entries.
    """

    atom_singular_values = (1.0,)

    def coordinates(self, matrix: Tensor) -> Tensor:
        """See :class:`Basis`."""
        import torch

        q = matrix.shape[1]
        width, power = 1, q & -q
        while width < power:
            pairs = matrix.unflatten(1, (-1, 2, width))
            first, second = pairs[:, :, 0], pairs[:, :, 1]
            matrix = torch.stack([first + second, first - second], dim=2).flatten(1)
            width *= 2
        return (matrix / power**0.5).flatten()


@dataclass(frozen=True)
class Haar(Basis):
    """One level of the Haar wavelet along rows and columns.

    Along an axis, first the sums and then the differences of the pairs of neighbours, over √2; a
    last entry without a neighbour is its own sum.
    """

    atom_singular_values = (1.0,)

    def coordinates(self, matrix: Tensor) -> Tensor:
        """See :class:`Basis`."""
        return _haar(_haar(matrix).T).T.flatten()

    def matrix(self, coordinates: Tensor, p: int, q: int) -> Tensor:
        """See :class:`Basis`."""
        return _inverse_haar(_inverse_haar(coordinates.unflatten(0, (p, q))).T).T


def _haar(matrix: Tensor) -> Tensor:
    import torch

    q = matrix.shape[1]
    even, odd = matrix[:, : q - q % 2 : 2], matrix[:, 1::2]
    return torch.cat([(even + odd) / 2**0.5, matrix[:, q - q % 2 :], (even - odd) / 2**0.5], dim=1)


def _inverse_haar(matrix: Tensor) -> Tensor:
    import torch

    q = matrix.shape[1]
    sums, last, differences = matrix.split([q // 2, q % 2, q // 2], dim=1)
    pairs = torch.stack([sums + differences, sums - differences], dim=2) / 2**0.5
    return torch.cat([pairs.flatten(1), last], dim=1)


ENTRIES, COSINE, FOURIER = Entries(), Cosine(), Fourier()
HARTLEY, HADAMARD, HAAR = Hartley(), Hadamard(), Haar()
