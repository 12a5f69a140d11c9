"""Statistics of weight increments: tests of normality, and spectra compared with independence.

Functions of the entries of a matrix (counts, eigenvalues) accept tensors and NumPy arrays of any
real type and size, and import torch on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
