"""What commands that run a study of several tables have in common."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from loca_theory.cli.progress import note
from loca_theory.cli.stores import open_store, running
from loca_theory.sweeps import manifest, store_rows

if TYPE_CHECKING:
    from loca_theory.cli.options import Common
    from loca_theory.convergence import ConvergenceStudy
    from loca_theory.dependence import Study

Tables = dict[str, list[dict[str, Any]]]


def run_study(
    study: Study | ConvergenceStudy, common: Common, *, doing: str
) -> tuple[Tables, dict[str, Any]]:
    """Run it with a bar and a store, so that it can be resumed.

    Args:
        study: What to run.
        common: The common options.
        doing: What the bar says.

    Returns:
        The tables, and the manifest that belongs to them.
    """
    with running(common, open_store(common, study.version), doing) as runner:
        tables = study.run(runner)
    origin = manifest(
        grid=study.describe(),
        seed=common.seed,
        device="cpu",
        dtype="float64",
    )
    return tables, origin


def store_tables(tables: Tables, origin: dict[str, Any], common: Common, prefix: str) -> list[Path]:
    """Write every table as ``prefix-NAME``; returns the files."""
    written = []
    for name, rows in tables.items():
        written += store_rows(rows, origin, common.folder, f"{prefix}-{name}")
    return written


def report_written(paths: list[Path], common: Common) -> None:
    """Say what was written."""
    for path in paths:
        note(f"wrote {path}", quiet=common.quiet)
