"""The runner of a command, and the store of its finished points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from loca_theory import ResourceError
from loca_theory.cli.options import Common
from loca_theory.cli.progress import note, progress_bar
from loca_theory.sweeps import Backend, Result, ResultStore, Runner, code_version

# Modules that run the experiment of the first: correlate simulates some of its methods as simulate.
_SHARING = ("loca_theory.expressivity.monte_carlo", "loca_theory.dependence.draws")


def open_store(common: Common, version: str) -> ResultStore | None:
    """Open the store of finished points, from which a killed run can be resumed.

    Without ``--out`` the store is in the default folder; it is None if that folder cannot be
    written to.

    Raises:
        ResourceError: the folder that the user gave cannot be written to.
    """
    try:
        return ResultStore(common.folder / "points", version)
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

    Args:
        common: The common options.
        store: The store of finished points.
        doing: Text before the bar.
        unit: Name of the things that the bar counts, in the plural.

    Yields:
        The runner for all computations.
    """
    with progress_bar(doing, unit, quiet=common.quiet) as progress:
        yield Runner(store, common.jobs, common.cluster, progress)
    _report_rejected(store, common)


def _report_rejected(store: ResultStore | None, common: Common) -> None:
    """Print notes on an idle cluster, rejected files and results of another version."""
    if store is None:
        return
    note_idle(store, common)
    for line in store.rejected:
        note(line, quiet=common.quiet)
    if store.outdated() and (count := store.outdated(map(code_version, _SHARING))):
        line = f"{count} results in {store.folder} were computed by another version of the code; "
        note(f"{line}they were neither used nor deleted", quiet=common.quiet)


def note_written(paths: Iterable[Path], common: Common) -> None:
    """Print a note for each file that was written."""
    for path in paths:
        note(f"wrote {path}", quiet=common.quiet)


def write_result(result: Result, common: Common) -> None:
    """Write the tables and pictures of a result, and print a note for each file."""
    # Imported here, because it loads pandas and matplotlib.
    from loca_theory.plotting import save_pictures

    folder = common.folder
    note_written([*result.save(folder), *save_pictures(result, folder)], common)


def note_idle(store: ResultStore | None, common: Common) -> None:
    """Print a note if a cluster that the user chose had nothing to compute."""
    backend = common.cluster.backend
    if backend is Backend.LOKY or (store and store.saved):
        return
    is_stored = store is not None and store.loaded
    why = "everything is stored already" if is_stored else "formulas are evaluated in this process"
    note(f"{why}, so {backend} had nothing to compute", quiet=common.quiet)
