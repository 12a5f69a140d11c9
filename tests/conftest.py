"""Tiers of the suite: what needs time or hardware says so and runs where it can."""

from __future__ import annotations

import os

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    deep = os.environ.get("LOCA_THEORY_DEEP") == "1"
    for item in items:
        if "deep" in item.keywords and not deep:
            item.add_marker(pytest.mark.skip(reason="slow tier: set LOCA_THEORY_DEEP=1 to run it"))
        if "cuda" in item.keywords and not _cuda():
            item.add_marker(pytest.mark.skip(reason="torch sees no CUDA device"))


def _cuda() -> bool:
    import torch

    return torch.cuda.is_available()
