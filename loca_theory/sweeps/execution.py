"""Run the points of a sweep, in this process or on workers."""

from __future__ import annotations

import os
import platform
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import joblib
from joblib.externals.loky import get_reusable_executor
from threadpoolctl import threadpool_limits

from loca_theory._arguments import fields_to_int, instance, path
from loca_theory.errors import InvalidArgumentError, LocaTheoryError, ResourceError
from loca_theory.sweeps.backends import Backend, Cluster
from loca_theory.sweeps.files import writable_folder
from loca_theory.sweeps.points import Point
from loca_theory.sweeps.store import ResultStore
from loca_theory.sweeps.versions import code_version, package_version

Compute = Callable[[Point], dict[str, Any]]
Progress = Callable[[int, int], None]
Watch = Callable[[Point, dict[str, Any]], None]

# Points per worker in a batch, for backends that return a batch's results all at once.
_BATCH = 4
_THIS_MACHINE = Cluster()
# Workers take about this long to start and import. A shorter sweep runs without them.
_WORKER_START_S = 1.5
# joblib ends workers that were idle for 300 s. A sweep that starts up to 200 s after the last one
# can therefore count on the workers of that sweep, which are ready at once.
_WARM_WORKER_START_S, _WARM_FOR_S = 0.05, 200.0
# loky's thread that sends tasks to the workers, and how long to wait for its end.
_FEEDER_NAME, _FEEDER_ENDS_WITHIN_S = "QueueFeederThread", 5.0
# Numerical libraries read these when they are loaded.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class SweepInterruptedError(LocaTheoryError):
    """The user interrupted a sweep. Finished points are stored if the runner has a store.

    Attributes:
        done: Number of finished points.
        total: Number of points of the sweep.
    """

    def __init__(self, done: int, total: int, *, stored: bool) -> None:
        self.done, self.total = done, total
        msg = f"interrupted: {done} of {total} points are stored; run again to compute the rest"
        if not stored:
            msg = f"interrupted after {done} of {total} points; without a store, no result is saved"
        super().__init__(msg)


@dataclass(frozen=True)
class Runner:
    """Settings for running sweeps; the results do not depend on them.

    Attributes:
        store: Where to store each result as soon as it is computed: a store, or the path of a
            folder; None stores nothing.
        jobs: Number of worker processes; −1 for one per core.
        cluster: The workers; by default, processes on this machine. A dask or Ray cluster computes
            every point that has no stored result, however few there are. It must be reachable even
            if all results are stored.
        progress: Called with (finished, total) whenever a point is finished.

    Raises:
        InvalidArgumentError: ``jobs`` is neither positive nor −1, or a value has the wrong type.
    """

    store: ResultStore | str | Path | None = None
    jobs: int = -1
    cluster: Cluster = _THIS_MACHINE
    progress: Progress | None = None

    def __post_init__(self) -> None:
        fields_to_int(self, "jobs")
        instance("cluster", self.cluster, Cluster)
        if not (self.store is None or isinstance(self.store, ResultStore)):
            path("store", self.store)
        if not (self.progress is None or callable(self.progress)):
            msg = f"progress must be a function of (finished, total), not {self.progress!r}"
            raise InvalidArgumentError(msg)
        if self.jobs == 0 or self.jobs < -1:
            msg = f"jobs must be a positive number, or -1 for one per core, not {self.jobs}"
            raise InvalidArgumentError(msg)

    def run(
        self,
        points: Sequence[Point],
        compute: Compute,
        watch: Watch | None = None,
        *,
        is_long: bool = False,
    ) -> list[dict[str, Any]]:
        """Compute every point that has no stored result.

        Several points can run in parallel, but each uses a single BLAS and torch thread, because
        the last bits of products and decompositions depend on the number of threads. The first
        points run in this process; worker processes start only if they are expected to save time.

        Args:
            points: The points to compute.
            compute: Module-level function from a point to plain JSON data.
            watch: Called with each newly computed point and its result, after it is stored.
            is_long: Whether a point is known to take seconds, so that worker processes start at
                once.

        Returns:
            One result per point, in the order of the points.

        Raises:
            SweepInterruptedError: the user pressed Ctrl-C.
            InvalidArgumentError: the address of the cluster's scheduler is malformed.
            ResourceError: the cluster cannot be reached, a result cannot be stored, or a worker was
                killed.

        If the runner has a store, an error does not lose the results of finished points.
        """
        store, progress = self.open_store(compute), self.progress
        results: dict[int, dict[str, Any]] = {}
        for index, point in enumerate(points):
            stored = store.load(point) if store else None
            if stored is not None:
                results[index] = stored
        missing = [index for index in range(len(points)) if index not in results]

        def keep(index: int, result: dict[str, Any]) -> None:
            if store:
                store.save(points[index], result)
            results[index] = result
            if watch:
                watch(points[index], result)
            if progress:
                progress(len(results), len(points))

        try:
            if progress and points:
                progress(len(results), len(points))
            if not missing:
                self.cluster.check()
            if self.cluster.backend is Backend.LOKY:
                workers = joblib.effective_n_jobs(self.jobs)
                if workers == 1 or len(missing) == 1 or not is_long:
                    missing = _run_here(missing, points, compute, keep, workers)
            if missing:
                with self.connected():
                    _run_on_workers(missing, points, compute, keep, self.jobs, self.cluster)
        except KeyboardInterrupt:
            is_stored = store is not None
            raise SweepInterruptedError(len(results), len(points), stored=is_stored) from None
        return [results[index] for index in range(len(points))]

    def open_store(self, *roots: Callable[..., Any] | str) -> ResultStore | None:
        """Open the runner's store; None if it has none.

        Args:
            roots: Functions that compute the results, or names of modules. If the store is given as
                a folder, its version is the :func:`~loca_theory.sweeps.code_version` of these.

        Raises:
            ResourceError: the folder cannot be written to.
        """
        if self.store is None or isinstance(self.store, ResultStore):
            return self.store
        return ResultStore(writable_folder(Path(self.store), "store"), code_version(*roots))

    def connected(self) -> AbstractContextManager[None]:
        """Keep one connection to the cluster for all sweeps in this context.

        Raises:
            InvalidArgumentError: the address of the cluster's scheduler is malformed.
            ResourceError: the cluster cannot be reached.
        """
        return self.cluster.connected(self.jobs)


