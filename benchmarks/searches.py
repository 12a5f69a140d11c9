"""Mean cost of a training step under each location search.

Run from the checkout: ``python -m benchmarks.searches [--out FILE.json]``
(``pip install 'loca-theory[adapters]'``).

A round is one whole period of the schedule, 30 steps with AdamW. ``central`` has 10 steps of the
coefficients and 20 of the locations. The prune-and-regrow searches have 30 steps of the
coefficients; in 4 of them each layer records the gradient of its whole spectrum, and after the last
it prunes and regrows components. The time is the median over interleaved rounds, divided by 30;
``of_central`` is the median ratio to ``central``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console

from benchmarks._measure import Rival, environment, interleaved, print_rows
from benchmarks._records import write_json
from benchmarks._rivals import (
    Layer,
    Model,
    Single,
    network,
    targets_of,
    training_step,
    with_adapter,
)
from benchmarks.layer import LAYERS, MODELS, PACKAGES
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
    made = with_adapter(model, config).to(device).train()
    optimizer = torch.optim.AdamW(made.parameters(), lr=1e-4)
    follow(made, optimizer)
    return made, optimizer


def period(load: Layer | Model, search: str, device: str) -> Callable[[], object]:
    """Make a function that trains for a whole period."""
    if isinstance(load, Model):
        made, inputs, labels = network(load)
        made, optimizer = adapted(made, search, load.components, device)
        step = training_step(made, inputs, labels, optimizer, device)
    else:
        torch.manual_seed(0)
        made, optimizer = adapted(Single(load.size), search, load.components, device)
        x = torch.randn(load.tokens, load.size, device=device, requires_grad=True)
        g = torch.randn(load.tokens, load.size, device=device)

        def step() -> object:
            x.grad = None
            optimizer.zero_grad()
            made(x).backward(g)
            return optimizer.step()

    def run() -> None:
        for _ in range(_PERIOD):
            step()

    return run


def compare(load: Layer | Model, device: str, rounds: int) -> list[dict[str, Any]]:
    """Measure the mean time of a step under every search."""
    rivals = {name: Rival(period(load, name, device)) for name in SEARCHES}
    times = interleaved(rivals, rounds=rounds, device=device)
    return [
        {
            "load": str(load),
            "search": name,
            "ms": 1e3 * timing.median / _PERIOD,
            "of_central": timing.ratio_to(times["central"]),
            "timing": timing.as_record(),
        }
        for name, timing in times.items()
    ]


@click.command()
@click.option("--rounds", type=click.IntRange(min=2), default=5, show_default=True)
@click.option("--device", default="cuda" if torch.cuda.is_available() else "cpu", show_default=True)
@click.option("--models/--no-models", default=True, help="Measure models too, which takes minutes.")
@click.option("--out", type=click.Path(path_type=Path), help="File for the results as JSON.")
def main(rounds: int, device: str, models: bool, out: Path | None) -> None:
    """Compare the location searches."""
    console = Console()
    rows: list[dict[str, Any]] = []
    for load in (*LAYERS, *(MODELS[:1] if models else ())):
        found = compare(load, device, rounds)
        rows += [{"device": device, **row} for row in found]
        hidden = ("load", "timing")
        shown = [{k: v for k, v in row.items() if k not in hidden} for row in found]
        print_rows(console, f"{load}, {device}", shown)
        if out:
            write_json(out, {"environment": environment(PACKAGES), "rows": rows})


if __name__ == "__main__":
    main()
