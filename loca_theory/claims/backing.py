"""The stored observations behind the entries of a claims.json.

An observation is one checksummed file per claim, check, tier, seed, tables and version of the code.
An entry has the numbers of its file, and gives way to the next measurement if there is none:
nothing that was written into a claims.json by hand outlives a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from loca_theory.claims.entries import Entry
from loca_theory.claims.ledger import Claim
from loca_theory.claims.measurement import Measurement, Tier
from loca_theory.claims.observation import EXPERIMENT
from loca_theory.errors import ResourceError
from loca_theory.sweeps import Point, ResultStore

# Where ``loca-theory verify`` stores finished points, below the folder of its claims.json.
_POINTS = "points"


def point_of(claim: Claim, tier: Tier, seed: int, tables: Sequence[str]) -> Point:
    """The point of a sweep that observes a claim."""
    return Point(
        EXPERIMENT,
        {
            "claim": claim.id,
            "check": claim.check,
            "arguments": dict(claim.arguments),
            "comparisons": claim.comparisons,
            "tier": tier.value,
            "seed": seed,
            "tables": list(tables),
        },
    )


def with_observations(folder: Path, entries: Sequence[Entry]) -> list[Entry]:
    """Give entries the numbers of their stored observations; those without one are not backed."""
    points, stores = folder / _POINTS, {}
    with suppress(ResourceError):  # of a folder that cannot be written to
        stores = _stores(points, entries) if points.is_dir() else {}
    found: list[Entry] = []
    for one in entries:
        store = stores.get(one.version)
        stored = None if store is None else store.load(_point(one))
        if stored is None:
            found.append(replace(one, backed=False))
        else:
            measured = Measurement.from_json(stored)
            found.append(replace(one, measurement=measured, seconds=stored["seconds"], backed=True))
    return found


def store_observations(folder: Path, entries: Sequence[Entry]) -> None:
    """Store the observations that are not in the folder yet.

    Raises:
        ResourceError: the folder cannot be written to.
    """
    stores = _stores(folder / _POINTS, entries)
    for one in entries:
        store, observed = stores[one.version], one.measurement
        stored = store.load(_point(one))
        if stored is None or Measurement.from_json(stored) != observed:
            store.save(_point(one), {**observed.to_json(), "seconds": one.seconds})


def _point(one: Entry) -> Point:
    return point_of(one.claim, one.tier, one.seed, one.data)


def _stores(folder: Path, entries: Iterable[Entry]) -> dict[str, ResultStore]:
    return {version: ResultStore(folder, version) for version in {one.version for one in entries}}
