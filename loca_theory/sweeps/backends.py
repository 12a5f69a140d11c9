"""Workers on this machine or on a cluster, through joblib's backends."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from types import ModuleType
from typing import Any

import joblib

from loca_theory._lookup import member
from loca_theory.errors import InvalidArgumentError, ResourceError

_TIMEOUT_S = 10
_FEWEST_CPUS = 2


class Backend(StrEnum):
    """Where the points of a sweep run.

    - ``loky``: worker processes on this machine.
    - ``dask``: the workers of a dask.distributed scheduler.
    - ``ray``: the workers of a Ray cluster.
    """

    LOKY = "loky"
    DASK = "dask"
    RAY = "ray"


_MODULES = {Backend.DASK: "distributed", Backend.RAY: "ray"}


@dataclass(frozen=True)
class Cluster:
    """The workers that run a sweep.

    Attributes:
        backend: Kind of workers.
        scheduler: Address of a running scheduler, such as ``tcp://host:8786`` (dask) or
            ``host:6379`` (Ray); None starts workers on this machine, on the loopback interface.

    Raises:
        InvalidArgumentError: the backend is unknown, a scheduler is given for the ``loky`` backend,
            or its address is empty.
    """

    backend: Backend = Backend.LOKY
    scheduler: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "backend", member(Backend, "backend", self.backend))
        if self.scheduler is not None and self.backend is Backend.LOKY:
            msg = 'scheduler="..." needs backend="dask" or backend="ray"'
            raise InvalidArgumentError(msg)
        if self.scheduler == "":
            raise self._no_address()

    @property
    def streams(self) -> bool:
        """Whether results arrive one by one as they are finished."""
        return self.backend is not Backend.RAY

    def check(self) -> None:
        """Check that the workers are available, without starting any.

        Raises:
            InvalidArgumentError: the scheduler's address is malformed.
            ResourceError: the backend is not installed, or the scheduler does not answer.
        """
        if self.scheduler is not None:
            with self.connected(1):
                pass
        elif self.backend is not Backend.LOKY:
            _installed(_MODULES[self.backend], self.backend)

    @contextmanager
    def connected(self, jobs: int) -> Iterator[None]:
        """Run joblib's parallel calls in this context on these workers.

        A nested context reuses the connection, so a study of several sweeps connects only once.

        Args:
            jobs: Number of workers to start if there is no scheduler; −1 for one per core.

        Raises:
            InvalidArgumentError: the scheduler's address is malformed.
            ResourceError: the backend is not installed, or the scheduler does not answer.
        """
        if self.backend is Backend.LOKY or _connected.get() == self:
            yield
            return
        enter = self._dask if self.backend is Backend.DASK else self._ray
        with enter(joblib.effective_n_jobs(jobs)):
            before = _connected.set(self)
            try:
                yield
            finally:
                _connected.reset(before)

    @contextmanager
    def _dask(self, jobs: int) -> Iterator[None]:
        distributed = _installed(_MODULES[self.backend], self.backend)
        try:
            if self.scheduler:
                client = distributed.Client(self.scheduler, timeout=_TIMEOUT_S)
            else:
                client = distributed.Client(
                    n_workers=jobs,
                    threads_per_worker=1,
                    # Any free port, because dask warns if another scheduler uses its default port.
                    dashboard_address="127.0.0.1:0",
                    scheduler_kwargs={"dashboard": False},
                )
        except ValueError as error:
            raise self._no_address() from error
        except (OSError, TimeoutError) as error:
            raise self._unreachable() from error
        with client:
            try:
                client.wait_for_workers(1, timeout=_TIMEOUT_S)
            except TimeoutError as error:
                address = client.scheduler.address
                msg = f"the dask scheduler at {address} has no workers; "
                msg += f"start some with: dask worker {address}"
                raise ResourceError(msg) from error
            with joblib.parallel_config(backend="dask"):
                active: Any = joblib.parallel.get_active_backend()[0]
                workers = active.effective_n_jobs
                # With a single worker, joblib would compute in this process.
                active.effective_n_jobs = lambda n_jobs: max(2, workers(n_jobs))
                yield

    @contextmanager
    def _ray(self, jobs: int) -> Iterator[None]:
        ray = _installed(_MODULES[self.backend], self.backend)
        if self.scheduler:
            self._probe(self.scheduler)
        with warnings.catch_warnings():
            # Ray warns about changes of its defaults at every start.
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
            if self.scheduler and ray.cluster_resources().get("CPU", 0) < _FEWEST_CPUS:
                msg = f"the Ray cluster at {self.scheduler} has a single CPU, so joblib would "
                msg += 'compute in this process; add a node, or use backend="dask"'
                raise ResourceError(msg)
            import_module("ray.util.joblib").register_ray()
            with joblib.parallel_config(backend="ray"):
                yield
        finally:
            ray.shutdown()

    def _probe(self, address: str) -> None:
        """Check that the address answers, because Ray itself retries for minutes."""
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if not (host and port.isdigit()):
            raise self._no_address()
        try:
            socket.create_connection((host, int(port)), timeout=_TIMEOUT_S).close()
        except (OSError, OverflowError) as error:
            raise self._unreachable() from error

    def _no_address(self) -> InvalidArgumentError:
        example = "host:6379" if self.backend is Backend.RAY else "tcp://host:8786"
        msg = f"{self.scheduler!r} is not an address of a {self.backend} scheduler; write {example}"
        return InvalidArgumentError(msg)

    def _unreachable(self) -> ResourceError:
        way_out = "ray start --head" if self.backend is Backend.RAY else "dask scheduler"
        address = f"at {self.scheduler}" if self.scheduler else "on this machine"
        msg = f"no {self.backend} scheduler answered {address} within {_TIMEOUT_S} s; "
        return ResourceError(msg + f"start one with: {way_out}")


# The cluster that the running code is connected to.
_connected: ContextVar[Cluster | None] = ContextVar("connected", default=None)


def _installed(module: str, extra: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        msg = f"the {extra} backend is not installed; install it with: "
        msg += f"pip install 'loca-theory[{extra}]'"
        raise ResourceError(msg) from error
