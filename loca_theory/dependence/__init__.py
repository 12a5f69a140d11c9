"""Reconstruction and detection when the entries of a weight change are not independent.

:func:`correlate` needs torch, which is imported on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
