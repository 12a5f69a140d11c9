"""Running the points of a sweep, in this process or on local workers."""

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

from loca_theory._arguments import instance, make_whole, path
from loca_theory.errors import InvalidArgumentError, LocaTheoryError, ResourceError
from loca_theory.sweeps.backends import Backend, Cluster
from loca_theory.sweeps.files import writable_folder
from loca_theory.sweeps.points import Point
from loca_theory.sweeps.store import ResultStore
from loca_theory.sweeps.versions import code_version, package_version

Compute = Callable[[Point], dict[str, Any]]
Progress = Callable[[int, int], None]
Watch = Callable[[Point, dict[str, Any]], None]

# Points a worker gets at a time where results cannot be had one by one.
_BATCH = 4
_THIS_MACHINE = Cluster()
# Workers take about this long to start and import; below it they are not worth starting.
_WORKER_START_S = 1.5
# ... unless an earlier sweep of this process has left them: joblib keeps idle ones for 300 s.
_WARM_WORKER_START_S, _WARM_FOR_S = 0.05, 200.0
_FEEDER_NAME, _FEEDER_ENDS_WITHIN_S = "QueueFeederThread", 5.0
# What numerical libraries read when they are loaded.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class SweepInterruptedError(LocaTheoryError):
    """The user interrupted a sweep; what was finished is stored.

    Attributes:
        done: Points finished.
        total: Points of the sweep.
    """

    def __init__(self, done: int, total: int, *, stored: bool) -> None:
        self.done, self.total = done, total
        kept = "are stored; run it again to finish" if stored else "were not stored"
        super().__init__(f"interrupted: {done} of {total} points {kept}")


@dataclass(frozen=True)
class Runner:
    """How sweeps run; the results do not depend on it.

    Attributes:
        store: Where results are stored as they come, a store or the name of a folder; None for
            nowhere.
        jobs: Worker processes; −1 for one per core.
        cluster: Where workers are, if not on this machine: they compute whatever is missing, be it
            little, and have to be there even where nothing is. It decides nothing else either.
        progress: Called with (finished, total) whenever a point is finished.

    Raises:
        InvalidArgumentError: ``jobs`` is neither positive nor −1, or anything is of another type.
    """

    store: ResultStore | str | Path | None = None
    jobs: int = -1
    cluster: Cluster = _THIS_MACHINE
    progress: Progress | None = None

    def __post_init__(self) -> None:
        make_whole(self, "jobs")
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
        self, points: Sequence[Point], compute: Compute, watch: Watch | None = None
    ) -> list[dict[str, Any]]:
        """Compute every point that is not stored yet.

        Each point runs with one BLAS and torch thread, here and in workers alike, because products
        and decompositions differ in the last bits between thread counts; the parallelism is over
        points. The first points run in this process until it is clear that workers would pay.

        Args:
            points: What to compute.
            compute: Module-level function from a point to plain JSON data.
            watch: Called with each point that was computed now and its result, once it is kept.

        Returns:
            One result per point, in the order of the points.

        Raises:
            SweepInterruptedError: Ctrl-C. Finished points are in the store.
            InvalidArgumentError: the address of the cluster's scheduler is none.
            ResourceError: the cluster is not there, a result cannot be stored, or a worker was
                killed. Finished points are in the store.
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
                missing = _run_here(missing, points, compute, keep, workers)
            if missing:
                with self.connected():
                    _run_on_workers(missing, points, compute, keep, self.jobs, self.cluster)
        except KeyboardInterrupt:
            kept = store is not None
            raise SweepInterruptedError(len(results), len(points), stored=kept) from None
        return [results[index] for index in range(len(points))]

    def open_store(self, *roots: Callable[..., Any] | str) -> ResultStore | None:
        """The store; in a folder, the one of what some functions compute.

        Args:
            roots: The functions, as :func:`~loca_theory.sweeps.code_version` takes them.

        Raises:
            ResourceError: the folder cannot be written to.
        """
        if self.store is None or isinstance(self.store, ResultStore):
            return self.store
        return ResultStore(writable_folder(Path(self.store), "store"), code_version(*roots))

    def connected(self) -> AbstractContextManager[None]:
        """Keep the connection to the cluster for all sweeps inside.

        Raises:
            InvalidArgumentError: the address of the cluster's scheduler is none.
            ResourceError: the cluster is not there.
        """
        return self.cluster.connected(self.jobs)


# What every specification runs with unless it is given another.
DEFAULT_RUNNER = Runner()


def _run_here(
    missing: list[int],
    points: Sequence[Point],
    compute: Compute,
    keep: Callable[[int, dict[str, Any]], None],
    workers: int,
) -> list[int]:
    """Compute in this process; returns what is left once workers would be faster."""
    with _one_thread():
        start = time.perf_counter()
        for done, index in enumerate(missing):
            left = len(missing) - done
            expected = (time.perf_counter() - start) / max(done, 1) * left
            if done and workers > 1 and expected * (1 - 1 / workers) > _workers.start_s(workers):
                return missing[done:]
            keep(index, compute(points[index]))
    return []


class _Workers:
    """The processes that an earlier sweep has started."""

    def __init__(self) -> None:
        self._count, self._used = 0, 0.0

    def start_s(self, count: int) -> float:
        """What it takes to have so many of them at work."""
        is_warm = count == self._count and time.monotonic() - self._used < _WARM_FOR_S
        return min(_WARM_WORKER_START_S, _WORKER_START_S) if is_warm else _WORKER_START_S

    def used(self, count: int) -> None:
        """So many have just worked."""
        self._count, self._used = count, time.monotonic()


_workers = _Workers()


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
        with _interrupts_wait():
            outcomes = cast("Generator[tuple[int, dict[str, Any]]]", parallel(tasks))
        for index, result in outcomes:
            keep(index, result)
        if cluster.backend is Backend.LOKY:
            _workers.used(joblib.effective_n_jobs(jobs))
    except BrokenExecutor as error:
        msg = "a worker process was killed, most likely for lack of memory; "
        msg += "use fewer, such as jobs=1"
        raise ResourceError(msg) from error
    finally:
        if outcomes:
            with warnings.catch_warnings():
                # After an interruption joblib remarks that it cancels what is under way. It shall.
                warnings.simplefilter("ignore", UserWarning)
                outcomes.close()
        if sys.exc_info()[0] is KeyboardInterrupt and cluster.backend is Backend.LOKY:
            _end_workers()


def _end_workers() -> None:
    """End what joblib keeps ready, so that nothing of it outlives this process.

    The thread that feeds the workers frees semaphores when it ends. Were it cut off in between
    by the end of the process, loky's resource tracker would report one as leaked.
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
    """For workers whose results only come all at once: a few points at a time."""
    version = package_version()
    size = _BATCH * joblib.effective_n_jobs(jobs)
    # One pool for all batches: starting one takes seconds.
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
        msg += "install the same one everywhere"
        raise ResourceError(msg)
    with _one_thread():
        return index, compute(point)


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Ctrl-C waits for the end, and processes started inside never see it.

    A terminal sends it to workers as well; it is this process that reacts and ends them, while
    they would add a traceback each.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    # Workers need this helper; starting it unblocks the signal in some versions of Python.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _one_thread() -> Iterator[None]:
    """One BLAS, OpenMP and torch thread inside, the former number afterwards.

    This holds for libraries that are loaded inside, too.
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
