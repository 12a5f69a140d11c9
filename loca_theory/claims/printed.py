"""Numbers of the paper's tables, by their LaTeX labels, for the checks that judge them.

They are read from the transcription in ``printed_tables``, one file per table. A row holds for all
models, methods or tasks if it names none. Numbers are as printed, but parameters and counts are
written out (0.3M is 300000), and ``notes`` list what looks wrong. At commit 5c3bc85, the last with
a parser of the paper's LaTeX, all 1015 comparisons with it agreed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

# By column: benchmarks or metrics, and the mean where it is printed.
Scores = Mapping[str, float]

FOLDER = files("loca_theory.claims") / "printed_tables"
"""The transcribed tables."""

# The file of each table of scores, and what the names of its models begin with.
_FILES = {
    "glue": ("glue_results", "RoBERTa-"),
    "vit": ("vit_results", "ViT-"),
    "e2e": ("e2e_results", "GPT-2 "),
    "instruction": ("instruction_results", ""),
    "ablation": ("ablation", ""),
}


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def _scores(table: str, field: str = "values") -> dict[str, dict[str, Scores]]:
    """Scores, or spreads, by model and method; one that is printed at two budgets has both."""
    file, prefix = _FILES[table]
    found: dict[str, dict[str, Scores]] = {}
    for row in _read(file)["rows"]:
        model, method = row.get("model", "base"), row["method"]
        if (table, method) == ("glue", "FF"):
            method = "FT"
        if table == "vit" and method in ("FourierFT", "LoCA"):
            method = f"{method} {row['values']['parameters'] // 1000}K"
        scores = {name: one for name, one in row.get(field, {}).items() if name != "parameters"}
        found.setdefault(model.removeprefix(prefix), {})[method] = scores
    return found


def _marked(mark: str) -> dict[str, dict[str, Scores]]:
    return {
        table: {model.removeprefix(prefix): scores for model, scores in marked.items()}
        for table, (file, prefix) in _FILES.items()
        if (marked := _read(file).get(mark))
    }


TABLES = {table: _scores(table) for table in _FILES}
"""Scores by table, model, method and column."""

MARKED = {mark: _marked(mark) for mark in ("bold", "underlined")}
"""The number in bold, or underlined, by table, model and column."""

SPREADS = _scores("vit", "spreads")["large"]["LoCA 144K"]
"""Standard deviations of LoCA with 144K on ViT-large, by column of ``vit`` but the mean."""


def _costs(field: str) -> dict[str, dict[str, float]]:
    """A cost by method and model, where it was measured."""
    found: dict[str, dict[str, float]] = {}
    for row in _read("complexity")["rows"]:
        if field in row["values"]:
            found.setdefault(row["method"], {})[row["model"]] = row["values"][field]
    return found


SPEEDS = _costs("speed")
"""Iterations per second by method and model. LoCA-1 is the sparse form, LoCA-2 that by FFT, LoCA-3
that by matrix products, the default."""

MEMORY = _costs("memory")
"""Memory in MB by method and model."""

GLUE_STEPS = {
    (row["task"], row["model"].removeprefix("RoBERTa-")): row["values"]
    for row in _read("glue_hyperparameters")["rows"]
    if "alternating_steps" in row["values"]
}
"""Hyper-parameters of LoCA by GLUE task and size of RoBERTa, with ``epochs``, and B_s as
``alternating_steps``."""


def settings(table: str, model: str = "") -> dict[str, Any]:
    """Hyper-parameters of LoCA for a model, from a table that prints common ones only once."""
    found: dict[str, Any] = {}
    for row in _read(f"{table}_hyperparameters")["rows"]:
        if row.get("method", "LoCA") == "LoCA" and row.get("model", model) == model:
            found |= row["values"]
    return found


GLUE_BATCH = 32
"""Batch size of all GLUE tasks."""

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
