"""Orthonormal cosine and Fourier transforms on torch tensors: the numerical core of the package.

Everything acts on the last one or two dimensions, accepts any leading batch dimensions and any
length, odd or even, and is differentiable to any order (each map is linear and orthogonal or
unitary, so the backward pass is the inverse map). NumPy arrays are accepted as well; the result is
always a tensor. Sparse tensors and float8 are refused, and so are integers and complex numbers if
the map is real. Entries that are not finite propagate, as in torch itself.

- :func:`dct`, :func:`idct`, :func:`dct2`, :func:`idct2`: DCT-II and its inverse, orthonormal.
- ``matrices``: the same map as a dense matrix, one shared copy per size, dtype and device.
- ``transposed``: the DCT of rows, written as columns, and back.
- ``real_spectrum``: real orthonormal coordinates; every Fourier-based approximation of a real
  matrix selects some of them.
- ``half_spectrum``: the index bookkeeping behind it, which needs only numpy.

Importing this package does not import torch; using any of these except ``half_spectrum`` does.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
