"""Workers on this machine or on a cluster, through joblib's backends."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from types import ModuleType

import joblib

from loca_theory.errors import InvalidArgumentError, ResourceError

_TIMEOUT_S = 10


class Backend(StrEnum):
    """Who runs the points of a sweep.

    - ``loky``: processes on this machine.
    - ``dask``: the workers of a dask.distributed scheduler.
    - ``ray``: the workers of a Ray cluster.
    """

    LOKY = "loky"
    DASK = "dask"
    RAY = "ray"


@dataclass(frozen=True)
class Cluster:
    """Where workers are.

    Attributes:
        backend: Who runs them.
        scheduler: Address of a running scheduler, such as ``tcp://host:8786`` (dask) or
            ``host:6379`` (Ray); None starts workers on this machine, on the loopback interface.

    Raises:
        InvalidArgumentError: a scheduler is named for processes on this machine.
    """

    backend: Backend = Backend.LOKY
    scheduler: str | None = None

    def __post_init__(self) -> None:
        if self.scheduler is not None and self.backend is Backend.LOKY:
            msg = "--scheduler needs --backend dask or --backend ray"
            raise InvalidArgumentError(msg)

    @property
    def streams(self) -> bool:
        """Whether results come back one by one as they are finished."""
        return self.backend is not Backend.RAY

    @contextmanager
    def connected(self, jobs: int) -> Iterator[None]:
        """Joblib's parallel calls inside run on these workers.

        Args:
            jobs: Workers to start where no scheduler is named; −1 for one a core.

        Raises:
            ResourceError: the backend is not installed, or nobody answers at the address.
        """
        match self.backend:
            case Backend.LOKY:
                yield
            case Backend.DASK:
                with self._dask(joblib.effective_n_jobs(jobs)):
                    yield
            case Backend.RAY:
                with self._ray(joblib.effective_n_jobs(jobs)):
                    yield

    @contextmanager
    def _dask(self, jobs: int) -> Iterator[None]:
        distributed = _installed("distributed", self.backend)
        try:
            if self.scheduler:
                client = distributed.Client(self.scheduler, timeout=_TIMEOUT_S)
            else:
                client = distributed.Client(
                    n_workers=jobs, threads_per_worker=1, dashboard_address=None
                )
        except (OSError, TimeoutError, ValueError) as error:
            raise self._unreachable() from error
        with client:
            if not client.scheduler_info()["workers"]:
                msg = f"the dask scheduler at {self.scheduler} has no workers; "
                msg += f"start some with: dask worker {self.scheduler}"
                raise ResourceError(msg)
            with joblib.parallel_config(backend="dask"):
                yield

    @contextmanager
    def _ray(self, jobs: int) -> Iterator[None]:
        ray = _installed("ray", self.backend)
        with warnings.catch_warnings():
            # Ray announces changes of its own defaults at every start.
            warnings.simplefilter("ignore", FutureWarning)
            try:
                if self.scheduler:
                    ray.init(address=self.scheduler, log_to_driver=False, logging_level="ERROR")
                else:
                    ray.init(
                        num_cpus=jobs,
                        include_dashboard=False,
                        log_to_driver=False,
                        logging_level="ERROR",
                    )
            except (OSError, ValueError, RuntimeError) as error:
                raise self._unreachable() from error
        try:
            import_module("ray.util.joblib").register_ray()
            with joblib.parallel_config(backend="ray"):
                yield
        finally:
            ray.shutdown()

    def _unreachable(self) -> ResourceError:
        way_out = "ray start --head" if self.backend is Backend.RAY else "dask scheduler"
        place = f"at {self.scheduler}" if self.scheduler else "on this machine"
        msg = f"no {self.backend} scheduler answered {place} within {_TIMEOUT_S} s; "
        return ResourceError(msg + f"start one with: {way_out}")


def _installed(module: str, extra: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        msg = f"the {extra} backend is not installed; install it with: "
        msg += f"pip install 'loca-theory[{extra}]'"
        raise ResourceError(msg) from error
