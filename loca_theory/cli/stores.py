"""How a command runs, and where it keeps what it has finished."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from loca_theory import ResourceError
from loca_theory.cli.options import Common
from loca_theory.cli.progress import note, progress_bar
from loca_theory.sweeps import Backend, Result, ResultStore, Runner


def open_store(common: Common, version: str) -> ResultStore | None:
    """The store of finished points, so that a killed run can be resumed.

    Without ``--out`` it stands in the default folder, and there is none where that cannot be
    written to.

    Raises:
        ResourceError: the user named a folder that cannot be written to.
    """
    try:
        return ResultStore(common.folder / "points", version)
    except ResourceError:
        if common.out:
            raise
        note("this folder is not writable, so an interrupted run starts anew", quiet=common.quiet)
        return None


@contextmanager
def running(
    common: Common, store: ResultStore | None, doing: str, unit: str = "blocks"
) -> Iterator[Runner]:
    """Run with the workers that the user named and a bar, and say at the end what was stored.

    Args:
        common: The common options.
        store: The store of finished points.
        doing: What the bar says.
        unit: What it counts, in the plural.

    Yields:
        The runner of all that is computed.
    """
    with progress_bar(doing, unit, quiet=common.quiet) as progress:
        yield Runner(store, common.jobs, common.cluster, progress)
    _report_rejected(store, common)


def _report_rejected(store: ResultStore | None, common: Common) -> None:
    """Say which stored files were not believed, which are of another version, and who was idle."""
    if store is None:
        return
    note_idle(store, common)
    for line in store.rejected:
        note(line, quiet=common.quiet)
    if count := store.outdated():
        line = f"{count} results in {store.folder} were computed by another version of the code; "
        note(f"{line}they were left there and not used", quiet=common.quiet)


def note_written(paths: Iterable[Path], common: Common) -> None:
    """Say which files were written."""
    for path in paths:
        note(f"wrote {path}", quiet=common.quiet)


def write_result(result: Result, common: Common) -> None:
    """Write the tables of a result and its pictures, and say so."""
    # Imports pandas and matplotlib.
    from loca_theory.plotting import save_pictures

    folder = common.folder
    note_written([*result.save(folder), *save_pictures(result, folder)], common)


def note_idle(store: ResultStore | None, common: Common) -> None:
    """Say it if a cluster that the user named had nothing to compute."""
    backend = common.cluster.backend
    if backend is Backend.LOKY or (store and store.saved):
        return
    is_stored = store is not None and store.loaded
    why = "everything is stored already" if is_stored else "formulas are evaluated in this process"
    note(f"{why}, so {backend} had nothing to compute", quiet=common.quiet)
