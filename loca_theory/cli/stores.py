"""The runner of a command, and the store of its finished points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from loca_theory.cli.options import Common
from loca_theory.cli.progress import note, progress_bar
from loca_theory.errors import ResourceError

if TYPE_CHECKING:
    from loca_theory.sweeps import Result, ResultStore, Runner


def open_store(common: Common) -> ResultStore | None:
    """Open the store of finished points, from which a killed run can be resumed.

    Without ``--out`` the store is in the default folder; it is None if that folder cannot be
    written to.
    """
    from loca_theory.sweeps import ResultStore

    try:
        return ResultStore(common.folder / "points")
    except ResourceError:
        if common.out:
            raise
        note("this folder is not writable, so a killed run cannot be resumed", quiet=common.quiet)
        return None


@contextmanager
def running(
    common: Common, store: ResultStore | None, doing: str, unit: str = "blocks"
) -> Iterator[Runner]:
    """Make the runner with a progress bar, and print notes on the store at the end.

    Yields:
        The runner for all computations.
    """
    from loca_theory.sweeps import Runner

    with progress_bar(doing, unit, quiet=common.quiet) as progress:
        yield Runner(store, common.jobs, progress)
    _report_rejected(store, common)


def _report_rejected(store: ResultStore | None, common: Common) -> None:
    """Print notes on rejected files and results of another version."""
    if store is None:
        return
    for line in store.rejected:
        note(line, quiet=common.quiet)
    if count := store.outdated():
        line = f"{count} results in {store.folder} were computed by another version of the code; "
        note(f"{line}they were neither used nor deleted", quiet=common.quiet)


def note_written(paths: Iterable[Path], common: Common) -> None:
    """Print a note for each file that was written."""
    for path in paths:
        note(f"wrote {path}", quiet=common.quiet)


def write_result(result: Result, common: Common) -> None:
    """Write the tables and pictures of a result, and print a note for each file."""
    # Imported here, because it loads pandas and matplotlib.
    from loca_theory.plotting.pictures import save_pictures

    folder = common.folder
    note_written([*result.save(folder), *save_pictures(result, folder)], common)
