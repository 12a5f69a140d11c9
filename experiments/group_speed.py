"""Speed of the small fine-tuning runs: alone, and in groups of seeds that are trained at once.

Run from the checkout: ``python -m experiments.group_speed [--rounds 3] [--out FILE.json]``. Each
method is trained for 50 steps on the task digits, on one core: one run, and a group of eight. The
times are per run, with the making of the models and the evaluations.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks._measure import Rival, interleaved
from benchmarks._record import OUT, Record
from experiments.finetuning.protocol import Configuration, point
from experiments.finetuning.settings import settings
from experiments.finetuning.tasks import Prepared, prepare
from experiments.finetuning.training import compute

PACKAGES = ("numpy", "torch", "peft")
_TASK, _RATE = "digits", 1e-2
_METHODS = ("lora", "loca", "full")
_GROUP, _STEPS = 8, 50


def measure(method: str, prepared: Prepared, folder: Path, rounds: int) -> dict[str, Any]:
    """Time one run and a group of runs of a method."""
    chosen = {**settings(_TASK), "steps": _STEPS, "every": _STEPS}

    def train(count: int) -> object:
        configuration = Configuration(_TASK, method, chosen["r"])
        one = point(configuration, chosen, prepared, rate=_RATE, seeds=range(count), device="cpu")
        return compute(one, folder)

    rivals = {count: Rival(partial(train, count)) for count in (1, _GROUP)}
    timings = interleaved(rivals, rounds=rounds, attempts=1)
    return {
        "method": method,
        "alone_s": timings[1].median,
        "in_group_s": timings[_GROUP].median / _GROUP,
        "speed": _GROUP * timings[1].ratio_to(timings[_GROUP]),
    }


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Rounds; medians are reported.")
@OUT
def main(rounds: int, out: Path | None) -> None:
    """Measure speed, and print the results."""
    record = Record(out, PACKAGES)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared = prepare(_TASK, folder)
        for method in _METHODS:
            work = partial(measure, method, prepared, folder, rounds)
            record.add("runs", method, lambda work=work: [work()])


if __name__ == "__main__":
    main(prog_name="python -m experiments.group_speed")
