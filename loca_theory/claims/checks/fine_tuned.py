"""Claims on the matrices of one fine-tuned model, measured from stored tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from loca_theory.claims.checks.empirical import load
from loca_theory.claims.estimates import Estimate, Returned, Rng
from loca_theory.increments import calibrated_test, fit_bulk
from loca_theory.increments.histogram import histogram
from loca_theory.increments.spectrum import BulkFit

_Array = NDArray[np.float64]


def increments(
    *, results: Path | None, table: str, column: str, is_complement: bool = False
) -> Returned:
    """Median of a statistic over the matrices of a full fine-tune that are not embeddings.

    The median counts as exact, because these are all matrices of the model.

    Args:
        table: Pattern of the names of the tables, which ``loca-theory analyze`` writes.
        column: ``tv``, ``tv_p_value_as_printed``, ``mp_distance``, ….
        is_complement: Use 1 less the statistic, which turns an upper-tail p-value into the
            percentile.

    Source: Fig. 1 of the paper.
    """
    rows = load(results, table, ("name", "kind", column), ("name",))
    if rows is None:
        return {}, f"There is no table {table}.parquet."
    values = rows.loc[rows["kind"] != "embedding", column].dropna().to_numpy(dtype=np.float64)
    values = 1 - values if is_complement else values
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

    Source: the figure spectral_analysis_appendix.
    """
    rows = load(results, table, ("name", "quantity", "p", "q", "values"), ("name", "quantity"))
    if rows is None or "weights" not in set(rows["quantity"]):
        return {}, f"There is no table {table}.parquet with the weights' spectra."
    return {
        name: _distance(fit_bulk(values, p, q))
        for name, quantity, p, q, values in rows.itertuples(index=False)
        if quantity == "weights"
    }


def _distance(fit: BulkFit) -> float:
    return 1.0 if fit.kolmogorov is None else fit.kolmogorov


def picture_normality(*, rng: Rng, results: Path | None, table: str) -> Returned:
    """Total variation of the block means of a full fine-tune's ΔW from normal, for each matrix.

    The bias of the counting noise is removed.

    Args:
        table: Pattern of the tables' names.

    Source: the figure visualization_W; full fine-tuning is said to look Gaussian.
    """
    found = _pictures(results, table, "full")
    if not found:
        return {}, f"There is no table {table}.parquet with full."
    parts = {}
    for name, block in found.items():
        test = calibrated_test(histogram(torch.from_numpy(block)), rng, epsilon=0.0)
        error = (test.high - test.estimate) / float(stats.norm.ppf(0.975))
        parts[name] = Estimate(test.estimate, error, block.size)
    return parts


def _pictures(results: Path | None, table: str, method: str) -> dict[str, _Array]:
    """Block means of each matrix, by task and layer."""
    key = ("task", "method", "layer", "row")
    rows = load(results, table, (*key, "values"), key)
    if rows is None:
        return {}
    mine = rows[rows["method"] == method].sort_values("row")
    return {
        f"{task}, {layer}": np.stack(list(one["values"])).astype(np.float64)
        for (task, layer), one in mine.groupby(["task", "layer"])
    }
