"""The runner of a command: its workers, the store of its finished points and its progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from loca_theory.cli.common import Common
from loca_theory.errors import ResourceError
from loca_theory.sweeps.progress import progress_bar

if TYPE_CHECKING:
    from loca_theory.sweeps import Result, ResultStore, Runner


@contextmanager
def running(
    common: Common, doing: str, unit: str = "blocks", *, is_stored: bool = True
) -> Iterator[Runner]:
    """Make a runner with a progress bar, and print notes on its store at the end.

    The store is opened when the first points are computed, so that a refused argument leaves no
    folder. A killed run can be resumed from it.
    """
    from loca_theory.sweeps import Runner

    opened = cache(lambda: _open_store(common))
    with progress_bar(doing, unit, is_shown=not common.quiet) as progress:
        yield Runner(opened if is_stored else None, common.jobs, progress)
    if opened.cache_info().currsize and (store := opened()):
        for line in store.rejected:
            common.note(line)
        if count := store.outdated():
            line = f"{count} results in {store.folder} were computed by another version of the "
            common.note(f"{line}code; they were neither used nor deleted")


def _open_store(common: Common) -> ResultStore | None:
    """Open the store; None if the default folder cannot be written to."""
    from loca_theory.sweeps import ResultStore

    try:
        return ResultStore(common.folder / "points")
    except ResourceError:
        if common.out:
            raise
        common.note("this folder is not writable, so a killed run cannot be resumed")
        return None


def write_result(result: Result, common: Common) -> None:
    """Write the table and pictures of a result to the user's folder, and print a note on them."""
    if not common.out:
        return
    # Imported here, because it loads pandas and matplotlib.
    from loca_theory.plotting.pictures import save_pictures

    common.note_written([*result.save(common.folder), *save_pictures(result, common.folder)])
