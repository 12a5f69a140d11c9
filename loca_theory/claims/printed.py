"""Numbers of the paper's tables, by their LaTeX labels, for the checks that judge them.

They are read from the transcription in ``printed_tables``, one file per table. A row holds for all
models, methods or tasks if it names none. Numbers are as printed, but parameters and counts are
written out (0.3M is 300000), and ``notes`` list what looks wrong. At commit 5c3bc85, the last with
a parser of the paper's LaTeX, all 1015 comparisons with it agreed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import pandas as pd

# By column: benchmarks or metrics, and the mean where it is printed.
Scores = Mapping[str, float]

FOLDER = files("loca_theory.claims") / "printed_tables"
"""The transcribed tables."""

# Common beginnings of the names of models, by table of scores.
_PREFIXES = {"glue": "RoBERTa-", "vit": "ViT-", "e2e": "GPT-2 "}


@cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def scores(table: str, field: str = "values") -> dict[str, dict[str, Scores]]:
    """Scores, or ``spreads``, by model and method; one that is printed at two budgets has both."""
    prefix = _PREFIXES.get(table, "")
    scores_of: dict[str, dict[str, Scores]] = {}
    for row in _read(f"{table}_results")["rows"]:
        model, method = row.get("model", "base"), row["method"]
        if (table, method) == ("glue", "FF"):
            method = "FT"
        if table == "vit" and method in ("FourierFT", "LoCA"):
            method = f"{method} {row['values']['parameters'] // 1000}K"
        values = {name: score for name, score in row.get(field, {}).items() if name != "parameters"}
        scores_of.setdefault(model.removeprefix(prefix), {})[method] = values
    return scores_of


def marked(table: str, mark: str) -> dict[str, Scores]:
    """The numbers that are ``bold``, or ``underlined``, by model and column."""
    prefix = _PREFIXES.get(table, "")
    rows = _read(f"{table}_results")[mark]
    return {model.removeprefix(prefix): row for model, row in rows.items()}


def costs(field: str, *methods: str) -> pd.DataFrame:
    """A cost of some methods, by model, where all are measured.

    The cost is ``speed`` in iterations per second, or ``memory`` in MB. LoCA-1 is the sparse form,
    LoCA-2 that by FFT, LoCA-3 that by matrix products, the default.
    """
    rows = pd.json_normalize(_read("complexity")["rows"])
    table = rows.pivot_table(index="model", columns="method", values=f"values.{field}")
    return table[list(methods)].dropna()


def settings(table: str, model: str = "", task: str = "") -> dict[str, Any]:
    """Hyper-parameters of LoCA, from a table that prints common ones only once.

    The number of steps B_s is ``alternating_steps``.
    """
    values: dict[str, Any] = {}
    condition = {"method": "LoCA", "model": model, "task": task}
    for row in _read(f"{table}_hyperparameters")["rows"]:
        if all(row.get(name, value) == value for name, value in condition.items()):
            values |= row["values"]
    return values


GLUE_TRAINING_SETS = {
    "CoLA": 8551,
    "MNLI": 392_702,
    "MRPC": 3668,
    "QNLI": 104_743,
    "QQP": 363_846,
    "RTE": 2490,
    "SST-2": 67_349,
    "STS-B": 5749,
}
"""Sizes of the training sets of the GLUE tasks, which the paper does not print."""
