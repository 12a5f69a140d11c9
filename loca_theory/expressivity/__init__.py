"""How well low-rank, Fourier and cosine adapters can reconstruct a Gaussian matrix.

Every approximation is a :class:`Method`. Exact and asymptotic errors and the reduced sampler need
only NumPy and SciPy. The functions that take a matrix, such as :func:`approximate` and
:func:`retained_energies`, import torch on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
