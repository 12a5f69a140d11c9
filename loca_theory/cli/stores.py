"""Where a command keeps what it has finished."""

from __future__ import annotations

from loca_theory import ResourceError
from loca_theory.cli.options import Common
from loca_theory.cli.progress import note
from loca_theory.sweeps import Backend, ResultStore


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


def report_rejected(store: ResultStore | None, common: Common) -> None:
    """Say which stored files were not believed, which are of another version, and who was idle."""
    if store is None:
        return
    note_idle(store, common)
    for line in store.rejected:
        note(line, quiet=common.quiet)
    if count := store.outdated():
        line = f"{count} results in {store.folder} were computed by another version of the code; "
        note(f"{line}they were left there and not used", quiet=common.quiet)


def note_idle(store: ResultStore | None, common: Common) -> None:
    """Say it if a cluster that the user named had nothing to compute."""
    backend = common.cluster.backend
    if backend is Backend.LOKY or (store and store.saved):
        return
    is_stored = store is not None and store.loaded
    why = "everything is stored already" if is_stored else "formulas are evaluated in this process"
    note(f"{why}, so {backend} had nothing to compute", quiet=common.quiet)
