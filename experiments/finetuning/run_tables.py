"""Runs, read from the tables of one or several experiments."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from loca_theory.errors import ResourceError
from loca_theory.sweeps.tables import find_tables

# Settings of LoCA that runs may differ in, and which are columns of their tables.
SETTINGS = ("scaling", "alternating", "location_rate")
_RUN = ("task", "method", "r", "seed", *SETTINGS)
COLUMNS = (*_RUN, "measure", "metric", "loss", "diverged")
_NUMBERS = ("r", *SETTINGS, "metric", "loss")
# Summaries and curves have no metric per seed, so they are skipped.
_RUNS_HAVE = {"task", "method", "seed", "metric", "diverged"}


def read_runs(folder: Path) -> pd.DataFrame:
    """Read the runs of all tables in a folder that have the columns of runs, each run once."""
    tables = []
    for stored in find_tables(folder, ["*"]):
        path = stored.path
        try:
            table = stored.read()
        except (OSError, ValueError) as error:
            raise ResourceError(
                f"{path} cannot be read ({type(error).__name__}); delete it and make it again"
            ) from error
        if not set(table.columns) >= _RUNS_HAVE:
            continue
        missing = sorted({*COLUMNS} - {*table.columns})
        if missing:
            raise ResourceError(f"{path} has runs without {', '.join(missing)}; make it again")
        if "setting" in table.columns:  # drop runs at rates that were not chosen
            table = table[table["setting"] != "rate"]
        tables.append(table[[*COLUMNS]].astype(dict.fromkeys(_NUMBERS, float)))
    if not tables:
        raise ResourceError(
            f"{folder} has no table of runs; give the folder that the runs wrote to"
        )
    runs = pd.concat(tables, ignore_index=True).drop_duplicates()
    twice = runs[runs.duplicated(list(_RUN))]
    if len(twice):
        run = ", ".join(f"{name} {twice.iloc[0][name]}" for name in ("task", "method", "seed"))
        raise ResourceError(
            f"the tables disagree on the run {run}; give a folder that has it only once"
        )
    return runs
