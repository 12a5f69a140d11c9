"""Result files of the benchmarks; imports neither torch nor the measured code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loca_theory.sweeps.files import write_atomically


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write a result file with floats rounded to four digits, because the fifth is noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(_shortened(record), indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file atomically. Its folder must exist."""
    write_atomically(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def _shortened(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shortened(item) for item in value]
    return value
