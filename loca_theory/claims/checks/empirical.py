"""Claims measured from stored tables: of experiments, of analyses, of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import stats

from loca_theory.claims.estimates import Estimate, NotMeasuredError, Returned, Rng
from loca_theory.errors import ResourceError
from loca_theory.increments import calibrated_test, fit_bulk
from loca_theory.increments.histogram import histogram
from loca_theory.sweeps.tables import find_tables

_DECIDED = (
    "verdict",
    "difference",
    "standard_error",
    "low",
    "high",
    "fixed_low",
    "fixed_high",
    "kinds_low",
    "kinds_high",
    "draws_error",
    "draws_low",
    "draws_high",
    "draws_verdict",
    "margin",
    "measure",
    "tasks",
    "seeds",
    "pairs",
)
# Which columns decide: those for independent tasks, or for tasks of which some share a draw.
_BY_TASKS = ("verdict", "standard_error", "low", "high")
_BY_DRAWS = ("draws_verdict", "draws_error", "draws_low", "draws_high")


def load(
    results: Path | None, pattern: str, columns: Sequence[str], key: Sequence[str]
) -> pd.DataFrame:
    """Read all tables whose names match a pattern and which have some columns.

    A run, which the columns of the key identify, counts once if it is in two tables.
    """
    tables = {}
    for stored in find_tables(results, [pattern]):
        try:
            table = stored.read()
        except (OSError, ValueError) as error:
            why = type(error).__name__
            raise ResourceError(
                f"{stored.path} cannot be read ({why}); delete it and make it again"
            ) from error
        if set(columns) <= set(table.columns):
            tables[str(stored.path)] = table[list(columns)]
    if not tables:
        raise NotMeasuredError(f"There is no table {pattern}.parquet.")
    rows = pd.concat(tables.values(), ignore_index=True)
    # Lists cannot be hashed, so rows are compared as text.
    rows = rows.loc[~rows.astype(str).duplicated()]
    if rows.duplicated(list(key)).any():
        run = rows[rows.duplicated(list(key))].iloc[0][list(key)]
        raise ResourceError(
            f"{' and '.join(tables)} disagree on the run {', '.join(map(str, run))}; "
            "give a folder that has only one of them"
        )
    return rows


def designed(
    *, results: Path | None, table: str, comparison: str, by_draws: bool = False
) -> Returned:
    """Mean difference between the two sides of a comparison, over tasks.

    The design of the experiments, ``experiments/design.toml``, defines the verdict. The bounds have
    the error rate of the comparison's family.

    Args:
        table: Pattern of the names of the table that ``python -m experiments.design --out`` writes.
        comparison: Name of the comparison.
        by_draws: Whether bounds and verdict count tasks with the same random draw as dependent.
    """
    rows = load(results, table, ("comparison", *_DECIDED), ("comparison",)).set_index("comparison")
    if comparison not in rows.index:
        return {}, f"There is no table {table}.parquet with {comparison}."
    row: Any = rows.loc[comparison]
    size = f"{row['tasks']} tasks × {row['seeds']} seeds"
    if pd.isna(row["verdict"]):
        return {}, f"Of {size}, {row['pairs']} pairs of runs are there."
    unit = "per cent of the loss" if row["measure"] == "loss" else f"points of {row['measure']}"
    verdict, *columns = _BY_DRAWS if by_draws else _BY_TASKS
    value, error, low, high = map(float, row[["difference", *columns]])
    within = max(abs(low), abs(high))
    note = f"{size}; margin {row['margin']:g} {unit}; within {within:.2g}; for these tasks "
    note += f"alone {row['fixed_low']:+.2f} to {row['fixed_high']:+.2f}"
    if pd.notna(row["kinds_low"]):
        note += f", for other kinds of tasks {row['kinds_low']:+.2f} to {row['kinds_high']:+.2f}"
    note += "."
    estimate = Estimate(value, error, int(row["pairs"]), bounds=(low, high))
    return {f"in {unit}": estimate}, note, row[verdict]


def speed(*, results: Path | None, table: str, rival: str) -> Returned:
    """Steps per second relative to LoRA's, the smallest over the models measured.

    The table has one measurement per model without a standard error, so the value counts as exact.

    Args:
        table: Pattern of the tables' names.
        rival: The form of LoCA.
    """
    rows = load(results, table, ("model", "rival", "of_lora"), ("model", "rival"))
    ratios = rows.loc[rows["rival"] == rival, "of_lora"].dropna()
    if ratios.empty:
        return {}, f"{table}.parquet has no {rival}."
    return ratios.min(), f"Models measured: {len(ratios)}."


def increments(*, results: Path | None, table: str, column: str) -> Returned:
    """Median of a statistic over the matrices of a full fine-tune that are not embeddings.

    The median counts as exact, because these are all matrices of the model.

    Args:
        table: Pattern of the names of the tables, which ``loca-theory analyze`` writes.
        column: ``tv``, ``tv_p_value_as_printed``, ``mp_distance``, ….
    """
    rows = load(results, table, ("name", "kind", column), ("name",))
    values = rows.loc[rows["kind"] != "embedding", column].dropna().to_numpy(dtype=np.float64)
    if not len(values):
        return {}, f"{table}.parquet has no {column}."
    note = f"{len(values)} matrices, {values.min():.4g} to {values.max():.4g}."
    return {f"median {column}": float(np.median(values))}, note


def weights_spectrum(*, results: Path | None, table: str) -> Returned:
    """Kolmogorov distance of W′'s spectrum from Marchenko and Pastur's law, for each matrix.

    The law's σ is fitted to the bulk, as for ΔW. A spectrum without a bulk has distance 1, the
    largest possible.

    Args:
        table: Pattern of the names of the tables, which ``loca-theory analyze`` writes.
    """
    rows = load(results, table, ("name", "quantity", "p", "q", "values"), ("name", "quantity"))
    spectra = rows[rows["quantity"] == "weights"].drop(columns="quantity")
    fits = {name: fit_bulk(values, p, q) for name, p, q, values in spectra.itertuples(index=False)}
    gaps = {name: 1.0 if law.kolmogorov is None else law.kolmogorov for name, law in fits.items()}
    return gaps or ({}, f"There is no table {table}.parquet with the weights' spectra.")


# A row or column with less than this fraction of the mean energy counts as empty.
_EMPTY = 0.1


def normality(*, rng: Rng, results: Path | None, table: str) -> Returned:
    """Total variation of the block means of a full fine-tune's ΔW from normal, for each matrix.

    The bias of the counting noise is removed.

    Args:
        table: Pattern of the tables' names.
    """
    parts = {}
    for (name, method), block in _pictures(results, table).items():
        if method != "full":
            continue
        test = calibrated_test(histogram(torch.from_numpy(block)), rng, epsilon=0.0)
        error = (test.high - test.estimate) / float(stats.norm.ppf(0.975))
        parts[name] = Estimate(test.estimate, error, block.size)
    return parts or ({}, f"{table}.parquet has no full fine-tune.")


def empty_lines(*, results: Path | None, table: str) -> Returned:
    """Fraction of rows and columns of LoRA's block means that are empty, less that of full tuning.

    A row or column is empty if its energy is below a tenth of the mean over rows or columns.

    Args:
        table: Pattern of the tables' names.
    """
    empty = {}
    for key, block in _pictures(results, table).items():
        energies = [np.square(block).mean(axis) for axis in (0, 1)]
        empty[key] = float(np.mean([energy < _EMPTY * energy.mean() for energy in energies]))
    full = [name for name, method in empty if method == "full"]
    return {name: empty[name, "lora"] - empty[name, "full"] for name in full}


def _pictures(results: Path | None, table: str) -> dict[tuple[str, str], NDArray[np.float64]]:
    """The block means of each increment, by task with layer, and method."""
    key = ("task", "method", "layer", "row")
    rows = load(results, table, (*key, "values"), key).sort_values("row")
    return {
        (f"{task}, {layer}", str(method)): np.stack(list(picture["values"])).astype(np.float64)
        for (task, layer, method), picture in rows.groupby(["task", "layer", "method"])
    }
