"""Time of a training step under each location search.

Run from the checkout: ``python -m benchmarks.searches [--out FILE.json]``
(``pip install 'loca-theory[adapters]'``).

A round is one whole period of the schedule, 30 steps with AdamW. ``central`` and
``eight-direction`` have 10 steps of the coefficients and 20 of the locations. The prune-and-regrow
searches, ``swap`` and ``reselect``, have 30 steps of the coefficients; in 4 of them each layer
records the gradient of its whole spectrum, and after the last it prunes and regrows components. The
time is the median over interleaved rounds, divided by 30; ``of_central`` is the median ratio to
``central``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks._measure import Step, compare
from benchmarks._record import DEVICE, OUT, TINY, Record, Row
from benchmarks._rivals import (
    Case,
    ModelCase,
    Single,
    layer_step,
    network,
    targets_of,
    training_step,
    with_adapter,
)
from benchmarks.layer import LAYERS, MODELS, PACKAGES, TINY_LAYERS, TINY_MODELS
from loca_theory.adapters import AlternatingSchedule, LoCAConfig, follow

_PERIOD = AlternatingSchedule().period
SEARCHES = ("central", "eight-direction", "swap", "reselect")


def adapted(model: Any, search: str, components: int, device: str) -> tuple[Any, Any]:
    """Add LoCA to query and value of a model, and make its optimiser."""
    config = LoCAConfig(
        n_frequency=components,
        target_modules=targets_of(model),
        location_search=search,  # type: ignore[arg-type]
        alternating_steps=None,
    )
    adapted_model = with_adapter(model, config).to(device).train()
    optimizer = torch.optim.AdamW(adapted_model.parameters(), lr=1e-4)
    follow(adapted_model, optimizer)
    return adapted_model, optimizer


def build_period(load: Case, search: str, device: str) -> tuple[Step, Mapping[str, Any]]:
    """Make a function that trains for one period of the schedule; it has no further facts."""
    if isinstance(load, ModelCase):
        module, inputs, labels = network(load)
        module, optimizer = adapted(module, search, load.components, device)
        step = training_step(module, inputs, labels, optimizer, device)
    else:
        torch.manual_seed(0)
        module, optimizer = adapted(Single(load.size), search, load.components, device)
        step = layer_step(load, module, device, optimizer)

    def run() -> None:
        for _ in range(_PERIOD):
            step()

    return run, {}


def measure(load: Case, device: str, rounds: int, *, tiny: bool) -> list[Row]:
    """Time a step under every search: a period divided by its steps."""
    builds = {name: partial(build_period, load, name, device) for name in SEARCHES}
    rows, times = compare(builds, device=device, rounds=rounds, tiny=tiny)
    for name, timing in times.items():
        rows[name]["ms"] /= _PERIOD
        rows[name]["host_ms"] /= _PERIOD
        rows[name]["of_central"] = timing.ratio_to(times["central"])
    return list(rows.values())


@click.command()
@click.option("--rounds", type=click.IntRange(min=2), default=5, show_default=True)
@click.option("--models/--no-models", default=True, help="Measure models too, which takes minutes.")
@DEVICE
@TINY
@OUT
def main(rounds: int, models: bool, device: str, tiny: bool, out: Path | None) -> None:
    """Compare the location searches."""
    record = Record(out, PACKAGES)
    loads = (*LAYERS, *(MODELS[:1] if models else ()))
    for load in (TINY_LAYERS[0], *TINY_MODELS) if tiny else loads:
        work = partial(measure, load, device, rounds, tiny=tiny)
        record.add("searches", str(load), work, device=device, load=str(load))


if __name__ == "__main__":
    main()
