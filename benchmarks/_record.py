"""The options, the results and the machine of a benchmark."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import psutil
import torch
from rich.console import Console
from rich.table import Table

import loca_theory
from loca_theory.sweeps.files import write_atomically

Row = dict[str, Any]

OUT = click.option("--out", type=click.Path(path_type=Path), help="File for the results as JSON.")
DEVICE = click.option(
    "--device", default="cuda" if torch.cuda.is_available() else "cpu", show_default=True
)
TINY = click.option("--tiny", is_flag=True, help="Tiny sizes, to see that everything works.")


class Record:
    """Results by part: each comparison is printed and stored as soon as it is done.

    A part of the file that is not measured again stays as it is.
    """

    def __init__(self, out: Path | None, packages: Sequence[str]) -> None:
        self._out, self._packages, self._begun = out, packages, set[str]()
        self._content: Row = {}
        if out and out.exists():
            self._content = json.loads(out.read_text(encoding="utf-8"))

    def add(self, part: str, title: str, measure: Callable[[], list[Row]], **facts: Any) -> None:
        """Store the rows of a comparison, with these facts in each; an exception is a row."""
        try:
            rows = measure()
        except Exception as error:
            traceback.print_exc()
            rows = [{"error": described(error)}]
        if part not in self._begun:
            self._begun.add(part)
            self._content[part] = {"environment": environment(self._packages), "rows": []}
        self._content[part]["rows"] += [facts | row for row in rows]
        shown = [{k: v for k, v in row.items() if not isinstance(v, dict)} for row in rows]
        print_rows(Console(), f"{part}: {title}" if title else part, shown)
        if self._out is not None:
            write_json(self._out, self._content)


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write a result file with floats rounded to four digits, because the fifth is noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_shortened(record), indent=1) + "\n"
    write_atomically(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def _shortened(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shortened(item) for item in value]
    return value


def environment(packages: Sequence[str]) -> dict[str, Any]:
    """Date, processor, threads, load, and versions of this package and the named ones."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cpu_cores": {
            "logical": os.cpu_count(),
            "physical": psutil.cpu_count(logical=False),
        },
        "load_average_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "torch_threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "packages": {"loca-theory": loca_theory.__version__}
        | {name: _version(name) for name in packages},
    }


def _commit() -> str | None:
    """The commit of the checkout, with ``-dirty`` if it has changes; None without git."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    here = Path(__file__).parent
    try:
        done = subprocess.run(
            command, cwd=here, capture_output=True, text=True, check=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _version(name: str) -> str | None:
    """The version of a distribution; None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def print_rows(console: Console, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print records as a table with one column per key."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        cells = (row.get(column, "") for column in columns)
        table.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells))
    console.print(table)


def described(error: BaseException) -> str:
    """An error in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
