"""Numbers of the paper's tables, by their LaTeX labels, for the checks that judge them.

They are read from the transcription in ``printed_tables``, one file per table, whose schema
``experiments/paper.py`` describes. A score table maps a model and a method to the scores in
the order of :data:`COLUMNS`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

Scores = Mapping[str, Mapping[str, tuple[float, ...]]]

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


COLUMNS: Mapping[str, tuple[str, ...]] = {
    table: tuple(field for field in _read(file)["fields"] if field != "parameters")
    for table, (file, _) in _FILES.items()
}
"""Columns of each table of scores: benchmarks or metrics, and the mean where it is printed."""


def _row(table: str, values: Mapping[str, float]) -> tuple[float, ...]:
    return tuple(values[column] for column in COLUMNS[table])


def _scores(table: str) -> dict[str, dict[str, tuple]]:
    """The scores of a table by model and method; one that is printed at two budgets has both."""
    file, prefix = _FILES[table]
    found: dict[str, dict[str, tuple]] = {}
    for row in _read(file)["rows"]:
        model, method, values = row.get("model", "base"), row["method"], row["values"]
        if (table, method) == ("glue", "FF"):
            method = "FT"
        if table == "vit" and method in ("FourierFT", "LoCA"):
            method = f"{method} {values['parameters'] // 1000}K"
        found.setdefault(model.removeprefix(prefix), {})[method] = _row(table, values)
    return found


def _marked(mark: str) -> dict[str, dict[str, tuple[float, ...]]]:
    return {
        table: {model.removeprefix(prefix): _row(table, each) for model, each in marked.items()}
        for table, (file, prefix) in _FILES.items()
        if (marked := _read(file).get(mark))
    }


TABLES: Mapping[str, Scores] = {table: _scores(table) for table in _FILES}
"""Scores by table, model and method."""

MARKED = {mark: _marked(mark) for mark in ("bold", "underlined")}
"""The number in bold, or underlined, in each column of a table and model."""

SPREADS = next(
    tuple(row["spreads"].values())
    for row in _read("vit_results")["rows"]
    if (row["model"], row["values"].get("parameters")) == ("ViT-large", 144_000)
    if row["method"] == "LoCA"
)
"""Standard deviations of LoCA with 144K on ViT-large, in the columns of ``vit`` but the mean."""

COST_MODELS = ("RoBERTa-base", "LLaMA-1-7b", "ViT-base")
"""The columns of the table of costs."""


def _costs(field: str) -> dict[str, tuple]:
    """A cost by method and model; None: not measured."""
    rows = [row for row in _read("complexity")["rows"] if "model" in row]
    found = {(row["method"], row["model"]): row["values"].get(field) for row in rows}
    methods = dict.fromkeys(row["method"] for row in rows)
    return {one: tuple(found.get((one, model)) for model in COST_MODELS) for one in methods}


SPEEDS = _costs("speed")
"""Iterations per second by method and :data:`COST_MODELS`; None: not measured. LoCA-1 is the sparse
form, LoCA-2 that by FFT, LoCA-3 that by matrix products, the default."""

MEMORY = _costs("memory")
"""Memory in MB, in the same order."""


def _by_task(field: str) -> dict[str, tuple[int, ...]]:
    """A hyper-parameter of LoCA by size of RoBERTa, in the order of the GLUE tasks."""
    rows = [row for row in _read("glue_hyperparameters")["rows"] if field in row["values"]]
    found = {(row["model"], row.get("task")): row["values"][field] for row in rows}
    tasks = COLUMNS["glue"][:-1]
    return {
        size: tuple(found[f"RoBERTa-{size}", task] for task in tasks) for size in ("base", "large")
    }


GLUE_EPOCHS = _by_task("epochs")
"""Epochs by size of RoBERTa and GLUE task."""

GLUE_ALTERNATING_STEPS = _by_task("alternating_steps")
"""B_s by size of RoBERTa and GLUE task."""

GLUE_BATCH = 32
"""Batch size of all GLUE tasks."""

GLUE_TRAINING_SETS = (8551, 392_702, 3668, 104_743, 363_846, 2490, 67_349, 5749)
"""Sizes of the training sets of the GLUE tasks, which the paper does not print."""
