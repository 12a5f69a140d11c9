"""Orthonormal cosine and Fourier transforms on torch tensors: the numerical core of the package.

Everything acts on the last one or two dimensions, accepts any leading batch dimensions and any
length, odd or even, and is differentiable to any order (each map is linear and orthogonal or
unitary, so the backward pass is the inverse map).

- :func:`dct`, :func:`idct`, :func:`dct2`, :func:`idct2`: DCT-II and its inverse, orthonormal.
- :func:`dct_matrix`: the same map as a dense matrix, one shared copy a size, dtype and device.
- :func:`idct2_sparse`: the inverse of a spectrum with few occupied places.
- :func:`dft2`, :func:`idft2`: the unitary DFT of the paper's proofs.
- :class:`RealSpectrum`: the real orthonormal coordinates in which every Fourier-based
  approximation of a real matrix is a selection.
"""

from loca_theory.transforms.dct import Method, dct, dct2, idct, idct2
from loca_theory.transforms.dft import dft2, idft2
from loca_theory.transforms.half_spectrum import HalfSpectrum
from loca_theory.transforms.matrices import dct_matrix
from loca_theory.transforms.real_spectrum import RealSpectrum
from loca_theory.transforms.sparse import idct2_sparse

__all__ = [
    "HalfSpectrum",
    "Method",
    "RealSpectrum",
    "dct",
    "dct2",
    "dct_matrix",
    "dft2",
    "idct",
    "idct2",
    "idct2_sparse",
    "idft2",
]
