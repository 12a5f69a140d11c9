"""The change that training made, from a stored fine-tune: laws of rounding, and rounding cells.

A checkpoint stores W' = rd(W + Δ) in a format of few bits. The files show d = W' - W, the rounded
change. Δ itself is known to lie in one interval per entry, its rounding cell; a matrix of low rank
inside all of them is nearly the change that was made.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
