"""Real orthonormal coordinates of the DFT of a real matrix."""

from __future__ import annotations

import math

import torch

from loca_theory.transforms.half_spectrum import HalfSpectrum, own_indices


class RealSpectrum:
    r"""The orthogonal map from a real p×q matrix to its real Fourier coordinates.

    With the unitary DFT :math:`F_{uv} = (pq)^{-1/2} \sum_{xy} W_{xy} e^{-2\pi i(ux/p + vy/q)}`,
    its s self-conjugate entries and its m pairs
    (:class:`~loca_theory.transforms.half_spectrum.HalfSpectrum`), the coordinate vector is

    .. math:: \bigl(F_{\text{self-conjugate}},\;
              \sqrt2\,\mathrm{Re}\,F_{\text{representatives}},\;
              \sqrt2\,\mathrm{Im}\,F_{\text{representatives}}\bigr) \in \mathbb R^{s+m+m},

    an isometry of :math:`\mathbb R^{p\times q}`. The appendix writes the factor √2 as the weight 2
    in F^H, F^R and F^I. Methods that retain locations (F1, F2) or single real or imaginary
    coefficients (F3) retain coordinates of this one orthonormal basis; without the √2, the largest
    coefficients would not be the best ones.

    The matrices are float32 or float64.

    Source: the reference matrix R and the matrices F^H, F^R, F^I of the paper's appendix (proof of
    Theorem 1), completed to a basis.
    """

    def __init__(self, p: int, q: int) -> None:
        self.half = HalfSpectrum(p, q)
        self._rows, self._columns = own_indices(p), own_indices(q)

    def forward(self, matrix: torch.Tensor) -> torch.Tensor:
        """Coordinates, shape (..., p·q), of real matrices, shape (..., p, q)."""
        spectrum = torch.fft.rfft2(matrix, norm="ortho")
        self_conjugate = spectrum[..., self._rows, self._columns].real.flatten(-2)
        pairs = math.sqrt(2.0) * spectrum[..., self._is_representative(matrix)]
        return torch.cat([self_conjugate, pairs.real, pairs.imag], dim=-1)

    def coordinate_energies(self, matrix: torch.Tensor) -> torch.Tensor:
        """Squares of the coordinates of one matrix, by kind and otherwise in no particular order.

        The s self-conjugate ones come first, then the m real and the m imaginary parts of the
        pairs, these two in the same order. Because the order is otherwise arbitrary, at most one
        copy of the matrix is made besides its spectrum.
        """
        p, q = self.half.p, self.half.q
        s, m = self.half.self_conjugate_count, self.half.pair_count
        spectrum = torch.fft.rfft2(matrix.detach(), norm="ortho")
        # The other columns hold one member of each pair; these hold both.
        mirrored = spectrum[:, self._columns]
        inner, outer = spectrum[:, 1 : (q + 1) // 2], mirrored[1 : (p + 1) // 2]
        energies = matrix.new_empty(p * q)
        energies[:s] = mirrored[self._rows].real.flatten().square()
        for start, part in ((s, torch.real), (s + m, torch.imag)):
            stop = start + inner.numel()
            torch.square(part(inner), out=energies[start:stop].view(inner.shape))
            energies[stop : start + m] = part(outer).flatten().square()
        energies[s:] *= 2
        return energies

    def inverse(self, coordinates: torch.Tensor) -> torch.Tensor:
        """Real matrices, shape (..., p, q), from coordinates, shape (..., p·q)."""
        p, q = self.half.p, self.half.q
        s, m = self.half.self_conjugate_count, self.half.pair_count
        self_conjugate, real, imaginary = coordinates.split([s, m, m], dim=-1)
        pairs = torch.complex(real, imaginary) / math.sqrt(2.0)
        spectrum = pairs.new_zeros((*pairs.shape[:-1], p, q // 2 + 1))
        entries = spectrum[..., self._rows, self._columns]
        entries.copy_(self_conjugate.unflatten(-1, entries.shape[-2:]))
        spectrum[..., self._is_representative(coordinates)] = pairs
        # Columns that are their own mirror image hold both members of their pairs.
        first = spectrum[..., 1 : (p + 1) // 2, self._columns]
        spectrum[..., p // 2 + 1 :, self._columns] = first.flip(-2).conj()
        return torch.fft.irfft2(spectrum, s=(p, q), norm="ortho")

    def merge_pairs(self, energies: torch.Tensor) -> torch.Tensor:
        r"""Energy of each location, :math:`F^2` or :math:`2|F|^2`, from those of the coordinates.

        Returns:
            The appendix's F^H, shape (..., s + m): energies of self-conjugate entries, then of
            pairs (real part plus imaginary part).
        """
        s, m = self.half.self_conjugate_count, self.half.pair_count
        self_conjugate, real, imaginary = energies.split([s, m, m], dim=-1)
        return torch.cat([self_conjugate, real + imaginary], dim=-1)

    def _is_representative(self, values: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(self.half.is_representative).to(values.device)
