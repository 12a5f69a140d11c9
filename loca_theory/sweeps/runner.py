"""Run the cells of a sweep, in this process or on workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import joblib

from loca_theory._arguments import fields_to_int, instance, path
from loca_theory.errors import InvalidArgumentError, LocaTheoryError
from loca_theory.sweeps.files import writable_folder
from loca_theory.sweeps.store import Cell, ResultStore
from loca_theory.sweeps.threads import one_thread
from loca_theory.sweeps.workers import has_context, on_workers, worker_start_s

_Cell = TypeVar("_Cell", bound=Cell)
_Result = TypeVar("_Result")


class SweepInterruptedError(LocaTheoryError):
    """The user interrupted a sweep. Finished cells are stored if the runner has a store."""


@dataclass(frozen=True)
class Runner:
    """Settings for running sweeps; the results do not depend on them.

    A context of joblib chooses other workers: in ``with joblib.parallel_config("dask"):`` they are
    those of the current dask client, and they compute every cell that has no stored result, however
    few there are.

    Attributes:
        store: Where to store each result as soon as it is computed: a store, the path of a
            folder, in which one is opened, or a function that opens one when the first cells are
            run; None stores nothing.
        jobs: Number of worker processes; −1 for one per core. 1 computes in this process. In a
            context of joblib any other number means the workers of that context.
        progress: True shows how many cells are finished, in a terminal or a notebook; a function
            is called with (finished, total) instead; False or None shows nothing.

    Raises:
        InvalidArgumentError: ``jobs`` is neither positive nor −1, or a value has the wrong type.
        ResourceError: the folder cannot be written to.
    """

    store: ResultStore | str | Path | Callable[[], ResultStore | None] | None = None
    jobs: int = -1
    progress: Callable[[int, int], None] | bool | None = True

    def __post_init__(self) -> None:
        fields_to_int(self, "jobs")
        if not (isinstance(self.store, ResultStore | None) or callable(self.store)):
            folder = writable_folder(path("store", self.store), "store")
            object.__setattr__(self, "store", ResultStore(folder))
        if not (isinstance(self.progress, bool | None) or callable(self.progress)):
            raise InvalidArgumentError(
                "progress must be True, False or a function of (finished, total), not "
                f"{self.progress!r}"
            )
        if self.jobs == 0 or self.jobs < -1:
            raise InvalidArgumentError(
                f"jobs must be a positive number, or -1 for one per core, not {self.jobs}"
            )

    def run(
        self,
        cells: Sequence[_Cell],
        evaluate: Callable[[_Cell], _Result],
        watch: Callable[[_Cell, _Result], None] | None = None,
        *,
        is_long: bool = False,
    ) -> list[_Result]:
        """Compute every cell that has no stored result.

        Several cells can run in parallel, but each uses a single BLAS and torch thread, because
        the last bits of products and decompositions depend on the number of threads. The first
        cells run in this process; worker processes start only if they are expected to save time.

        Args:
            cells: The cells to compute.
            evaluate: Module-level function from a cell to its result, of the type that the cell
                names if it is stored.
            watch: Called with each newly computed cell and its result, after it is stored.
            is_long: Whether a cell is known to take seconds, so that worker processes start at
                once.

        Returns:
            One result per cell, in the order of the cells.

        Raises:
            SweepInterruptedError: the user pressed Ctrl-C.
            ResourceError: a result cannot be stored, a worker was killed, or it has other code.

        If the runner has a store, an error does not lose the results of finished cells.
        """
        opened = self.store() if callable(self.store) and cells else self.store
        store, results = cast("ResultStore | None", opened), dict[int, _Result]()
        for index, cell in enumerate(cells):
            stored = store.load(cell) if store and cell.is_storable else None
            if stored is not None:
                results[index] = stored

        missing = {index: cell for index, cell in enumerate(cells) if index not in results}
        shown: Any = nullcontext(self.progress if callable(self.progress) else None)
        if self.progress is True and missing:
            from loca_theory.sweeps.progress import progress_of

            shown = progress_of(cells[0].experiment)
        try:
            with (
                shown as progress,
                one_thread(),
                closing(self._computed(missing, evaluate, is_long=is_long)) as computed,
            ):
                if progress and cells:
                    progress(len(results), len(cells))
                for index, result in computed:
                    if store and cells[index].is_storable:
                        store.save(cells[index], result)
                    results[index] = result
                    if watch:
                        watch(cells[index], result)
                    if progress:
                        progress(len(results), len(cells))
        except KeyboardInterrupt:
            count = f"{len(results)} of {len(cells)} points"
            if store:
                raise SweepInterruptedError(
                    f"interrupted: {count} are stored; run again to compute the rest"
                ) from None
            raise SweepInterruptedError(
                f"interrupted after {count}; without a store, no result is saved"
            ) from None
        return [results[index] for index in range(len(cells))]

    def _computed(
        self,
        cells: Mapping[int, _Cell],
        evaluate: Callable[[_Cell], _Result],
        *,
        is_long: bool,
    ) -> Generator[tuple[int, _Result]]:
        """Yield results computed here, until workers would finish the rest sooner; then theirs."""
        left = dict(cells)
        is_elsewhere = self.jobs != 1 and has_context()
        workers = joblib.effective_n_jobs(self.jobs) if len(cells) > 1 else 1
        start = time.perf_counter()
        for done, index in enumerate(cells):
            seconds = (time.perf_counter() - start) / max(done, 1)
            pays = done and seconds * len(left) * (1 - 1 / workers) > worker_start_s()
            if is_elsewhere or pays or (is_long and workers > 1):
                yield from on_workers(left, evaluate, self.jobs)
                return
            yield index, evaluate(left.pop(index))


# Default of the argument ``runner`` of ``estimate`` and of every method ``run``.
DEFAULT_RUNNER = Runner()


def chosen_runner(runner: Runner | None) -> Runner:
    """The argument ``runner`` of a function; None for a runner with the default settings."""
    return DEFAULT_RUNNER if runner is None else instance("runner", runner, Runner)
