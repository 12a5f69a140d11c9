"""Open a base and a fine-tuned checkpoint and analyse their increments.

Needs torch, which is imported on first use.
"""

from typing import TYPE_CHECKING

from loca_theory._lazy import lazy_exports

if TYPE_CHECKING:
    from loca_theory.checkpoints.adapter_folder import check_folder
    from loca_theory.checkpoints.allocation import (
        AllocatedSize,
        Allocation,
        allocate,
        allocate_energy,
    )
    from loca_theory.checkpoints.analysis import analyze, version
    from loca_theory.checkpoints.checkpoint import Checkpoint, DamagedError, Entry
    from loca_theory.checkpoints.demo import demo_pair
    from loca_theory.checkpoints.energy_profile import EnergyProfile
    from loca_theory.checkpoints.extraction import extract
    from loca_theory.checkpoints.extraction_result import Adapter, ExtractedMatrix, Extraction
    from loca_theory.checkpoints.pairs import CheckpointPair, open_pair
    from loca_theory.checkpoints.results import Analysis
    from loca_theory.checkpoints.rows import (
        AllocatedMatrix,
        Comparison,
        EigenvalueHistogram,
        FigureData,
        Matrix,
        MatrixError,
        Skipped,
    )
    from loca_theory.checkpoints.selection import Selection
    from loca_theory.checkpoints.settings import ANALYSED
    from loca_theory.checkpoints.sources import open_checkpoint
    from loca_theory.checkpoints.summary import MeanError, Summary, Totals
    from loca_theory.checkpoints.total_size import TotalSize

_EXPORTS = {
    "ANALYSED": "settings",
    "Adapter": "extraction_result",
    "AllocatedMatrix": "rows",
    "AllocatedSize": "allocation",
    "Allocation": "allocation",
    "Analysis": "results",
    "Checkpoint": "checkpoint",
    "CheckpointPair": "pairs",
    "Comparison": "rows",
    "DamagedError": "checkpoint",
    "EigenvalueHistogram": "rows",
    "EnergyProfile": "energy_profile",
    "Entry": "checkpoint",
    "ExtractedMatrix": "extraction_result",
    "Extraction": "extraction_result",
    "FigureData": "rows",
    "Matrix": "rows",
    "MatrixError": "rows",
    "MeanError": "summary",
    "Selection": "selection",
    "Skipped": "rows",
    "Summary": "summary",
    "TotalSize": "total_size",
    "Totals": "summary",
    "allocate": "allocation",
    "allocate_energy": "allocation",
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
    "Adapter",
    "AllocatedMatrix",
    "AllocatedSize",
    "Allocation",
    "Analysis",
    "Checkpoint",
    "CheckpointPair",
    "Comparison",
    "DamagedError",
    "EigenvalueHistogram",
    "EnergyProfile",
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
    "TotalSize",
    "Totals",
    "allocate",
    "allocate_energy",
    "analyze",
    "check_folder",
    "demo_pair",
    "extract",
    "open_checkpoint",
    "open_pair",
    "version",
]

__getattr__ = lazy_exports(__name__, _EXPORTS)
