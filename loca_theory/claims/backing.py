"""The stored observations behind the entries of a claims.json.

An observation is one checksummed file per claim, check, tier, seed, tables and version of the code.
An entry has the numbers of its file, and gives way to the next measurement if there is none:
nothing that was written into a claims.json by hand outlives a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from loca_theory.claims.entries import Entry
from loca_theory.claims.measurement import Measurement
from loca_theory.claims.observation import ClaimCell
from loca_theory.errors import ResourceError
from loca_theory.sweeps import ResultStore

# Where ``loca-theory verify`` stores finished points, below the folder of its claims.json.
_POINTS = "points"


def with_observations(folder: Path, entries: Sequence[Entry]) -> list[Entry]:
    """Give entries the numbers of their stored observations; those without one are not backed."""
    points, store = folder / _POINTS, None
    with suppress(ResourceError):  # of a folder that cannot be written to
        store = ResultStore(points) if points.is_dir() else None
    found: list[Entry] = []
    for one in entries:
        stored = None if store is None else store.load(_cell(one))
        if stored is None:
            found.append(replace(one, backed=False))
        else:
            measured = Measurement.from_json(stored)
            found.append(replace(one, measurement=measured, seconds=stored["seconds"], backed=True))
    return found


def store_observations(folder: Path, entries: Sequence[Entry]) -> None:
    """Store the observations that are not in the folder yet."""
    store = ResultStore(folder / _POINTS)
    for one in entries:
        cell, observed = _cell(one), one.measurement
        stored = store.load(cell)
        if stored is None or Measurement.from_json(stored) != observed:
            store.save(cell, {**observed.to_json(), "seconds": one.seconds})


def _cell(one: Entry) -> ClaimCell:
    return ClaimCell(one.claim, one.tier, one.seed, one.data, one.version)
