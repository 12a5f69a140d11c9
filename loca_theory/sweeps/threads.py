"""One thread for the numerical libraries, so that results do not depend on their number."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import joblib
from threadpoolctl import OpenBLASController, ThreadpoolController

# Numerical libraries read these when they are loaded.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_lock = threading.Lock()


class _Limits:
    """The limits that the first of several contexts replaced, and those that all of them share.

    BLAS and the environment have one limit for the process, OpenMP and torch one for each thread of
    Python.
    """

    def __init__(self) -> None:
        torch = sys.modules.get("torch")
        self.torch_threads = torch.get_num_threads() if torch else joblib.cpu_count()
        names = (name for name in _THREAD_VARIABLES if name in os.environ)
        self.variables = {name: os.environ[name] for name in names}
        # threadpoolctl lets only one thread limit OpenBLAS, the first; any of ours may be the last.
        OpenBLASController.clear_controlling_thread(force=True)
        self.blas = ThreadpoolController().limit(limits=1, user_api="blas")
        os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
        self.contexts = Counter[int]()
        self.openmp: dict[int, Any] = {}

    def enter(self, thread: int) -> None:
        """Limit a thread, unless it is in another context."""
        if not self.contexts[thread]:
            self.openmp[thread] = ThreadpoolController().limit(limits=1, user_api="openmp")
            if torch := sys.modules.get("torch"):
                # When a thread first uses torch, it takes the number that any thread set last.
                torch.get_num_threads()
                torch.set_num_threads(1)
        self.contexts[thread] += 1

    def leave(self, thread: int) -> None:
        """Restore the former limits of the thread, and after the last context of the process."""
        self.contexts[thread] -= 1
        if self.contexts[thread]:
            return
        del self.contexts[thread]
        self.openmp.pop(thread).restore_original_limits()
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(self.torch_threads)
        if self.contexts:
            return
        OpenBLASController.clear_controlling_thread(force=True)
        self.blas.restore_original_limits()
        OpenBLASController.clear_controlling_thread()
        for name in _THREAD_VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(self.variables)


_limits: _Limits | None = None


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one BLAS, OpenMP and torch thread in this context, then restore the former number.

    The limit also applies to libraries that are loaded in this context.
    """
    global _limits
    thread = threading.get_ident()
    with _lock:
        _limits = limits = _limits or _Limits()
        limits.enter(thread)
    try:
        yield
    finally:
        with _lock:
            limits.leave(thread)
            if not limits.contexts:
                _limits = None
