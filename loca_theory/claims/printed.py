"""Numbers of the paper's tables, by their LaTeX labels, for the checks that judge them.

They are read from the transcription in ``printed_tables``, one file per table, whose schema
``experiments/paper/tables.py`` describes. A score table maps a model and a method to the scores in
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


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def _columns(name: str) -> tuple[str, ...]:
    return tuple(field for field in _read(name)["fields"] if field != "parameters")


def _scores(name: str, prefix: str = "", model: str = "") -> dict[str, dict[str, tuple]]:
    """The scores of a table by model, without the prefix of its name, and method.

    A method that is printed at several budgets is named with each.
    """
    document, columns = _read(name), _columns(name)
    found: dict[str, dict[str, tuple]] = {}
    for row in document["rows"]:
        method = "FT" if name == "glue_results" and row["method"] == "FF" else row["method"]
        values = row["values"]
        if name == "vit_results" and method in ("FourierFT", "LoCA"):
            method = f"{method} {values['parameters'] // 1000}K"
        scores = tuple(values[column] for column in columns)
        found.setdefault(row.get("model", model).removeprefix(prefix), {})[method] = scores
    return found


def _costs(field: str) -> dict[str, tuple]:
    """A cost by method and model; None: not measured."""
    rows = [row for row in _read("complexity")["rows"] if "model" in row]
    found = {(row["method"], row["model"]): row["values"].get(field) for row in rows}
    methods = dict.fromkeys(row["method"] for row in rows)
    return {one: tuple(found.get((one, model)) for model in COST_MODELS) for one in methods}


def _epochs_and_steps(field: str) -> dict[str, tuple[int, ...]]:
    """A hyper-parameter of LoCA by size of RoBERTa, in the order of the GLUE tasks."""
    rows = _read("glue_hyperparameters")["rows"]
    return {
        size: tuple(
            row["values"][field]
            for task in COLUMNS["glue"][:-1]
            for row in rows
            if row.get("task") == task
            and row.get("model") == f"RoBERTa-{size}"
            and field in row["values"]
        )
        for size in ("base", "large")
    }


COLUMNS: Mapping[str, tuple[str, ...]] = {
    "glue": _columns("glue_results"),
    "vit": _columns("vit_results"),
    "e2e": _columns("e2e_results"),
    "instruction": _columns("instruction_results"),
    "ablation": _columns("ablation"),
}
"""Columns of each table of scores: benchmarks or metrics, and the mean where it is printed."""

TABLES: Mapping[str, Scores] = {
    "glue": _scores("glue_results", "RoBERTa-"),
    "vit": _scores("vit_results", "ViT-"),
    "e2e": _scores("e2e_results", "GPT-2 "),
    "instruction": _scores("instruction_results"),
    "ablation": _scores("ablation", model="base"),
}
"""Scores by table, model and method."""

MARKED: Mapping[str, Mapping[str, Mapping[str, tuple[float, ...]]]] = {
    "bold": {
        "glue": {
            "base": (65.6, 87.6, 92.7, 93.4, 91.9, 81.5, 95.2, 91.5, 86.4),
            "large": (68.8, 90.6, 91.0, 94.8, 92.2, 87.9, 96.4, 92.7, 88.9),
        },
        "vit": {
            "base": (94.10, 84.71, 98.89, 80.15, 99.04, 63.83, 95.72, 91.68, 87.91),
            "large": (94.78, 85.92, 99.12, 81.64, 99.03, 64.47, 96.21, 94.67, 89.27),
        },
        "instruction": {
            "LLaMA1-7b": (4.52, 7.52),
            "LLaMA1-13b": (4.87, 7.85),
            "LLaMA2-7b": (4.94, 7.81),
            "LLaMA2-13b": (5.55, 8.13),
        },
        "ablation": {"base": (93.8, 79.7, 88.7, 64.5)},
    },
    "underlined": {
        "instruction": {
            "LLaMA1-7b": (4.47, 7.24),
            "LLaMA1-13b": (4.83, 7.82),
            "LLaMA2-7b": (4.82, 7.78),
            "LLaMA2-13b": (5.52, 8.11),
        },
    },
}
"""The number in bold, or underlined, in each column of a table and model."""

SPREADS = tuple(
    spread
    for row in _read("vit_results")["rows"]
    if (row["model"], row["method"]) == ("ViT-large", "LoCA")
    and row["values"]["parameters"] == 144_000
    for spread in row["spreads"].values()
)
"""Standard deviations of LoCA with 144K on ViT-large, in the columns of ``vit`` but the mean."""

COST_MODELS = ("RoBERTa-base", "LLaMA-1-7b", "ViT-base")
"""The columns of the table of costs."""

SPEEDS = _costs("speed")
"""Iterations per second by method and :data:`COST_MODELS`; None: not measured. LoCA-1 is the sparse
form, LoCA-2 that by FFT, LoCA-3 that by matrix products, the default."""

MEMORY = _costs("memory")
"""Memory in MB, in the same order."""

GLUE_EPOCHS = _epochs_and_steps("epochs")
"""Epochs by size of RoBERTa and GLUE task."""

GLUE_ALTERNATING_STEPS = _epochs_and_steps("alternating_steps")
"""B_s by size of RoBERTa and GLUE task."""

GLUE_BATCH = 32
"""Batch size of all GLUE tasks."""

GLUE_TRAINING_SETS = (8551, 392_702, 3668, 104_743, 363_846, 2490, 67_349, 5749)
"""Sizes of the training sets of the GLUE tasks, which the paper does not print."""
