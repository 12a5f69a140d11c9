"""What each form of adapter retains of fine-tunes that others published, and of their controls.

``python -m experiments.published --data FOLDER`` reads the wheels there, stores one table, and
prints every number of ``docs/published.md``, which has the lines that download the wheels. With
``--bits`` it compares what coders leave at equal bits instead.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import pandas as pd
import torch

from experiments.published.files import WHEELS
from experiments.published.measures import repeats, retained
from experiments.published.page import printed
from experiments.published.wheels import STUDIES, Pair, Study, Wheels
from experiments.tables import Row
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder
from loca_theory.errors import InvalidArgumentError, LocaTheoryError
from loca_theory.expressivity.coders.registry import measure_all
from loca_theory.rounding import find_format
from loca_theory.sweeps import generator
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.tables import store_rows

RANKS = (2, 4, 8)
SMALLEST = 16  # sides below this have no ranks to compare
BITS = (0.5, 1.0, 2.0)  # per entry, at which coders are compared


class Measured(NamedTuple):
    """A matrix and what it is."""

    role: str  # increment, bfloat16 (of rounded weights), base, tuned or unrelated
    pair: str
    name: str
    matrix: torch.Tensor


def increments(pair: Pair) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Matrices that were changed and are large enough, before and after."""
    for name, base in pair.base.items():
        tuned = pair.tuned.get(name)
        if tuned is None or tuned.shape != base.shape or min(base.shape) < SMALLEST:
            continue
        if torch.isfinite(tuned).all() and not torch.equal(base, tuned):
            yield name, base.double(), tuned.double()


def matrices(study: Study, wheels: Wheels) -> Iterator[Measured]:
    """The increments of a study and their controls."""
    names: set[str] = set()
    for pair in study.pairs(wheels):
        for name, base, tuned in increments(pair):
            names.add(name)
            rounded = map(find_format("bfloat16").round, (tuned, base))
            yield Measured("increment", pair.name, name, tuned - base)
            yield Measured("bfloat16", pair.name, name, torch.sub(*rounded))
            yield Measured("base", pair.name, name, base)
            yield Measured("tuned", pair.name, name, tuned)
    for pair in study.unrelated(wheels):
        for name, base, tuned in increments(pair):
            if not names:
                yield Measured("base", pair.name, name, base)
            if not names or name in names:
                yield Measured("unrelated", pair.name, name, tuned - base)


def votes(measured: Iterable[Measured]) -> Iterator[Measured]:
    """Nonzero matrices, without those that nearly repeat an earlier one of their role and name."""
    groups: dict[tuple[str, str], list[Measured]] = {}
    for item in measured:
        groups.setdefault((item.role, item.name), []).append(item)
    for group in groups.values():
        repeated = repeats([item.matrix for item in group])
        for item, is_repeated in zip(group, repeated, strict=True):
            if not is_repeated and item.matrix.any():
                yield item


def coded(item: Measured, rng: np.random.Generator) -> Iterator[Row]:
    """One row per coder, transform and size: the error that is left of one increment."""
    for method, transform, bits, code in measure_all(item.matrix.numpy(), BITS, rng):
        coder = {"method": method, "transform": transform.value, "bits": bits}
        yield {**coder, "stored_bits": code.bits, "error": code.error}


def measure(name: str, data: Path, *, bits: bool) -> list[Row]:
    """The rows of one study."""
    torch.set_num_threads(1)  # small matrices, and sums in one order
    study = STUDIES[name]
    wheels = Wheels(data, study.packages)
    fields = {"study": name, "package": study.packages[0].partition("==")[0]}
    rows: list[Row] = []
    for item in votes(matrices(study, wheels)):
        if bits and item.role != "increment":
            continue
        rng = generator(0, "published", name, item.pair, item.name)
        about = {**fields, "pair": item.pair, "name": item.name, "role": item.role}
        values = coded(item, rng) if bits else retained(item.matrix, RANKS)
        rows.extend({**about, **row} for row in values)
    if not rows:
        raise InvalidArgumentError("it has no matrix that was changed")
    return rows


@click.command(cls=Command)
@WHEELS
@click.option("--out", type=Folder(file_okay=False), default="figures/published", show_default=True)
@click.option("--bits", is_flag=True, help="Compare coders at equal bits instead of adapters.")
def main(data: Path, out: Path, *, bits: bool) -> None:
    """Measure every published pair whose wheel is in the folder, store a table, and print it.

    Example: python -m experiments.published --data wheels
    """
    tables: dict[str, list[Row]] = {}
    for name in STUDIES:
        try:
            tables[name] = measure(name, data, bits=bits)
        except (LocaTheoryError, OSError, ValueError, zipfile.BadZipFile) as error:
            click.echo(f"{name}: left out: {error}", err=True)
            continue
        note = STUDIES[name].note(Wheels(data, STUDIES[name].packages))
        click.echo(f"{name}: {len(tables[name])} rows; {note}".removesuffix("; "), err=True)
    if not tables:
        raise click.ClickException("nothing was measured")
    grid = {name: STUDIES[name].about for name in tables}
    rows = list(chain.from_iterable(tables.values()))
    about = manifest(grid=grid, seed=0, dtype="float64")
    store_rows(rows, about, out, "published-bits" if bits else "published")
    if not bits:
        click.echo(printed(pd.DataFrame(rows)))


if __name__ == "__main__":
    main(prog_name="python -m experiments.published")
