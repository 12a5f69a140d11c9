"""A store and a cell in it, for every test of this package."""

import pytest

from loca_theory.sweeps import ResultStore
from loca_theory.sweeps.store import Point


@pytest.fixture
def store(tmp_path):
    return ResultStore(tmp_path / "points")


@pytest.fixture
def point():
    return Point("experiment", {"K": 16, "seed": 0, "ranks": [1, 2]})
