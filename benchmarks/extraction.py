"""The cost of looking inside rounding cells.

Run from the checkout: ``python -m benchmarks.extraction [--quick] [--out FILE.json]``.

- *extract*: LoRA and LoCA of a layer in bfloat16, inside rounding cells and without them, for a
  merged LoRA, where the full search runs, and for independent entries, where it stops at once; on
  one thread
  and interleaved, with the largest memory in float32 matrices above the pair.
- *analyze*: an analysis of one layer with its fields on rounding, and without them.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import click
import numpy as np
import torch

from benchmarks._measure import Step, timed
from benchmarks._memory import PeakMemory
from benchmarks._record import OUT, Record, Row
from loca_theory.checkpoints import analyze, extract
from loca_theory.rounding import find_format
from loca_theory.sweeps import generator
from loca_theory.sweeps.threads import one_thread

PACKAGES = ("numpy", "scipy", "torch")
_SHAPES, _QUICK = ((768, 768), (1024, 4096)), ((256, 384),)
METHODS: tuple[Literal["lora", "loca"], ...] = ("lora", "loca")
_RANK, _ROUNDS = 16, 3
_NAME = "layer.weight"


def pair(shape: tuple[int, int], kind: str) -> tuple[dict[str, torch.Tensor], ...]:
    """A layer before and after a change of about one step of its weights."""
    form, source = find_format("bfloat16"), generator(0, "extraction", *shape, kind)

    def normal(*sides: int) -> torch.Tensor:
        return torch.from_numpy(source.standard_normal(sides, dtype=np.float32))

    base = (0.02 * normal(*shape)).bfloat16()
    change = normal(*shape) if kind == "full" else normal(shape[0], _RANK) @ normal(_RANK, shape[1])
    change *= float(form.steps(base.double()).median()) / float(change.abs().median())
    return {_NAME: base}, {_NAME: (base.float() + change).bfloat16()}


def rows(settings: Row, rivals: dict[str, Step], reference: str, rounds: int) -> list[Row]:
    """Times relative to a reference, and the largest memory in float32 matrices."""
    memory: dict[str, float] = {}
    with one_thread():
        for name, step in rivals.items():
            with PeakMemory() as peak:
                step()
            memory[name] = peak.bytes / (4 * settings["p"] * settings["q"])
        times = timed(rivals, reference, rounds=rounds, attempts=1)
    return [settings | row | {"memory, matrices": memory[row["what"]]} for row in times]


def measure_extract(shapes: tuple[tuple[int, int], ...], rounds: int) -> list[Row]:
    """Extraction inside the cells, relative to that without them."""
    measured = list[Row]()
    for (p, q), kind in product(shapes, ("merged LoRA", "full")):
        base, tuned = pair((p, q), kind)
        for method in METHODS:
            inside: Step = partial(extract, base, tuned, method, rank=_RANK)
            ignored: Step = partial(extract, base, tuned, method, rank=_RANK, rounding="ignore")
            settings: Row = {"p": p, "q": q, "change": kind, "method": method}
            measured += rows(settings, {"cells": inside, "ignore": ignored}, "ignore", rounds)
    return measured


def measure_analyze(shapes: tuple[tuple[int, int], ...], rounds: int) -> list[Row]:
    """An analysis with its fields on rounding, relative to one without them."""
    cells: Any = import_module("loca_theory.checkpoints.measure.cells")
    measured = list[Row]()
    for p, q in shapes:
        base, tuned = pair((p, q), "full")
        analysis: Step = partial(analyze, base, tuned, ranks=_RANK)
        known_change = cells.stored_change(base[_NAME], tuned[_NAME])

        def without(analysis: Step = analysis, known_change: Any = known_change) -> object:
            with patch.object(cells, "stored_change", lambda *_: known_change):
                return analysis()

        measured += rows(
            {"p": p, "q": q}, {"with": analysis, "without": without}, "without", rounds
        )
    return measured


@click.command()
@click.option("--quick", is_flag=True, help="A small layer.")
@click.option("--rounds", default=_ROUNDS, show_default=True, help="Rounds of the timing.")
@OUT
def main(*, quick: bool, rounds: int, out: Path | None) -> None:
    """Measure what looking inside rounding cells costs, and print the results."""
    record, shapes = Record(out, PACKAGES), _QUICK if quick else _SHAPES
    record.add("extract", "", lambda: measure_extract(shapes, rounds))
    record.add("analyze", "", lambda: measure_analyze(shapes, rounds))


if __name__ == "__main__":
    main()
