"""A store and a point in it, for every test of this room."""

import pytest

from loca_theory.sweeps import Point, ResultStore


@pytest.fixture
def store(tmp_path):
    return ResultStore(tmp_path / "points", "v1")


@pytest.fixture
def point():
    return Point("experiment", {"K": 16, "seed": 0, "ranks": [1, 2]})
