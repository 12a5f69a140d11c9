"""Real checkpoints: open a base and a fine-tuned one, and analyse their increments.

Needs torch, which is imported on first use.
"""

from typing import TYPE_CHECKING

from loca_theory._lazy import lazy_exports

if TYPE_CHECKING:
    from loca_theory.checkpoints.adapter_folder import check_folder
    from loca_theory.checkpoints.extraction import (
        EXTRACTION_COLUMNS,
        AdapterSize,
        Extraction,
        extract,
    )
    from loca_theory.checkpoints.matrix import MatrixAnalysis, Settings, analyse_matrix
    from loca_theory.checkpoints.pairs import CheckpointPair, Selection, Skipped, open_pair
    from loca_theory.checkpoints.recommendation import adapter_config, verdict
    from loca_theory.checkpoints.report import COLUMNS, Report, analyse_pair, summarise, version
    from loca_theory.checkpoints.shown import representative, shown_rows
    from loca_theory.checkpoints.sources import Checkpoint, DamagedError, Entry, open_checkpoint

_EXPORTS = {
    "AdapterSize": "extraction",
    "COLUMNS": "report",
    "Checkpoint": "sources",
    "CheckpointPair": "pairs",
    "DamagedError": "sources",
    "EXTRACTION_COLUMNS": "extraction",
    "Entry": "sources",
    "Extraction": "extraction",
    "MatrixAnalysis": "matrix",
    "Report": "report",
    "Selection": "pairs",
    "Settings": "matrix",
    "Skipped": "pairs",
    "adapter_config": "recommendation",
    "analyse_matrix": "matrix",
    "analyse_pair": "report",
    "check_folder": "adapter_folder",
    "extract": "extraction",
    "open_checkpoint": "sources",
    "open_pair": "pairs",
    "representative": "shown",
    "shown_rows": "shown",
    "summarise": "report",
    "verdict": "recommendation",
    "version": "report",
}

__all__ = [
    "COLUMNS",
    "EXTRACTION_COLUMNS",
    "AdapterSize",
    "Checkpoint",
    "CheckpointPair",
    "DamagedError",
    "Entry",
    "Extraction",
    "MatrixAnalysis",
    "Report",
    "Selection",
    "Settings",
    "Skipped",
    "adapter_config",
    "analyse_matrix",
    "analyse_pair",
    "check_folder",
    "extract",
    "open_checkpoint",
    "open_pair",
    "representative",
    "shown_rows",
    "summarise",
    "verdict",
    "version",
]

__getattr__ = lazy_exports(__name__, _EXPORTS)
