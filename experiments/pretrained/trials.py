"""The runs of the ablation, and ``design.toml``, which was fixed before them.

The probe was tuned first, whose rate is that of the new head in all other runs; then the rates of
the methods; then, at its rate, the location rate of LoCA. Each setting was tuned by itself, except
for those that take the rates of another. At commit 63bc2d1c, the last with the search over rates,
it asked for the runs that are stored.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@cache
def read_design() -> dict[str, Any]:
    """Everything that was fixed before the runs."""
    return tomllib.loads(Path(__file__).with_name("design.toml").read_text(encoding="utf-8"))


def tasks_of(setting: str) -> list[str]:
    """The tasks of a setting."""
    design = read_design()
    return list(design["settings"][setting].get("tasks", design["tasks"]))


@dataclass(frozen=True)
class Trial:
    """A run: a method with its rates on a task, in a setting, with one seed."""

    setting: str
    task: str
    method: str
    rate: float
    location_rate: float
    head_rate: float
    seed: int
    tunes: bool


Done = Mapping[Trial, Mapping[str, Any]]
"""Rows of the runs that are stored."""
