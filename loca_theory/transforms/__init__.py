"""Orthonormal cosine and Fourier transforms on torch tensors: the numerical core of the package.

Everything acts on the last one or two dimensions, accepts any leading batch dimensions and any
length, odd or even, and is differentiable to any order (each map is linear and orthogonal or
unitary, so the backward pass is the inverse map). NumPy arrays are accepted as well; the result is
always a tensor. Sparse tensors and float8 are refused, and so are integers and complex numbers if
the map is real. Entries that are not finite propagate, as in torch itself.

- :func:`dct`, :func:`idct`, :func:`dct2`, :func:`idct2`: DCT-II and its inverse, orthonormal.
- :func:`dct_matrix`: the same map as a dense matrix, one shared copy per size, dtype and device.
- :func:`idct2_sparse`: the inverse of a spectrum with few occupied locations.
- :func:`rows_to_spectra`, :func:`spectra_to_rows`: the DCT of rows, written as columns, and back.
- :func:`dft2`, :func:`idft2`: the unitary DFT of the paper's proofs.
- :class:`RealSpectrum`: real orthonormal coordinates; every Fourier-based approximation of a real
  matrix selects some of them.
- :class:`HalfSpectrum`: the index bookkeeping behind it, which needs only numpy.

Importing this package does not import torch; using any of these except :class:`HalfSpectrum` does.
"""

from typing import TYPE_CHECKING

from loca_theory._lazy import lazy_exports
from loca_theory.transforms.half_spectrum import HalfSpectrum

if TYPE_CHECKING:
    from loca_theory.transforms.cosine import Method, dct, dct2, idct, idct2
    from loca_theory.transforms.devices import resolve_device
    from loca_theory.transforms.dft import dft2, idft2
    from loca_theory.transforms.matrices import dct_matrix
    from loca_theory.transforms.real_spectrum import RealSpectrum
    from loca_theory.transforms.sparse import idct2_sparse
    from loca_theory.transforms.transposed import rows_to_spectra, spectra_to_rows

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
    "resolve_device",
    "rows_to_spectra",
    "spectra_to_rows",
]

# A submodule must not have the name of an export: importing it would shadow the export.
__getattr__ = lazy_exports(
    __name__,
    {
        "Method": "cosine",
        "RealSpectrum": "real_spectrum",
        "dct": "cosine",
        "dct2": "cosine",
        "dct_matrix": "matrices",
        "dft2": "dft",
        "idct": "cosine",
        "idct2": "cosine",
        "idct2_sparse": "sparse",
        "idft2": "dft",
        "resolve_device": "devices",
        "rows_to_spectra": "transposed",
        "spectra_to_rows": "transposed",
    },
)
