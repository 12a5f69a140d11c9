"""The same tuning effort for every method, then fresh seeds.

A cell is what is compared: a method with a budget and settings on a task. Each cell tries all the
rates of its method, as many for every method, on the tuning seeds, and keeps the one with the best
mean on the validation set; then it is trained anew on the seeds, and measured on the test set,
which nothing was chosen by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.finetuning.methods import find_method
from experiments.finetuning.tasks import Prepared
from experiments.finetuning.training import EXPERIMENT, HIGHER_IS_BETTER, compute
from loca_theory.sweeps import Point, code_version

Row = dict[str, Any]
# What a run does not depend on.
_BESIDE = ("title", "seeds", "tuning_seeds", "coefficient_steps", "location_steps", "alternating",
           "location_rate")  # fmt: skip
_NOTHING = {"ranks": [], "pool": 0}


@dataclass(frozen=True)
class Configuration:
    """What is compared.

    Attributes:
        task: Name of the task.
        method: Name of the method.
        r: The budget, as LoRA's rank.
        loca: Settings of LoCA that differ from the protocol's.
        location_rate: Learning rate of locations; None for the protocol's.
    """

    task: str
    method: str
    r: int
    loca: Mapping[str, Any] = field(default_factory=dict)
    location_rate: float | None = None

    def __hash__(self) -> int:
        return hash((self.task, self.method, self.r, repr(self.loca), self.location_rate))


def version() -> str:
    """Version of the code and libraries that a stored run depends on."""
    return code_version(compute)


def point(
    configuration: Configuration,
    chosen: Mapping[str, Any],
    prepared: Prepared,
    *,
    rate: float,
    seed: int,
    device: str,
    tunes: bool = False,
    analyse: Mapping[str, Any] | None = None,
) -> Point:
    """One run, with everything that it depends on.

    Args:
        configuration: What is trained.
        chosen: The task's settings.
        prepared: Its data and model.
        rate: Learning rate.
        seed: Of the order of the data, the head, the adapter.
        device: ``cpu`` or ``cuda``.
        tunes: Whether it is to choose a rate by, and measured on the validation set alone.
        analyse: What to describe of the increments, see
            :func:`~experiments.finetuning.increments.describe_increments`.
    """
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
            "seed": seed,
            "tunes": tunes,
            "loca": loca_of(configuration, chosen),
            "location_rate": configuration.location_rate or chosen["location_rate"],
            "settings": {name: value for name, value in chosen.items() if name not in _BESIDE},
            "analyse": dict(analyse or _NOTHING),
            "device": device,
        },
    )


def loca_of(configuration: Configuration, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of LoCA beside those that make the variant; none for other methods."""
    if find_method(configuration.method).kind != "loca":
        return {}
    names = ("coefficient_steps", "location_steps", "alternating")
    return {**{name: chosen[name] for name in names}, **configuration.loca}


def best_rate(
    rates: Sequence[float], found: Mapping[float, Sequence[float | None]], metric: str
) -> float:
    """The rate with the best mean; one that ever diverged stands behind all that never did.

    Args:
        rates: In rising order.
        found: Validation metrics by rate, None where a run diverged.
        metric: What was measured.
    """
    sign = 1.0 if HIGHER_IS_BETTER[metric] else -1.0

    def merit(rate: float) -> tuple[int, float]:
        values = [value for value in found[rate] if value is not None]
        mean = sign * sum(values) / len(values) if values else -math.inf
        return -(len(found[rate]) - len(values)), mean

    return max(rates, key=merit)


def row(configuration: Configuration, run: Point, result: Mapping[str, Any]) -> Row:
    """A run as a line of a table."""
    method, p = find_method(configuration.method), run.parameters
    settings = {**p["loca"], **method.options} if p["loca"] else {}
    return {
        "task": configuration.task,
        "method": configuration.method,
        "title": method.title,
        "r": configuration.r if method.has_budget else None,
        "rate": p["rate"],
        "seed": p["seed"],
        "measure": p["settings"]["metric"],
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
        "seconds": result["seconds"],
    }


def _fraction(settings: Mapping[str, Any]) -> float:
    """B_s as a fraction of all steps."""
    return 1.0 if settings.get("endless") else settings["alternating"]


def curve_rows(configuration: Configuration, run: Point, result: Mapping[str, Any]) -> list[Row]:
    """The looks at the validation set on the way, a line each."""
    labels = {
        "task": configuration.task,
        "method": configuration.method,
        "title": find_method(configuration.method).title,
    }
    r = configuration.r if find_method(configuration.method).has_budget else None
    labels |= {"r": r, "seed": run.parameters["seed"]}
    labels |= {"measure": run.parameters["settings"]["metric"]}
    names = ("step", "training_loss", "validation_loss", "validation")
    return [{**labels, **dict(zip(names, entry, strict=True))} for entry in result["curve"]]
