"""One thread for the numerical libraries, so that results do not depend on their number."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import joblib
from threadpoolctl import threadpool_limits

# Numerical libraries read these when they are loaded.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


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
