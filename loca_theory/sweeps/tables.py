"""Assembled tables on disk: where a command finds those of others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_TRIAL = "quick"


def find_tables(folder: Path | None, patterns: Iterable[str]) -> list[Path]:
    """Stored tables whose names fit one of the patterns, in a folder and its subfolders, sorted.

    Those of trial runs of experiments, in folders ``quick``, mean nothing and are left out.

    Args:
        folder: Where to look; None finds nothing.
        patterns: Names without ``.parquet``, with wildcards.
    """
    if folder is None:
        return []
    found = {path for one in patterns for path in folder.rglob(f"{one}.parquet")}
    return sorted(path for path in found if _TRIAL not in path.relative_to(folder).parts)
