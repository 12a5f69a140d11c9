"""Real orthonormal coordinates of the DFT of a real matrix."""

from __future__ import annotations

import math
from functools import lru_cache

import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms.half_spectrum import HalfSpectrum
from loca_theory.transforms.inputs import TensorLike, real_tensor, widened


class RealSpectrum:
    r"""The orthogonal map from a real p×q matrix to its real Fourier coordinates.

    With F the unitary DFT (:func:`~loca_theory.transforms.dft.dft2`), s self-conjugate entries and
    m pairs (:class:`~loca_theory.transforms.half_spectrum.HalfSpectrum`), the coordinate vector is

    .. math:: \bigl(F_{\text{self-conjugate}},\;
              \sqrt2\,\mathrm{Re}\,F_{\text{representatives}},\;
              \sqrt2\,\mathrm{Im}\,F_{\text{representatives}}\bigr) \in \mathbb R^{s+m+m},

    an isometry of :math:`\mathbb R^{p\times q}`. The appendix writes the factor √2 as the weight 2
    in F^H, F^R and F^I. Methods that retain locations (F1, F2) or single real or imaginary
    coefficients (F3) retain coordinates of this one orthonormal basis; without the √2, the largest
    coefficients would not be the best ones.

    Every method takes tensors or NumPy arrays and returns tensors of the same type; float16 and
    bfloat16 are computed in float32 and cast back.

    Source: the reference matrix R and the matrices F^H, F^R, F^I of the paper's appendix (proof of
    Theorem 1), completed to a basis.
    """

    def __init__(self, p: int, q: int) -> None:
        self.half = HalfSpectrum(p, q)

    @property
    def shape(self) -> tuple[int, int]:
        """(p, q)."""
        return self.half.p, self.half.q

    def forward(self, matrix: TensorLike) -> torch.Tensor:
        """Coordinates, shape (..., p·q), of real matrices, shape (..., p, q)."""
        matrix = real_tensor(matrix, "matrix")
        if matrix.shape[-2:] != self.shape:
            msg = f"matrix must be of shape (..., {self.half.p}, {self.half.q}), not "
            raise InvalidArgumentError(msg + f"{tuple(matrix.shape)}")
        if matrix.numel() == 0:  # torch's FFTs refuse empty batches
            return matrix.flatten(-2)
        s = self.half.self_conjugate_count
        # All entries that are retained lie in the columns 0 .. q//2 that rfft2 computes.
        spectrum = torch.fft.rfft2(widened(matrix), norm="ortho").flatten(-2)
        retained = spectrum.index_select(-1, _retained_indices(self.half, matrix.device))
        parts = torch.view_as_real(retained)
        pairs = math.sqrt(2.0) * parts[..., s:, :]
        found = torch.cat([parts[..., :s, 0], pairs[..., 0], pairs[..., 1]], dim=-1)
        return found.to(matrix.dtype)

    def coordinate_energies(self, matrix: TensorLike) -> torch.Tensor:
        """Squares of the coordinates of one matrix, by kind and otherwise in no particular order.

        The s self-conjugate ones come first, then the m real and the m imaginary parts of the
        pairs, these two in the same order. Because the order is otherwise arbitrary, no table of
        locations is needed, and at most one copy of the matrix besides its spectrum.

        Returns:
            Shape (p·q,).
        """
        matrix = real_tensor(matrix, "matrix")
        if matrix.shape != self.shape:
            msg = f"matrix must be of shape {self.shape}, not {tuple(matrix.shape)}"
            raise InvalidArgumentError(msg)
        p, q = self.shape
        s, m = self.half.self_conjugate_count, self.half.pair_count
        spectrum = torch.fft.rfft2(widened(matrix.detach()), norm="ortho")
        # Columns 0 and q/2 hold both members of their pairs, and the self-conjugate entries.
        mirrored = spectrum[:, :: q // 2] if q % 2 == 0 else spectrum[:, :1]
        inner, outer = spectrum[:, 1 : (q + 1) // 2], mirrored[1 : (p + 1) // 2]
        energies = spectrum.new_empty(p * q, dtype=spectrum.real.dtype)
        own = mirrored[:: p // 2] if p % 2 == 0 else mirrored[:1]
        energies[:s] = own.real.flatten().square()
        for start, part in ((s, torch.real), (s + m, torch.imag)):
            stop = start + inner.numel()
            torch.square(part(inner), out=energies[start:stop].view(inner.shape))
            energies[stop : start + m] = part(outer).flatten().square()
        energies[s:] *= 2
        return energies.to(matrix.dtype)

    def inverse(self, coordinates: TensorLike) -> torch.Tensor:
        """Real matrices, shape (..., p, q), from coordinates, shape (..., p·q)."""
        given = self._coordinates(coordinates)
        coordinates = widened(given)
        p, q = self.shape
        if coordinates.numel() == 0:
            return given.unflatten(-1, (p, q))
        s, m = self.half.self_conjugate_count, self.half.pair_count
        own, real, imaginary = coordinates.split([s, m, m], dim=-1)
        pairs = torch.complex(real, imaginary) / math.sqrt(2.0)
        retained = torch.cat([torch.complex(own, torch.zeros_like(own)), pairs], dim=-1)
        # In columns that are their own mirror image, the half array holds both members of a pair.
        members, source = _mirrored_members(self.half, coordinates.device)
        values = torch.cat([retained, retained.index_select(-1, source).conj()], dim=-1)
        indices = torch.cat([_retained_indices(self.half, coordinates.device), members])
        width = q // 2 + 1
        flat = values.new_zeros((*coordinates.shape[:-1], p * width))
        spectrum = flat.index_copy(-1, indices, values).unflatten(-1, (p, width))
        return torch.fft.irfft2(spectrum, s=(p, q), norm="ortho").to(given.dtype)

    def location_energies(self, coordinates: TensorLike) -> torch.Tensor:
        r"""Energy of each location: :math:`F^2` or :math:`2|F|^2`, the appendix's F^H.

        Returns:
            Shape (..., s + m), self-conjugate entries first. Each row sums to ‖W‖².
        """
        return self.merge_pairs(self._coordinates(coordinates).square())

    def merge_pairs(self, energies: torch.Tensor) -> torch.Tensor:
        """Energy of each location from the energies of the coordinates.

        Returns:
            Shape (..., s + m): energies of self-conjugate entries, then of pairs (real part plus
            imaginary part).
        """
        s, m = self.half.self_conjugate_count, self.half.pair_count
        own, real, imaginary = energies.split([s, m, m], dim=-1)
        return torch.cat([own, real + imaginary], dim=-1)

    def _coordinates(self, value: TensorLike) -> torch.Tensor:
        coordinates = real_tensor(value, "coordinates")
        size = self.half.p * self.half.q
        if coordinates.shape[-1:] != (size,):
            msg = f"coordinates must be of shape (..., {size}), not {tuple(coordinates.shape)}"
            raise InvalidArgumentError(msg)
        return coordinates


# Tensors that were created in inference mode could not be used in a graph later.
@lru_cache(maxsize=16)
@torch.inference_mode(mode=False)
def _retained_indices(half: HalfSpectrum, device: torch.device) -> torch.Tensor:
    """Flat indices into the p × (q//2+1) half array: self-conjugate entries, representatives."""
    width = half.q // 2 + 1
    own = half.self_conjugate[:, 0] * width + half.self_conjugate[:, 1]
    pairs = half.representatives[:, 0] * width + half.representatives[:, 1]
    return torch.cat([torch.from_numpy(own), torch.from_numpy(pairs)]).to(device)


@lru_cache(maxsize=16)
@torch.inference_mode(mode=False)
def _mirrored_members(
    half: HalfSpectrum, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Second members of pairs in the half array: their flat indices, and the pairs' indices."""
    i, j = half.representatives[:, 0], half.representatives[:, 1]
    chosen = (j == -j % half.q).nonzero()[0]
    indices = (-i[chosen] % half.p) * (half.q // 2 + 1) + j[chosen]
    source = chosen + half.self_conjugate_count
    return torch.from_numpy(indices).to(device), torch.from_numpy(source).to(device)
