"""Open a base and a fine-tuned checkpoint and analyse their increments.

Needs torch, which is imported on first use.
"""

from typing import TYPE_CHECKING

from loca_theory._lazy import lazy_exports

if TYPE_CHECKING:
    from loca_theory.checkpoints.adapter_folder import check_folder
    from loca_theory.checkpoints.analysis import analyze, version
    from loca_theory.checkpoints.demo import demo_pair
    from loca_theory.checkpoints.extraction import ExtractedMatrix, Extraction, extract
    from loca_theory.checkpoints.pairs import CheckpointPair, Selection, open_pair
    from loca_theory.checkpoints.results import Analysis
    from loca_theory.checkpoints.rows import (
        Comparison,
        FigureData,
        Matrix,
        MatrixError,
        Skipped,
    )
    from loca_theory.checkpoints.settings import ANALYSED
    from loca_theory.checkpoints.sources import (
        Checkpoint,
        DamagedError,
        Entry,
        open_checkpoint,
    )
    from loca_theory.checkpoints.summary import MeanError, Summary, Totals

_EXPORTS = {
    "ANALYSED": "settings",
    "Analysis": "results",
    "Checkpoint": "sources",
    "CheckpointPair": "pairs",
    "Comparison": "rows",
    "DamagedError": "sources",
    "Entry": "sources",
    "ExtractedMatrix": "extraction",
    "Extraction": "extraction",
    "Matrix": "rows",
    "MatrixError": "rows",
    "MeanError": "summary",
    "Selection": "pairs",
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
    "Comparison",
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
