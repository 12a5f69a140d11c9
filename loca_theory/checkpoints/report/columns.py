"""The columns that the page of an analysis, the terminal and :meth:`Analysis.overview` share."""

from __future__ import annotations

from pathlib import Path

from loca_theory.checkpoints.report.column import read_columns

_WITHOUT_ORDER = (
    "What LoRA retains of the same entries in random order; much less than without shuffling if "
    "the entries depend on each other. Of one matrix per kind, or of all if asked for."
)
SHUFFLED = "LoRA shuffled", _WITHOUT_ORDER
"""Title and meaning of the column with what LoRA retains of shuffled entries."""

_TABLES = read_columns(Path(__file__).with_suffix(".toml"))

WEIGHT = _TABLES["weight"]
"""The columns of any table with a row per weight."""
MATRIX = (WEIGHT[0], _TABLES["matrix"][0], *WEIGHT[1:], *_TABLES["matrix"][1:])
"""The columns of a matrix that tell it from others."""
CHANGE = _TABLES["change"]
"""The columns of a matrix that say how large its change is."""
STATISTIC_COLUMNS = _TABLES["statistic"]
"""The columns of a matrix's statistics."""
