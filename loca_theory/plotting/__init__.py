"""Figures: ``plot`` draws a result, ``report`` makes its HTML page, ``figure`` draws the paper's.

All figures share one style and do not use pyplot; the same data gives the same bytes. Importing
this package imports neither pandas nor matplotlib; using any of its names does.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
