"""The tiers of the suite, the devices, and one thread per process for all of it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

# Before anything loads a numerical library, and for processes that tests start as well. With more
# threads than cores they wait for each other, and the last bits of a product of matrices depend on
# the number of threads.
os.environ |= dict.fromkeys(("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

# Whether tests of any device have a stand-in for a GPU; see tests/pretend.py.
_PRETENDS = os.environ.get("LOCA_THEORY_PRETEND") == "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    deep = os.environ.get("LOCA_THEORY_DEEP") == "1"
    for item in items:
        if item.get_closest_marker("deep") and not deep:
            item.add_marker(pytest.mark.skip(reason="deep tier: set LOCA_THEORY_DEEP=1 to run it"))
        if item.get_closest_marker("cuda") and not (_has_stand_in(item) if _PRETENDS else _cuda()):
            item.add_marker(pytest.mark.skip(reason="torch sees no CUDA device"))


_CUDA = pytest.param("cuda", marks=pytest.mark.cuda)


@pytest.fixture(params=["cpu", _CUDA])
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """Where the work of a test happens; what it is compared with is computed on the CPU."""
    yield from _device(request.param)


@pytest.fixture(params=[_CUDA])
def accelerator(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """Where the work of a test happens that compares with the same work on the CPU."""
    yield from _device(request.param)


@pytest.fixture
def no_waiting(accelerator: torch.device) -> Callable[..., AbstractContextManager[None]]:
    """A context that fails if the CPU waits for the device more than ``but`` times."""
    import torch

    @contextmanager
    def on_the_card(but: int = 0) -> Iterator[None]:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn" if but else "error")
            try:
                yield
            finally:
                torch.cuda.set_sync_debug_mode("default")
        waits = [
            str(warning.message) for warning in said if "called a sync" in str(warning.message)
        ]
        assert len(waits) <= but, waits

    @contextmanager
    def on_the_stand_in(but: int = 0) -> Iterator[None]:
        from . import pretend

        pretend.waits.clear()
        yield
        assert len(pretend.waits) <= but, pretend.waits

    return on_the_stand_in if _PRETENDS else on_the_card


def _device(name: str) -> Iterator[torch.device]:
    import torch

    if name == "cpu" or not _PRETENDS:
        yield torch.device(name)
        return
    from . import pretend

    with pretend.active():
        yield pretend.DEVICE


def _has_stand_in(item: pytest.Item) -> bool:
    return not {"device", "accelerator"}.isdisjoint(getattr(item, "fixturenames", ()))


def _cuda() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch):
    """Make the printed output independent of the terminal and the locale of the test run."""
    for name in ("COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONUTF8", "1")


@pytest.fixture
def group():
    """A process group of this process alone."""
    import torch

    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()
