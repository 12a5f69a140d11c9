"""Execution of many independent computations: seeds, stored results, resumption, workers.

A sweep is a list of cells. :class:`Runner` computes the cells that have no stored result and writes
each result to a :class:`ResultStore` as soon as it is done, one small file per cell. A sweep that
is killed and started again computes only the rest, and its numbers are bit-identical. This package
does not depend on what is computed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
