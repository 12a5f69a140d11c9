"""Workers of a dask or Ray cluster: the options ``--backend`` and ``--scheduler``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

from loca_theory.errors import InvalidArgumentError, ResourceError

_EXAMPLES = {"dask": "tcp://host:8786", "ray": "host:6379"}
_STARTS = {"dask": "dask scheduler", "ray": "ray start --head"}
_TIMEOUT_S = 10


@contextmanager
def cluster(
    jobs: int = -1, backend: Literal["loky", "dask", "ray"] = "loky", scheduler: str | None = None
) -> Iterator[int]:
    """Open a joblib context on the named workers, none for ``loky``; yield the number of jobs.

    Args:
        jobs: Number of worker processes, -1 for one per core. Results do not depend on it.
        backend: Where workers run: on this machine (loky), or on a dask or Ray cluster.
        scheduler: Address of a running dask scheduler or Ray head.
    """
    if backend == "loky":
        if scheduler is not None:
            raise InvalidArgumentError('scheduler="..." needs backend="dask" or backend="ray"')
        yield jobs
        return
    import joblib

    from loca_theory.sweeps import Runner

    workers = joblib.effective_n_jobs(Runner(jobs=jobs).jobs)  # refuses 0
    start = _start_dask if backend == "dask" else _start_ray
    with ExitStack() as stack:
        try:
            start(stack, scheduler, workers)
        except ImportError as error:
            raise ResourceError(
                f"the {backend} backend is not installed; install it with: "
                f"pip install 'loca-theory[{backend}]'"
            ) from error
        except ValueError as error:
            raise InvalidArgumentError(
                f"{scheduler!r} is not an address of a {backend} scheduler; write "
                f"{_EXAMPLES[backend]}"
            ) from error
        except (OSError, OverflowError, RuntimeError, TimeoutError) as error:
            where = f"at {scheduler}" if scheduler else "on this machine"
            raise ResourceError(
                f"no {backend} scheduler with workers answered {where} within {_TIMEOUT_S} s; "
                f"start one with: {_STARTS[backend]}"
            ) from error
        stack.enter_context(joblib.parallel_config(backend=backend, n_jobs=-1))
        yield -1  # all workers of the cluster


def _start_dask(stack: ExitStack, scheduler: str | None, jobs: int) -> None:
    import distributed

    if scheduler == "":
        raise ValueError
    client = distributed.Client(
        scheduler,
        timeout=_TIMEOUT_S,
        # Any free port, because dask warns if another scheduler uses its default port.
        **(
            {}
            if scheduler
            else {
                "n_workers": jobs,
                "threads_per_worker": 1,
                "dashboard_address": "127.0.0.1:0",
                "scheduler_kwargs": {"dashboard": False},
            }
        ),
    )
    stack.enter_context(client).wait_for_workers(1, timeout=_TIMEOUT_S)


def _start_ray(stack: ExitStack, scheduler: str | None, jobs: int) -> None:
    import logging
    import socket

    import ray
    from ray.util.joblib import register_ray

    if scheduler is not None:
        # Ray itself retries for minutes.
        host, _, port = scheduler.removeprefix("ray://").rpartition(":")
        if not host:
            raise ValueError
        socket.create_connection((host, int(port)), timeout=_TIMEOUT_S).close()
    with warnings.catch_warnings():
        # Ray warns about changes of its defaults at every start.
        warnings.simplefilter("ignore", FutureWarning)
        local_options = {} if scheduler else {"num_cpus": jobs, "include_dashboard": False}
        ray.init(
            address=scheduler, log_to_driver=False, logging_level=logging.ERROR, **local_options
        )
    stack.callback(ray.shutdown)
    register_ray()
