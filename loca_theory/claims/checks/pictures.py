"""Pictures of learned increments: the means over blocks of entries that the paper plots."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from loca_theory.claims.checks.empirical import load
from loca_theory.claims.estimates import Estimate, Returned, Rng
from loca_theory.increments import calibrated_test
from loca_theory.increments.histogram import histogram

# A row or column with less than this fraction of the mean energy counts as empty.
_EMPTY = 0.1


def normality(*, rng: Rng, results: Path | None, table: str) -> Returned:
    """Total variation of the block means of a full fine-tune's ΔW from normal, for each matrix.

    The bias of the counting noise is removed.

    Args:
        table: Pattern of the tables' names.

    Source: the figure visualization_W; full fine-tuning is said to look Gaussian.
    """
    parts = {}
    for (name, method), block in _pictures(results, table).items():
        if method != "full":
            continue
        test = calibrated_test(histogram(torch.from_numpy(block)), rng, epsilon=0.0)
        error = (test.high - test.estimate) / float(stats.norm.ppf(0.975))
        parts[name] = Estimate(test.estimate, error, block.size)
    return parts or ({}, f"{table}.parquet has no full fine-tune.")


def empty_lines(*, results: Path | None, table: str, method: str = "lora") -> Returned:
    """Fraction of rows and columns of block means that are empty, less that of full fine-tuning.

    A row or column is empty if its energy is below a tenth of the mean over rows or columns.

    Args:
        table: Pattern of the tables' names.
        method: The method.

    Source: the figure visualization_W; LoRA is said to show a structured absence of many elements.
    """
    empty = {}
    for key, block in _pictures(results, table).items():
        energies = [np.square(block).mean(axis) for axis in (0, 1)]
        empty[key] = np.mean([one < _EMPTY * one.mean() for one in energies])
    return {name: float(empty[name, method] - empty[name, "full"])
            for name, one in empty if one == "full"}  # fmt: skip


def _pictures(results: Path | None, table: str) -> dict[tuple[str, str], NDArray[np.float64]]:
    """The block means of each increment, by task with layer, and method."""
    key = ("task", "method", "layer", "row")
    rows = load(results, table, (*key, "values"), key).sort_values("row")
    return {
        (f"{task}, {layer}", str(method)): np.stack(list(picture["values"])).astype(np.float64)
        for (task, layer, method), picture in rows.groupby(["task", "layer", "method"])
    }
