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
from experiments.finetuning.metrics import DEFAULT_METRIC
from experiments.finetuning.tasks.prepared import Prepared
from experiments.finetuning.training import EXPERIMENT, TRAINING_CODE
from experiments.tables import Row
from loca_theory.sweeps.store import Point

# Settings that a run does not depend on, or that its parameters list separately.
_OF_LOCA = ("coefficient_steps", "location_steps", "alternating")
_BESIDE = ("title", "seeds", "block", "grid", "tuning_seeds", "location_rate", *_OF_LOCA)


@dataclass(frozen=True)
class Configuration:
    """A combination of task, method and settings that is compared with others."""

    task: str
    method: str
    r: int  # the budget as a rank of LoRA
    # Settings of LoCA, and its rate of locations, that differ from those of the protocol.
    loca: Mapping[str, Any] = field(default_factory=dict, hash=False)
    location_rate: float | None = None


def variant_of(name: str) -> dict[str, Any]:
    """What defines a method beside its name."""
    method = find_method(name)
    return {"kind": method.kind, "fraction": method.fraction, **method.options}


def point(
    configuration: Configuration,
    chosen: Mapping[str, Any],
    prepared: Prepared,
    *,
    rate: float,
    seeds: Sequence[int],
    device: str,
    tunes: bool = False,
) -> Point:
    """Define runs that are trained together by everything that they depend on."""
    method = find_method(configuration.method)
    parameters = {
        "task": configuration.task,
        "folder": prepared.folder.name,
        "digest": prepared.digest,
        "method": configuration.method,
        "variant": variant_of(configuration.method),
        "r": configuration.r if method.has_budget else 0,
        "rate": rate,
        "seeds": list(seeds),
        "tunes": tunes,
        "loca": loca_of(configuration, chosen),
        "location_rate": configuration.location_rate or chosen["location_rate"],
        "settings": run_settings(chosen),
        "device": device,
    }
    return Point(EXPERIMENT, parameters, TRAINING_CODE)


def run_settings(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a task that a run depends on, but those of LoCA."""
    return {name: value for name, value in chosen.items() if name not in _BESIDE}


def loca_of(configuration: Configuration, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of LoCA except those that define the variant; empty for other methods."""
    if find_method(configuration.method).kind != "loca":
        return {}
    return {**{name: chosen[name] for name in _OF_LOCA}, **configuration.loca}


def best_rate(rates: Sequence[float], scores: Mapping[float, Sequence[float | None]]) -> float:
    """The rate with the fewest diverged runs and, among those, with the best mean."""

    def merit(rate: float) -> tuple[int, float]:
        values = [value for value in scores[rate] if value is not None]
        mean = sum(values) / len(values) if values else -math.inf
        return -(len(scores[rate]) - len(values)), mean

    return max(rates, key=merit)


@dataclass(frozen=True)
class Finished:
    """A finished run and its result."""

    configuration: Configuration
    run: Point  # that it was trained in, with other seeds
    seed: int
    result: Mapping[str, Any]

    def _labels(self) -> Row:
        method = find_method(self.configuration.method)
        return {
            "task": self.configuration.task,
            "method": method.name,
            "title": method.title,
            "r": self.configuration.r if method.has_budget else None,
        }

    @property
    def row(self) -> Row:
        """The table row of the run."""
        p, result = self.run.parameters, self.result
        is_loca = bool(p["loca"])
        settings = {**p["loca"], **find_method(self.configuration.method).options}
        # B_s as a fraction of all steps.
        alternating = 1.0 if settings.get("endless") else settings.get("alternating")
        return {
            **self._labels(),
            "rate": p["rate"],
            "seed": self.seed,
            "measure": p["settings"].get("measure", DEFAULT_METRIC),
            "metric": result["metric"],
            "loss": result["loss"],
            "diverged": result["diverged"],
            **{name: result["counts"][name] for name in ("trained", "stored", "head")},
            "moved": result["moved"],
            "alternating": alternating if is_loca else None,
            "scaling": p["loca"].get("scaling", 1.0) if is_loca else None,
            "location_rate": p["location_rate"] if is_loca else None,
            "steps": p["settings"]["steps"],
            **{name: result[name] for name in ("loss_10", "loss_25", "seconds")},
        }

    @property
    def curve(self) -> list[Row]:
        """The table rows of the evaluations on the validation set during the run."""
        labels = {**self._labels(), "seed": self.seed, "measure": DEFAULT_METRIC}
        names = ("step", "training_loss", "validation_loss", "validation")
        return [labels | dict(zip(names, values, strict=True)) for values in self.result["curve"]]
