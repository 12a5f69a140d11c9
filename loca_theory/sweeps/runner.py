"""Run the cells of a sweep, in this process or on workers."""

from __future__ import annotations

import os
import platform
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import joblib
from joblib.externals.loky import get_reusable_executor
from joblib.parallel import LokyBackend, get_active_backend
from threadpoolctl import threadpool_limits

from loca_theory._arguments import fields_to_int, instance, path
from loca_theory.errors import InvalidArgumentError, LocaTheoryError, ResourceError
from loca_theory.sweeps.files import writable_folder
from loca_theory.sweeps.store import Cell, ResultStore

_Cell = TypeVar("_Cell", bound=Cell)

# Workers take about this long to start and import. A shorter sweep runs without them.
_WORKER_START_S = 1.5
# joblib ends workers that were idle for 300 s. A sweep that starts up to 200 s after the last one
# can therefore count on the workers of that sweep, which are ready at once.
_WARM_WORKER_START_S, _WARM_FOR_S = 0.05, 200.0
_workers_ended = -_WARM_FOR_S  # when the last sweep on workers of this machine ended
# loky's thread that sends tasks to the workers, and how long to wait for its end.
_FEEDER_NAME, _FEEDER_ENDS_WITHIN_S = "QueueFeederThread", 5.0
# Numerical libraries read these when they are loaded.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


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
        if not (self.store is None or isinstance(self.store, ResultStore) or callable(self.store)):
            folder = writable_folder(path("store", self.store), "store")
            object.__setattr__(self, "store", ResultStore(folder))
        if not (
            self.progress is None or isinstance(self.progress, bool) or callable(self.progress)
        ):
            msg = "progress must be True, False or a function of (finished, total), not "
            msg += repr(self.progress)
            raise InvalidArgumentError(msg)
        if self.jobs == 0 or self.jobs < -1:
            msg = f"jobs must be a positive number, or -1 for one per core, not {self.jobs}"
            raise InvalidArgumentError(msg)

    def run(
        self,
        cells: Sequence[_Cell],
        evaluate: Callable[[_Cell], dict[str, Any]],
        watch: Callable[[_Cell, dict[str, Any]], None] | None = None,
        *,
        is_long: bool = False,
    ) -> list[dict[str, Any]]:
        """Compute every cell that has no stored result.

        Several cells can run in parallel, but each uses a single BLAS and torch thread, because
        the last bits of products and decompositions depend on the number of threads. The first
        cells run in this process; worker processes start only if they are expected to save time.

        Args:
            cells: The cells to compute.
            evaluate: Module-level function from a cell to plain JSON data.
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
        store, results = cast("ResultStore | None", opened), dict[int, dict[str, Any]]()
        for index, cell in enumerate(cells):
            stored = store.load(cell) if store and cell.is_storable else None
            if stored is not None:
                results[index] = stored

        missing = {index: cell for index, cell in enumerate(cells) if index not in results}
        try:
            with (
                self._shown(missing, cells) as progress,
                one_thread(),
                closing(self._computed(missing, evaluate, is_long=is_long)) as found,
            ):
                if progress and cells:
                    progress(len(results), len(cells))
                for index, result in found:
                    if store and cells[index].is_storable:
                        store.save(cells[index], result)
                    results[index] = result
                    if watch:
                        watch(cells[index], result)
                    if progress:
                        progress(len(results), len(cells))
        except KeyboardInterrupt:
            count = f"{len(results)} of {len(cells)} points"
            msg = f"interrupted after {count}; without a store, no result is saved"
            if store:
                msg = f"interrupted: {count} are stored; run again to compute the rest"
            raise SweepInterruptedError(msg) from None
        return [results[index] for index in range(len(cells))]

    def _shown(
        self, missing: Mapping[int, Cell], cells: Sequence[Cell]
    ) -> AbstractContextManager[Callable[[int, int], None] | None]:
        """What to tell of finished cells; nothing is shown if all of them are stored."""
        if not isinstance(self.progress, bool):
            return nullcontext(self.progress)
        if not (self.progress and missing):
            return nullcontext()
        from loca_theory.sweeps.progress import progress_of

        return progress_of(cells[0].experiment)

    def _computed(
        self,
        cells: Mapping[int, _Cell],
        evaluate: Callable[[_Cell], dict[str, Any]],
        *,
        is_long: bool,
    ) -> Generator[tuple[int, dict[str, Any]]]:
        """Yield results computed here, until workers would finish the rest sooner; then theirs."""
        left = dict(cells)
        is_elsewhere = self.jobs != 1 and has_context()
        workers = joblib.effective_n_jobs(self.jobs) if len(cells) > 1 else 1
        start = time.perf_counter()
        for done, index in enumerate(cells):
            seconds = (time.perf_counter() - start) / max(done, 1)
            pays = done and seconds * len(left) * (1 - 1 / workers) > _worker_start_s()
            if is_elsewhere or pays or (is_long and workers > 1):
                yield from _on_workers(left, evaluate, self.jobs)
                return
            yield index, evaluate(left.pop(index))


# Default value of the argument ``runner`` of every method.
DEFAULT_RUNNER = Runner()


def chosen_runner(runner: Runner | None) -> Runner:
    """The argument ``runner`` of a function; None for a runner with the default settings."""
    return DEFAULT_RUNNER if runner is None else instance("runner", runner, Runner)


def has_context() -> bool:
    """Whether a context of joblib, or a worker that this code runs on, chooses the workers."""
    backend, jobs = get_active_backend()
    return jobs is not None or not isinstance(backend, LokyBackend)


def _worker_start_s() -> float:
    """Seconds until the workers of this machine are ready."""
    is_warm = time.monotonic() - _workers_ended < _WARM_FOR_S
    return min(_WARM_WORKER_START_S, _WORKER_START_S) if is_warm else _WORKER_START_S


def _on_workers(
    cells: Mapping[int, _Cell], evaluate: Callable[[_Cell], dict[str, Any]], jobs: int
) -> Generator[tuple[int, dict[str, Any]]]:
    """Yield the number and the result of each cell, in the order in which they are finished."""
    global _workers_ended
    is_ours, backend = not has_context(), cast("Any", get_active_backend()[0])
    streams = backend.supports_return_generator
    return_as = "generator_unordered" if streams else "list"
    parallel = joblib.Parallel(jobs if is_ours else None, return_as=return_as)
    tasks = (joblib.delayed(_evaluate_one)(*numbered, evaluate) for numbered in cells.items())
    found: Any = ()
    is_done = False
    try:
        with _interrupts_delayed() if streams else nullcontext():
            found = parallel(tasks)
        for index, version, node, result in found:
            if version != cells[index].version:
                msg = f"the worker on {node} runs another version of loca-theory or of a library; "
                msg += "install the same versions on every machine"
                raise ResourceError(msg)
            yield index, result
        is_done, _workers_ended = True, time.monotonic()
    except BrokenExecutor as error:
        msg = "a worker process was killed, most likely for lack of memory; "
        msg += "use fewer workers, such as jobs=1"
        raise ResourceError(msg) from error
    finally:
        if streams and found:
            with warnings.catch_warnings():
                # joblib warns if this cancels running tasks, which is intended after Ctrl-C.
                warnings.simplefilter("ignore", UserWarning)
                found.close()
        if is_ours and not is_done:
            _end_workers()


def _end_workers() -> None:
    """End joblib's idle workers, so that none outlives this process.

    The thread that sends tasks to the workers frees semaphores when it ends. If this process ended
    before the thread, loky's resource tracker would report a leaked semaphore.
    """
    get_reusable_executor().shutdown(wait=True, kill_workers=True)
    for thread in threading.enumerate():
        if thread.name == _FEEDER_NAME:
            thread.join(_FEEDER_ENDS_WITHIN_S)


def _evaluate_one(
    index: int, cell: _Cell, evaluate: Callable[[_Cell], dict[str, Any]]
) -> tuple[int, str, str, dict[str, Any]]:
    """The result of a cell, with the version of the code that computed it, and where."""
    with one_thread():
        return index, cell.version, platform.node(), evaluate(cell)


@contextmanager
def _interrupts_delayed() -> Iterator[None]:
    """Delay Ctrl-C until the end of this context, and block it in processes that start in it.

    A terminal sends Ctrl-C to the workers too, and each worker would print a traceback. With Ctrl-C
    blocked in the workers, only this process handles it, and then ends the workers.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    # Workers need this helper process. Start it before the signal is blocked, because in some
    # versions of Python the start of the helper unblocks the signal.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one BLAS, OpenMP and torch thread in this context, then restore the former number.

    The limit also applies to libraries that are loaded in this context.
    """
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else joblib.cpu_count()
    variables = {name: os.environ[name] for name in _THREAD_VARIABLES if name in os.environ}
    with threadpool_limits(limits=1):
        os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
        if torch:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if torch := sys.modules.get("torch"):
                torch.set_num_threads(threads)
            for name in _THREAD_VARIABLES:
                os.environ.pop(name, None)  # another thread may have left its context before
            os.environ.update(variables)
