"""Workers that compute the cells of a sweep: processes of this machine, or a context of joblib."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import platform
import queue
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from typing import Any, TypeVar, cast

import joblib
from joblib.externals.loky import get_reusable_executor
from joblib.externals.loky.backend.process import LokyProcess
from joblib.parallel import LokyBackend, get_active_backend

from loca_theory.errors import ResourceError
from loca_theory.sweeps.store import Cell
from loca_theory.sweeps.threads import one_thread

_Cell = TypeVar("_Cell", bound=Cell)
_Result = TypeVar("_Result")

# Workers take about this long to start and import. A shorter sweep runs without them.
_WORKER_START_S = 1.5
# joblib ends workers that were idle for 300 s. A sweep that starts up to 200 s after the last one
# can therefore count on the workers of that sweep, which are ready at once.
_WARM_WORKER_START_S, _WARM_FOR_S = 0.05, 200.0
_workers_ended = -_WARM_FOR_S  # when the last sweep on workers of this machine ended
# loky's thread that sends tasks to the workers, and how long to wait for its end.
_FEEDER_NAME, _FEEDER_ENDS_WITHIN_S = "QueueFeederThread", 5.0


def has_context() -> bool:
    """Whether a context of joblib, or a worker that this code runs on, chooses the workers."""
    backend, jobs = get_active_backend()
    return jobs is not None or not isinstance(backend, LokyBackend)


def worker_start_s() -> float:
    """Seconds until the workers of this machine are ready."""
    is_warm = time.monotonic() - _workers_ended < _WARM_FOR_S
    return min(_WARM_WORKER_START_S, _WORKER_START_S) if is_warm else _WORKER_START_S


def on_workers(
    cells: Mapping[int, _Cell], evaluate: Callable[[_Cell], _Result], jobs: int
) -> Generator[tuple[int, _Result]]:
    """Yield the number and the result of each cell, in the order in which they are finished."""
    global _workers_ended
    is_ours, backend = not has_context(), cast("Any", get_active_backend()[0])
    streams = backend.supports_return_generator
    return_as = "generator_unordered" if streams else "list"
    parallel = joblib.Parallel(
        jobs if is_ours else None, return_as=return_as, backend=_Workers() if is_ours else None
    )
    tasks = (joblib.delayed(_evaluate_one)(*numbered, evaluate) for numbered in cells.items())
    results: Any = ()
    is_done = False
    try:
        with _interrupts_delayed() if streams else nullcontext():
            results = parallel(tasks)
        for index, version, node, result in results:
            if version != cells[index].version:
                raise ResourceError(
                    f"the worker on {node} runs another version of loca-theory or of a library; "
                    "install the same versions on every machine"
                )
            yield index, result
        is_done, _workers_ended = True, time.monotonic()
    except BrokenExecutor as error:
        raise ResourceError(
            "a worker process was killed, most likely for lack of memory; "
            "use fewer workers, such as jobs=1"
        ) from error
    finally:
        if streams and results:
            with warnings.catch_warnings():
                # joblib warns if this cancels running tasks, which is intended after Ctrl-C.
                warnings.simplefilter("ignore", UserWarning)
                results.close()
        if is_ours and not is_done:
            _end_workers()


class _Workers(LokyBackend):
    """joblib's processes, which can be ended at any moment.

    loky drops the tasks that no worker has when it ends the workers, but not their numbers in the
    queue of the thread that hands them out. The thread fails on a number without a task, prints a
    traceback and leaks semaphores. joblib hands in the next task whenever a result arrives.
    """

    def abort_everything(self, ensure_ready: bool = True) -> None:
        parallel, executor = cast("Any", self.parallel), cast("Any", self._workers)
        with parallel._lock:  # joblib hands in no task from now on, and none at this moment
            while not executor._work_ids.empty():
                with suppress(queue.Empty):
                    executor._work_ids.get_nowait()
        super().abort_everything(ensure_ready)


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
    index: int, cell: _Cell, evaluate: Callable[[_Cell], _Result]
) -> tuple[int, str, str, _Result]:
    """The result of a cell, with the version of the code that computed it, and where."""
    _end_with_parent()
    with one_thread():
        return index, cell.version, platform.node(), evaluate(cell)


@cache
def _end_with_parent() -> None:
    """End this process, if it is a worker of loky, as soon as its parent ends.

    A parent that is killed cannot end its workers, and loky's own wait for work for 300 s.
    """
    is_worker = isinstance(multiprocessing.current_process(), LokyProcess)
    if not (is_worker and hasattr(os, "pidfd_open")):  # Linux has it
        return
    parent: Any = multiprocessing.parent_process()
    try:
        ended = os.pidfd_open(parent.pid)
    except ProcessLookupError:
        os._exit(1)
    except OSError:  # the system allows none
        return

    def wait() -> None:
        multiprocessing.connection.wait([ended])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def _interrupts_delayed() -> Iterator[None]:
    """Delay interruptions until the end of this context, and block them in processes it starts.

    A terminal sends Ctrl-C to the workers too, and each worker would print a traceback; a scheduler
    sends SIGTERM to all processes of a job. With both blocked in the workers, only this process
    handles them, and then ends the workers.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    # Workers need this helper process. Start it before the signal is blocked, because in some
    # versions of Python the start of the helper unblocks the signal.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
