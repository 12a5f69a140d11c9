"""Predictors of every method on one task with one seed, as a point of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from experiments.finetuning.messages import quiet
from experiments.finetuning.methods import find_method
from experiments.finetuning.prediction.curvature import record_statistics
from experiments.finetuning.prediction.predictors import predictors
from experiments.finetuning.prediction.reach import LearnedLocations, reach
from experiments.finetuning.protocol import Configuration
from experiments.finetuning.statistics import Row
from experiments.finetuning.tasks import Prepared, load
from experiments.finetuning.training import Group
from loca_theory.sweeps import generator
from loca_theory.sweeps.store import Point

EXPERIMENT = "prediction"
# The packages whose code computes the predictors, besides those of a fine-tune.
_PACKAGES = ("experiments.finetuning.prediction", "experiments.finetuning.statistics")
# Gradients and curvature are means over this many of the first batches.
_BATCHES = 8


def forecast(full: Point, seed: int, wanted: Sequence[Configuration]) -> Point:
    """Define the computation of predictors by everything that it depends on.

    Args:
        full: A point of full fine-tunes on the task.
        seed: Seed of the full fine-tune, and of what is random in an adapter's reach.
        wanted: Configurations of the task to predict, of methods whose reach is known.
    """
    adapters = [[one.method, one.r, _variant(one)] for one in wanted]
    beside = {"seeds": [seed], "tunes": True, "adapters": adapters}
    parameters = {**full.parameters, **beside}
    packages = (*full.packages, *_PACKAGES)
    return replace(full, experiment=EXPERIMENT, parameters=parameters, packages=packages)


def _variant(one: Configuration) -> dict[str, Any]:
    method = find_method(one.method)
    return {"kind": method.kind, "fraction": method.fraction, **method.options}


def compute(point: Point, folder: Path) -> dict[str, Any]:
    """Train a full fine-tune, and compute the predictors of adapters from it and from its start.

    Args:
        point: Made by :func:`forecast`.
        folder: Folder of the prepared tasks.

    Returns:
        ``rows``: one per adapter, with ``task``, ``method``, ``r``, ``seed`` and the predictors;
        none if the full fine-tune diverged.
    """
    p = dict(point.parameters)
    device, (seed,) = torch.device(p["device"]), p["seeds"]
    prepared = Prepared(folder / p["folder"], p["task"], p["settings"], p["digest"])
    splits, _ = load(prepared.folder, prepared.digest)
    splits = {name: {k: t.to(device) for k, t in one.items()} for name, one in splits.items()}
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), quiet():
        group = Group(p, prepared, splits, device)
        run, train = group.runs[0], splits["train"]
        order = run.batches(len(train["labels"]))
        batches = [
            {name: values[which] for name, values in train.items()}
            for which, _ in zip(order, range(_BATCHES), strict=False)
        ]
        layers = record_statistics(run.core, p["settings"]["targets"], batches)
        (result,) = group.train()
        if result["diverged"]:
            return {"rows": []}
        increments = {f"{name}.weight": w.cpu() for name, w in run.increments().items()}
    known: dict[LearnedLocations, dict[str, float]] = {}
    rows: list[Row] = []
    for name, r, _ in p["adapters"]:
        rng = generator(seed, "prediction", name, r)
        reaches = [reach(find_method(name), one.weight, r, rng) for one in layers.values()]
        first = reaches[0]
        # Searches for locations differ in how they search, not in what they can reach.
        if isinstance(first, LearnedLocations) and first in known:
            found = known[first]
        else:
            found = predictors(layers, increments, reaches)
        if isinstance(first, LearnedLocations):
            known[first] = found
        rows.append({"task": p["task"], "method": name, "r": r, "seed": seed, **found})
    return {"rows": rows}
