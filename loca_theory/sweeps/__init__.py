"""Execution of many independent computations: seeds, stored results, resumption, workers.

A sweep is a list of :class:`Point`. :class:`Runner` computes the points that have no stored result
and writes each result to a :class:`ResultStore` as soon as it is done, one small file per point. A
sweep that is killed and started again computes only the rest, and its numbers are bit-identical.
This package does not depend on what is computed.
"""

from loca_theory.sweeps.backends import Backend, Cluster
from loca_theory.sweeps.execution import (
    DEFAULT_RUNNER,
    Runner,
    SweepInterruptedError,
    one_thread,
)
from loca_theory.sweeps.files import write_atomically
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.moments import Moments
from loca_theory.sweeps.points import Point
from loca_theory.sweeps.results import Result, rows
from loca_theory.sweeps.seeds import generator
from loca_theory.sweeps.store import ResultStore
from loca_theory.sweeps.tables import find_tables, is_stored, load_rows, store_rows
from loca_theory.sweeps.versions import code_version

__all__ = [
    "DEFAULT_RUNNER",
    "Backend",
    "Cluster",
    "Moments",
    "Point",
    "Result",
    "ResultStore",
    "Runner",
    "SweepInterruptedError",
    "code_version",
    "find_tables",
    "generator",
    "is_stored",
    "load_rows",
    "manifest",
    "one_thread",
    "rows",
    "store_rows",
    "write_atomically",
]
