"""Theory verification and numerical simulation for location-aware cosine adaptation (LoCA).

The subpackages, from the ground up (imports point only downwards):

- :mod:`loca_theory.transforms`: DCT, DFT and the real half-spectrum coordinates, on torch.
- :mod:`loca_theory.sweeps`: points, seeds, result store, resumable local execution.
- :mod:`loca_theory.locations`: where the components of a sparse spectrum move, on torch.
- :mod:`loca_theory.expressivity`: what each adapter can reconstruct of a Gaussian matrix.
- :mod:`loca_theory.dependence`: the same when entries are not independent.
- :mod:`loca_theory.claims`: the ledger of the paper's claims, and the checks that decide them.
- :mod:`loca_theory.plotting`: figures, drawn from stored results only.
- :mod:`loca_theory.cli`: the ``loca-theory`` command.

Nothing is imported here, so that the exact curves never pay for importing torch.
"""

from loca_theory._version import __version__
from loca_theory.errors import InvalidArgumentError, LocaTheoryError, ResourceError

__all__ = ["InvalidArgumentError", "LocaTheoryError", "ResourceError", "__version__"]
