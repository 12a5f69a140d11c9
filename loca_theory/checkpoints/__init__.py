"""Real checkpoints: open a base and a fine-tuned one, and analyse their increments.

Needs torch, which is imported on first use.
"""

from typing import TYPE_CHECKING

from loca_theory._lazy import lazy_exports

if TYPE_CHECKING:
    from loca_theory.checkpoints.matrix import MatrixAnalysis, Settings, analyse_matrix
    from loca_theory.checkpoints.pairs import CheckpointPair, Selection, Skipped, open_pair
    from loca_theory.checkpoints.sources import Checkpoint, DamagedError, Entry, open_checkpoint

_EXPORTS = {
    "Checkpoint": "sources",
    "CheckpointPair": "pairs",
    "DamagedError": "sources",
    "Entry": "sources",
    "MatrixAnalysis": "matrix",
    "Selection": "pairs",
    "Settings": "matrix",
    "Skipped": "pairs",
    "analyse_matrix": "matrix",
    "open_checkpoint": "sources",
    "open_pair": "pairs",
}

__all__ = [
    "Checkpoint",
    "CheckpointPair",
    "DamagedError",
    "Entry",
    "MatrixAnalysis",
    "Selection",
    "Settings",
    "Skipped",
    "analyse_matrix",
    "open_checkpoint",
    "open_pair",
]

__getattr__ = lazy_exports(__name__, _EXPORTS)
