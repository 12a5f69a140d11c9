"""Command-line options, stored results and the machine description of benchmarks."""

from __future__ import annotations

import json
import os
import platform
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import psutil
import torch
from rich.console import Console
from rich.table import Table

from loca_theory.sweeps.files import write_atomically
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.version import library_version

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
        """Store the rows of a comparison, with these facts in each, or the exception as a row."""
        try:
            rows = measure()
        except Exception as error:
            traceback.print_exc()
            rows = [{"error": error_line(error)}]
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
    rounded = json.loads(json.dumps(record), parse_float=lambda text: float(f"{float(text):.4g}"))
    text = json.dumps(rounded, indent=1) + "\n"
    write_atomically(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def environment(packages: Sequence[str]) -> dict[str, Any]:
    """Date, processor, threads, load, and versions of this package and the named ones."""
    origin = manifest(grid={}, seed=None)
    dirty = "-dirty" if origin["git_dirty"] else ""
    return {
        "date": origin["created"].partition("T")[0],
        "commit": origin["git_commit"] and origin["git_commit"][:7] + dirty,
        "python": origin["python"],
        "system": f"{platform.system()} {origin['machine']}",
        "cpu": _cpu_model(),
        "cpu_cores": {"logical": origin["cores"], "physical": psutil.cpu_count(logical=False)},
        "load_average_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "torch_threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "packages": {"loca-theory": origin["version"]}
        | {name: library_version(name) for name in packages},
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown")


def print_rows(console: Console, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print records as a table with one column per key."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        cells = (row.get(column, "") for column in columns)
        table.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells))
    console.print(table)


def error_line(error: BaseException) -> str:
    """An error in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def card() -> dict[str, Any]:
    """The machine with its GPU; the reason as ``refused`` if a small test product fails on it."""
    try:
        if torch.version.cuda is None:
            reason = f"torch {torch.__version__} is built without CUDA; install a build with it"
            return {"refused": reason}
        torch.cuda.init()  # says what is wrong with the card or its driver
        x = torch.ones(64, 64, device="cuda")
        first = float(torch.fft.rfft2(x @ x)[0, 0].real)
        if first != 64.0**3:
            return {"refused": f"the card computes {first} instead of {64.0**3}"}
    except Exception as error:  # an old driver, no kernel image, no memory
        line = str(error).strip().partition("\n")[0]
        return {"refused": f"the card cannot be used by torch {torch.__version__}: {line}"}
    properties = torch.cuda.get_device_properties(0)
    return {
        "card": properties.name,
        "compute capability": f"{properties.major}.{properties.minor}",
        "memory, GiB": round(properties.total_memory / 2**30, 1),
        "CUDA": torch.version.cuda,
        **environment(("torch", "triton", "numpy", "scipy", "peft", "transformers", "cupy")),
    }
