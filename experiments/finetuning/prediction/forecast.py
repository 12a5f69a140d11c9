"""Predictors of every method on one task with one seed, as a point of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from experiments.finetuning.methods import find_method
from experiments.finetuning.prediction.curvature import record_statistics
from experiments.finetuning.prediction.predictors import predictors
from experiments.finetuning.prediction.reach import LearnedLocations, reach
from experiments.finetuning.protocol import Configuration, variant_of
from experiments.finetuning.tasks import opened
from experiments.finetuning.training import Group
from loca_theory.sweeps import generator
from loca_theory.sweeps.store import Point

# The packages whose code computes the predictors, besides those of a fine-tune.
_PACKAGES = (
    "experiments.finetuning.prediction",
    "experiments.finetuning.statistics",
    "loca_theory.expressivity",
    "loca_theory.increments",
)
# Gradients and curvature are means over this many of the first batches.
_BATCHES = 8


def forecast(full: Point, seed: int, wanted: Sequence[Configuration]) -> Point:
    """Define the computation of predictors, from a point of full fine-tunes on the task.

    The seed is that of the full fine-tune, and of what is random in an adapter's reach.
    """
    adapters = [[one.method, one.r, variant_of(one.method)] for one in wanted]
    parameters = {**full.parameters, "seeds": [seed], "tunes": True, "adapters": adapters}
    packages = (*full.packages, *_PACKAGES)
    return replace(full, experiment="prediction", parameters=parameters, packages=packages)


def compute(point: Point, folder: Path) -> dict[str, Any]:
    """Train a full fine-tune, and compute the predictors of adapters from it and from its start.

    There are no rows if the full fine-tune diverged.
    """
    p = dict(point.parameters)
    (seed,) = p["seeds"]
    with opened(p, folder) as (prepared, splits, device):
        group = Group(p, prepared, splits, device)
        run, train = group.runs[0], splits["train"]
        batches = [
            {name: values[which] for name, values in train.items()}
            for which in islice(run.batches(len(train["labels"])), _BATCHES)
        ]
        layers = record_statistics(run.core, p["settings"]["targets"], batches)
        (result,) = group.train()
        if result["diverged"]:
            return {"rows": []}
        increments = {f"{name}.weight": w.cpu() for name, w in run.increments().items()}
    known: dict[LearnedLocations, dict[str, float]] = {}
    rows = []
    for name, r, _ in p["adapters"]:
        rng = generator(seed, "prediction", name, r)
        reaches = [reach(find_method(name), one.weight, r, rng) for one in layers.values()]
        first = reaches[0]
        # Searches for locations differ in how they search, not in what they can reach.
        found = known.get(first) if isinstance(first, LearnedLocations) else None
        found = found or predictors(layers, increments, reaches)
        if isinstance(first, LearnedLocations):
            known[first] = found
        rows.append({"task": p["task"], "method": name, "r": r, "seed": seed, **found})
    return {"rows": rows}
