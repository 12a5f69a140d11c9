"""The published runs: their adapters, and how far the first step moves each one's weights.

Commit 7c565700 is the last that could make ``peft-runs`` of the published table.
"""

from __future__ import annotations

import json
import math
import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from loca_theory.adapters import first_step
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.tables import is_stored, load_rows, store_rows

DESIGN: dict[str, Any] = tomllib.loads(Path(__file__).with_name("design.toml").read_text("utf-8"))
RUNS, STEPS = "peft-runs", "first-steps"
# Long lists in configurations that say nothing of the initial adapter.
_DROPPED = ("rank_pattern", "peft_type")


def stored_runs(folder: Path) -> pd.DataFrame:
    """The published runs."""
    return load_rows(folder, RUNS)[0].to_pandas()


def stored_steps(folder: Path) -> pd.DataFrame:
    """The first steps that are computed so far, or why there is none: one row per run."""
    if not is_stored(folder, STEPS):
        return pd.DataFrame({"experiment": []})
    return load_rows(folder, STEPS)[0].to_pandas()


def store_step(rows: pd.DataFrame, folder: Path) -> None:
    """Store the first steps that are computed so far."""
    store_rows(rows, manifest(grid=DESIGN["steps"], seed=DESIGN["steps"]["seed"]), folder, STEPS)


def adapter(run: Mapping[str, Any]) -> Any:
    """The configuration of PEFT of a run.

    Raises:
        InvalidArgumentError: this PEFT has no such type, or no adapter was trained.
    """
    import peft
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    kind = run["peft_type"]
    if kind not in peft.PeftType.__members__:
        raise InvalidArgumentError("no adapter was trained")
    config_type: Any = PEFT_TYPE_TO_CONFIG_MAPPING[peft.PeftType(kind)]
    names = {field.name for field in fields(config_type)} - set(_DROPPED)
    settings = {key: value for key, value in json.loads(run["config"]).items() if key in names}
    return config_type(**settings)


def step_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """The first step of a run over all adapted layers, or the reason why there is none."""
    row: dict[str, Any] = {"experiment": run["experiment"], "reason": ""}
    if run["optimizer"] != DESIGN["rule"]["optimizer"]:
        return {**row, "reason": f"trained with {run['optimizer']}"}
    if run["peft_type"] in DESIGN["rule"]["not_linear"]:
        return {**row, "reason": "changes no linear layer"}
    task = DESIGN["tasks"][run["task"]]
    try:
        with warnings.catch_warnings(action="ignore"):
            steps = [
                first_step(adapter(run), shape, lr=run["lr"], **DESIGN["steps"])
                for shape in _shapes(run, task["shapes"])
            ]
    except InvalidArgumentError as error:
        return {**row, "reason": str(error).splitlines()[0]}
    copies = task["copies"]
    return {
        **row,
        "frobenius": math.sqrt(copies * sum(step.frobenius.value**2 for step in steps)),
        "spectral": float(np.mean([step.spectral.value for step in steps])),
        "decrease": copies * sum(step.decrease.value for step in steps),
    }


def _shapes(run: Mapping[str, Any], shapes: Mapping[str, tuple[int, int]]) -> list[tuple[int, int]]:
    """The shapes of the adapted layers of one block."""
    named = json.loads(run["config"]).get("target_modules") or []
    modules = ["*"] if "*" in shapes else named
    adapted = [(p, q) for name, (p, q) in shapes.items() if name in modules]
    if not adapted:
        raise InvalidArgumentError(f"the configuration names none of {', '.join(shapes)}")
    return adapted
