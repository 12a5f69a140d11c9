"""Execution of many independent computations: seeds, stored results, resumption, local workers.

A sweep is a list of :class:`Point`; :class:`Runner` computes the missing ones and keeps each as one
small file in a :class:`ResultStore` the moment it is done. Killed at any instant and started again,
the same sweep finishes the rest and yields the same numbers to the bit. Nothing here knows what is
being computed.
"""

from loca_theory.sweeps.backends import Backend, Cluster
from loca_theory.sweeps.execution import DEFAULT_RUNNER, Runner, SweepInterruptedError
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
    "rows",
    "store_rows",
    "write_atomically",
]
