"""The tiers of the suite, and one thread per process for all of it."""

from __future__ import annotations

import os

import pytest

# Before anything loads a numerical library, and for processes that tests start as well. With more
# threads than cores they wait for each other, and the last bits of a product of matrices depend on
# the number of threads.
os.environ |= dict.fromkeys(("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    deep = os.environ.get("LOCA_THEORY_DEEP") == "1"
    for item in items:
        if item.get_closest_marker("deep") and not deep:
            item.add_marker(pytest.mark.skip(reason="deep tier: set LOCA_THEORY_DEEP=1 to run it"))
        if item.get_closest_marker("cuda") and not _cuda():
            item.add_marker(pytest.mark.skip(reason="torch sees no CUDA device"))


def _cuda() -> bool:
    import torch

    return torch.cuda.is_available()
