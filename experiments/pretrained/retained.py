"""How much of full fine-tuning's increment lies at the locations that a method uses.

The energy of :math:`\\Delta W` at locations l, as a fraction of all, is
:math:`\\sum_l (C\\,\\Delta W\\,D^\\top)_l^2 / \\lVert\\Delta W\\rVert_F^2`, summed over the layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from experiments.finetuning.statistics import Row
from experiments.finetuning.tasks import Prepared
from experiments.finetuning.training import trained
from experiments.pretrained.runs import point_of, spectra
from experiments.pretrained.trials import Done, Trial, read_design
from loca_theory.sweeps.threads import one_thread

TABLE, FULL, LARGEST, SEEDS = "retained", "full", "largest", 2


def groups(done: Done) -> list[dict[str, Trial]]:
    """The stored runs, by method, of full fine-tuning and of each search, of a task and seed."""
    found: dict[tuple[str, int], dict[str, Trial]] = {}
    wanted = {FULL, *read_design()["primary"]}
    for one in done:
        if one.setting == "main" and not one.tunes and one.seed < SEEDS and one.method in wanted:
            found.setdefault((one.task, one.seed), {})[one.method] = one
    return [runs for runs in found.values() if {*runs} == wanted]


def retained(runs: Mapping[str, Trial], prepared: Prepared) -> list[Row]:
    """Train again, and return the energy at random, at learned, and at the best locations."""
    locations: dict[str, list[torch.Tensor]] = {}
    with one_thread():
        energies = spectra(runs[FULL], prepared)
        for method in read_design()["primary"]:
            _, run = point_of(runs[method], prepared)
            with trained(run, prepared.folder.parent) as (group, _, _):
                (own,) = group.runs
                locations[method] = [one.indices for one in own.spectra]
                locations[read_design()["reference"]] = own.first_indices
    energy: dict[str, Any] = {
        method: sum(one[tuple(at.T)].sum() for one, at in zip(energies, found, strict=True))
        for method, found in locations.items()
    }
    count = len(next(iter(locations.values()))[0])
    energy[LARGEST] = sum(one.flatten().topk(count).values.sum() for one in energies)
    total = float(sum(one.sum() for one in energies))
    about = {"task": runs[FULL].task, "seed": runs[FULL].seed}
    return [{**about, "method": name, TABLE: float(e) / total} for name, e in energy.items()]
