"""Open a base and a fine-tuned checkpoint and analyse their increments.

Needs torch, which is imported on first use.
"""

from typing import TYPE_CHECKING

from loca_theory._lazy import lazy_exports

if TYPE_CHECKING:
    from loca_theory.checkpoints.adapter_folder import check_folder
    from loca_theory.checkpoints.analysis import Analysis, analyze, version
    from loca_theory.checkpoints.checkpoint import Checkpoint, DamagedError, Entry
    from loca_theory.checkpoints.demo import demo_pair
    from loca_theory.checkpoints.extraction import ExtractedMatrix, Extraction, extract
    from loca_theory.checkpoints.matrix import ANALYSED
    from loca_theory.checkpoints.pairs import CheckpointPair, open_pair
    from loca_theory.checkpoints.rows import FigureData, Matrix, MatrixError, Skipped
    from loca_theory.checkpoints.selection import Selection
    from loca_theory.checkpoints.sources import open_checkpoint
    from loca_theory.checkpoints.summary import MeanError, Summary, Totals

_EXPORTS = {
    "ANALYSED": "matrix",
    "Analysis": "analysis",
    "Checkpoint": "checkpoint",
    "CheckpointPair": "pairs",
    "DamagedError": "checkpoint",
    "Entry": "checkpoint",
    "ExtractedMatrix": "extraction",
    "Extraction": "extraction",
    "Matrix": "rows",
    "MatrixError": "rows",
    "MeanError": "summary",
    "Selection": "selection",
    "FigureData": "rows",
    "Skipped": "rows",
    "Summary": "summary",
    "Totals": "summary",
    "analyze": "analysis",
    "check_folder": "adapter_folder",
    "demo_pair": "demo",
    "extract": "extraction",
    "open_checkpoint": "sources",
    "open_pair": "pairs",
    "version": "analysis",
}

__all__ = [
    "ANALYSED",
    "Analysis",
    "Checkpoint",
    "CheckpointPair",
    "DamagedError",
    "Entry",
    "ExtractedMatrix",
    "Extraction",
    "FigureData",
    "Matrix",
    "MatrixError",
    "MeanError",
    "Selection",
    "Skipped",
    "Summary",
    "Totals",
    "analyze",
    "check_folder",
    "demo_pair",
    "extract",
    "open_checkpoint",
    "open_pair",
    "version",
]

__getattr__ = lazy_exports(__name__, _EXPORTS)