# Default value of the argument ``runner`` of every function.
DEFAULT_RUNNER = Runner()


def _run_here(
    missing: list[int],
    points: Sequence[Point],
    compute: Compute,
    keep: Callable[[int, dict[str, Any]], None],
    workers: int,
) -> list[int]:
    """Compute points in this process until workers would be faster; return the other indices."""
    with one_thread():
        start = time.perf_counter()
        for done, index in enumerate(missing):
            left = len(missing) - done
            saved = (time.perf_counter() - start) / max(done, 1) * left * (1 - 1 / workers)
            if done and workers > 1 and saved > _recent_workers.start_s(workers):
                return missing[done:]
            keep(index, compute(points[index]))
    return []


class _RecentWorkers:
    """The worker processes that the last sweep of this process used, which may still be running."""

    def __init__(self) -> None:
        self._count, self._used = 0, 0.0

    def start_s(self, count: int) -> float:
        """Seconds until ``count`` workers are ready."""
        is_warm = count == self._count and time.monotonic() - self._used < _WARM_FOR_S
        return min(_WARM_WORKER_START_S, _WORKER_START_S) if is_warm else _WORKER_START_S

    def record(self, count: int) -> None:
        """Record that ``count`` workers have just been used."""
        self._count, self._used = count, time.monotonic()


_recent_workers = _RecentWorkers()


def _run_on_workers(
    missing: list[int],
    points: Sequence[Point],
    compute: Compute,
    keep: Callable[[int, dict[str, Any]], None],
    jobs: int,
    cluster: Cluster,
) -> None:
    version = package_version()
    if not cluster.streams:
        _run_in_batches(missing, points, compute, keep, -1 if cluster.scheduler else jobs)
        return
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    tasks = (joblib.delayed(_compute_one)(i, points[i], compute, version) for i in missing)
    outcomes: Generator[tuple[int, dict[str, Any]]] | None = None
    try:
        with _interrupts_delayed():
            outcomes = cast("Generator[tuple[int, dict[str, Any]]]", parallel(tasks))
        for index, result in outcomes:
            keep(index, result)
        if cluster.backend is Backend.LOKY:
            _recent_workers.record(joblib.effective_n_jobs(jobs))
    except BrokenExecutor as error:
        msg = "a worker process was killed, most likely for lack of memory; "
        msg += "use fewer workers, such as jobs=1"
        raise ResourceError(msg) from error
    finally:
        if outcomes:
            with warnings.catch_warnings():
                # joblib warns if this cancels running tasks, which is intended after Ctrl-C.
                warnings.simplefilter("ignore", UserWarning)
                outcomes.close()
        if sys.exc_info()[0] is KeyboardInterrupt and cluster.backend is Backend.LOKY:
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


def _run_in_batches(
    missing: list[int],
    points: Sequence[Point],
    compute: Compute,
    keep: Callable[[int, dict[str, Any]], None],
    jobs: int,
) -> None:
    """Run a few points at a time, for backends that return all results of a call at once."""
    version = package_version()
    size = _BATCH * joblib.effective_n_jobs(jobs)
    # All batches use the same pool, because starting a pool takes seconds.
    with joblib.Parallel(n_jobs=jobs) as parallel:
        for start in range(0, len(missing), size):
            batch = missing[start : start + size]
            tasks = (joblib.delayed(_compute_one)(i, points[i], compute, version) for i in batch)
            for index, result in cast("list[tuple[int, dict[str, Any]]]", parallel(tasks)):
                keep(index, result)


def _compute_one(
    index: int, point: Point, compute: Compute, version: str
) -> tuple[int, dict[str, Any]]:
    if package_version() != version:
        msg = f"the worker on {platform.node()} runs another version of loca-theory; "
        msg += "install the same version on every machine"
        raise ResourceError(msg)
    with one_thread():
        return index, compute(point)


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
    before = torch.get_num_threads() if torch else joblib.cpu_count()
    with threadpool_limits(limits=1), _variables(dict.fromkeys(_THREAD_VARIABLES, "1")):
        if torch:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if torch := sys.modules.get("torch"):
                torch.set_num_threads(before)


@contextmanager
def _variables(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
