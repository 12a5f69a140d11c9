"""Stored results: exact, and believed only where they can be."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loca_theory import ResourceError
from loca_theory.sweeps import Cell, ResultStore

RESULT = {"mean": [0.1, -0.0, 5e-324, 1.7976931348623157e308], "count": 3}


def files(store):
    return sorted(path.name for path in store.folder.iterdir())


# The same fixture for every example is meant: each example writes its own content.
@settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.dictionaries(st.text(max_size=3), st.lists(st.floats(), max_size=5), max_size=3))
def test_any_later_store_loads_floats_to_the_bit(store, point, result):
    store.save(point, result)
    later = ResultStore(store.folder)
    assert repr(later.load(point)) == repr(result)
    assert later.rejected == []


def test_other_code_does_not_see_the_result(store, point):
    store.save(point, RESULT)
    assert store.load(point) == RESULT
    assert store.outdated() == 0
    other = replace(point, packages=("loca_theory.sweeps",))
    later = ResultStore(store.folder)
    assert later.load(other) is None
    assert later.outdated() == 1
    assert later.rejected == []


def test_a_result_that_json_does_not_know_is_refused_and_leaves_nothing(store, point):
    with pytest.raises(TypeError, match="not JSON serializable"):
        store.save(point, {"a": object()})
    assert files(store) == []


def _checksum(result):
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()


def _sealed(result):
    """Another result with its own right checksum."""
    return {"result": result, "checksum": _checksum(result)}


# Every way in which a file can be wrong: its bytes; what changes in a good one; a text replaced.
BYTES = {
    "empty": b"",
    "not utf-8": b'{"result": "\xff"}',
    "truncated": b'{"version": "0", "result": {"mean": [0.',
    "two documents": b"{}{}",
    "nested too deeply": b"[" * 100_000,
    "a number too long": b"9" * 10_000,
    "the result alone": json.dumps(RESULT).encode(),
}
CHANGES = {
    "another checksum": {"checksum": "0" * 64},
    "no checksum": {"checksum": None},
    "a null result": {"result": None},
    "a null result, with its checksum": _sealed(None),
    "a list as result, with its checksum": _sealed([1.0]),
    "no point": {"point": None},
    "another point": {"point": {"experiment": "experiment", "parameters": {"K": 17}}},
    "another version": {"version": "v0"},
}
TEXTS = {
    "a changed value": ("0.1", "0.2"),
    "a point that Python holds for equal": ('"seed": 0', '"seed": false'),
    "another experiment": ('"experiment": "experiment"', '"experiment": "other"'),
}


def test_a_file_is_plain_json_with_a_checksum(store, point):
    store.save(point, RESULT)
    content = json.loads(store.path(point).read_text(encoding="utf-8"))
    expected = {"result": RESULT, "checksum": _checksum(RESULT), "version": point.version}
    assert content == {**content, **expected, "point": point.describe()}


@pytest.mark.parametrize("damage", [*BYTES, *CHANGES, *TEXTS])
def test_a_file_that_cannot_be_trusted_is_reported_and_computed_again(store, point, damage):
    store.save(point, RESULT)
    path = store.path(point)
    good = path.read_text()
    changed = json.dumps({**json.loads(good), **CHANGES.get(damage, {})})
    path.write_bytes(BYTES.get(damage, changed.replace(*TEXTS.get(damage, ("", ""))).encode()))
    assert store.load(point) is None
    (line,) = store.rejected
    assert line.startswith(path.name)
    assert line.endswith("recomputed")
    assert "\n" not in line
    store.save(point, RESULT)
    assert repr(store.load(point)) == repr(RESULT)
    assert len(store.rejected) == 1


def test_a_folder_in_the_files_location_is_rejected_and_then_an_error(store, point):
    store.path(point).mkdir()
    assert store.load(point) is None
    assert "unreadable" in store.rejected[0]
    with pytest.raises(ResourceError, match=r"cannot write .*choose another folder"):
        store.save(point, RESULT)


KILLED_BEFORE_RENAME = """
import os, pathlib, signal, sys
from loca_theory.sweeps import ResultStore
from loca_theory.sweeps.store import Point

point = Point("experiment", {"K": 16, "seed": 0, "ranks": [1, 2]})
store = ResultStore(sys.argv[1])
pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
store.save(point, {"mean": [1.0]})
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is a POSIX signal")
def test_a_writer_killed_before_the_rename_leaves_what_was_there(store, point):
    store.save(point, RESULT)
    done = subprocess.run(
        [sys.executable, "-c", KILLED_BEFORE_RENAME, str(store.folder)], check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert [name for name in files(store) if name.endswith(".partial")], "killed while writing"
    assert store.load(point) == RESULT
    assert store.rejected == []


def test_only_old_partial_files_are_removed(store, point):
    store.save(point, RESULT)
    old, young, foreign = (store.folder / name for name in ("a.json.partial", "b.partial", "c.txt"))
    for path in (old, young, foreign):
        path.write_text("{")
    yesterday = time.time() - 86_400
    for path in (old, foreign, store.path(point)):
        os.utime(path, (yesterday, yesterday))
    later = ResultStore(store.folder)
    assert files(later) == sorted([store.path(point).name, "b.partial", "c.txt"])
    assert later.load(point) == RESULT


# --- cells ---


class Kind(StrEnum):
    ROUND = "round"


@dataclass(frozen=True)
class Shape:
    kind: Kind
    sides: tuple[int, ...]


@dataclass(frozen=True)
class Drawn(Cell):
    experiment = "drawn"

    shape: Shape
    scale: float | None
    law: object = field(default=int, metadata={"describe": lambda law: law.__name__})


def test_a_cell_is_described_by_its_fields_and_its_key_changes_with_each():
    cell = Drawn(Shape(Kind.ROUND, (1, 2)), 1.0)
    shape = {"kind": "round", "sides": [1, 2]}
    parameters = {"shape": shape, "scale": 1.0, "law": "int"}
    assert cell.describe() == {"experiment": "drawn", "parameters": parameters}
    of_numpy = Drawn(Shape(Kind.ROUND, (np.int64(1), 2)), np.float32(1.0))
    assert of_numpy.describe() == cell.describe()
    changed = [
        Drawn(Shape(Kind.ROUND, (1, 3)), 1.0),
        Drawn(Shape(Kind.ROUND, (1, 2)), 1),
        Drawn(Shape(Kind.ROUND, (1, 2)), None),
        Drawn(Shape(Kind.ROUND, (1, 2)), 1.0, float),
    ]
    assert len({any_cell.key() for any_cell in (cell, *changed)}) == 5
    assert cell.key() == Drawn(Shape(Kind.ROUND, (1, 2)), 1.0).key()


@dataclass(frozen=True)
class Area:
    shape: Shape
    values: tuple[float, ...]
    error: float | None = None


@dataclass(frozen=True)
class Failure:
    reason: str


class Typed(Drawn):
    result = Area | Failure


def test_a_result_is_restored_in_the_type_that_was_computed(store):
    cell = Typed(Shape(Kind.ROUND, (1, 2)), 1.0)
    for result in (Area(cell.shape, (0.1, -0.0, np.inf, np.nan, 5e-324)), Failure("too small")):
        store.save(cell, result)
        assert repr(ResultStore(store.folder).load(cell)) == repr(result)


def test_a_result_of_another_type_is_computed_again(store):
    cell = Typed(Shape(Kind.ROUND, (1, 2)), 1.0)
    store.save(cell, {"reason": None})
    assert store.load(cell) is None
    assert "unreadable (ValidationError)" in store.rejected[0]
