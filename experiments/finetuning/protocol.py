"""The protocol: the same tuning for every method, then results on new seeds.

A configuration is a method with a budget and settings on a task. For each configuration all
learning rates of the method are tried on the tuning seeds, equally many for every method, and the
rate with the best mean on the validation set is chosen. The configuration is then trained with this
rate on the other seeds and measured on the test set, which no choice depends on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.finetuning.methods import find_method
from experiments.finetuning.tasks import Prepared
from experiments.finetuning.training import EXPERIMENT, METRIC, PACKAGES
from loca_theory.sweeps.store import Point

Row = dict[str, Any]
# Settings that a run does not depend on, or that its parameters list separately.
_BESIDE = ("title", "seeds", "block", "grid", "tuning_seeds", "coefficient_steps",
           "location_steps", "alternating", "location_rate")  # fmt: skip
_NOTHING: dict[str, Any] = {"ranks": [], "pool": 0, "seeds": []}


@dataclass(frozen=True)
class Configuration:
    """A combination of task, method and settings that is compared with others.

    Attributes:
        task: Name of the task.
        method: Name of the method.
        r: The budget as a rank of LoRA.
        loca: Settings of LoCA that differ from those of the protocol.
        location_rate: Learning rate of locations; None for that of the protocol.
    """

    task: str
    method: str
    r: int
    loca: Mapping[str, Any] = field(default_factory=dict)
    location_rate: float | None = None

    def __hash__(self) -> int:
        return hash((self.task, self.method, self.r, repr(self.loca), self.location_rate))


def point(
    configuration: Configuration,
    chosen: Mapping[str, Any],
    prepared: Prepared,
    *,
    rate: float,
    seeds: Sequence[int],
    device: str,
    tunes: bool = False,
    analyse: Mapping[str, Any] | None = None,
) -> Point:
    """Define runs that are trained together by everything that they depend on."""
    method = find_method(configuration.method)
    return Point(
        EXPERIMENT,
        {
            "task": configuration.task,
            "folder": prepared.folder.name,
            "digest": prepared.digest,
            "method": configuration.method,
            "variant": {"kind": method.kind, "fraction": method.fraction, **method.options},
            "r": configuration.r if method.has_budget else 0,
            "rate": rate,
            "seeds": list(seeds),
            "tunes": tunes,
            "loca": loca_of(configuration, chosen),
            "location_rate": configuration.location_rate or chosen["location_rate"],
            "settings": {name: value for name, value in chosen.items() if name not in _BESIDE},
            "analyse": dict(analyse or _NOTHING),
            "device": device,
        },
        PACKAGES,
    )


def loca_of(configuration: Configuration, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of LoCA except those that define the variant; empty for other methods."""
    if find_method(configuration.method).kind != "loca":
        return {}
    names = ("coefficient_steps", "location_steps", "alternating")
    return {**{name: chosen[name] for name in names}, **configuration.loca}


def best_rate(rates: Sequence[float], found: Mapping[float, Sequence[float | None]]) -> float:
    """The rate with the fewest diverged runs and, among those, with the best mean."""

    def merit(rate: float) -> tuple[int, float]:
        values = [value for value in found[rate] if value is not None]
        mean = sum(values) / len(values) if values else -math.inf
        return -(len(found[rate]) - len(values)), mean

    return max(rates, key=merit)


def row(configuration: Configuration, run: Point, seed: int, result: Mapping[str, Any]) -> Row:
    """The table row of the run with a seed."""
    method, p = find_method(configuration.method), run.parameters
    settings = {**p["loca"], **method.options} if p["loca"] else {}
    return {
        "task": configuration.task,
        "method": configuration.method,
        "title": method.title,
        "r": configuration.r if method.has_budget else None,
        "rate": p["rate"],
        "seed": seed,
        "measure": METRIC,
        "metric": result["metric"],
        "loss": result["loss"],
        "diverged": result["diverged"],
        "trained": result["counts"]["trained"],
        "stored": result["counts"]["stored"],
        "head": result["counts"]["head"],
        "moved": result["moved"],
        "alternating": _fraction(settings) if settings else None,
        "scaling": p["loca"].get("scaling", 1.0 if p["loca"] else None),
        "location_rate": p["location_rate"] if p["loca"] else None,
        "steps": p["settings"]["steps"],
        "loss_10": result["loss_10"],
        "loss_25": result["loss_25"],
        "seconds": result["seconds"],
    }


def _fraction(settings: Mapping[str, Any]) -> float:
    """B_s as a fraction of all steps."""
    return 1.0 if settings.get("endless") else settings["alternating"]


def curve_rows(configuration: Configuration, seed: int, result: Mapping[str, Any]) -> list[Row]:
    """The evaluations on the validation set during training, one row each."""
    labels = {
        "task": configuration.task,
        "method": configuration.method,
        "title": find_method(configuration.method).title,
    }
    r = configuration.r if find_method(configuration.method).has_budget else None
    labels |= {"r": r, "seed": seed}
    labels |= {"measure": METRIC}
    names = ("step", "training_loss", "validation_loss", "validation")
    return [{**labels, **dict(zip(names, entry, strict=True))} for entry in result["curve"]]
