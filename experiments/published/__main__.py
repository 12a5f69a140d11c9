"""What each form of adapter retains of fine-tunes that others published.

``python -m experiments.published --data FOLDER`` reads the wheels there; ``docs/published.md``
has the lines that download them, and what was found. With ``--bits`` it compares what coders leave
at equal bits instead.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np
import torch

from experiments.published.measures import SMALLEST, Row, rows, statistics
from experiments.published.wheels import STUDIES, Fitted, Wheels
from loca_theory.cli.command import Command
from loca_theory.errors import LocaTheoryError
from loca_theory.expressivity.coders.registry import measure_all
from loca_theory.sweeps import generator
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.tables import store_rows

BITS = (0.25, 0.5, 1.0, 2.0)
"""Bits per entry at which coders are compared."""


def increments(pair: Fitted) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Matrices that were changed and are large enough, before and after."""
    for name, base in pair.base.items():
        tuned = pair.tuned.get(name)
        if tuned is None or tuned.shape != base.shape or min(base.shape) < SMALLEST:
            continue
        if torch.isfinite(tuned).all() and not torch.equal(base, tuned):
            yield name, base, tuned


def retained(
    base: torch.Tensor, tuned: torch.Tensor, rng: np.random.Generator
) -> dict[str, list[Row]]:
    """What forms of adapters retain of one matrix, and its statistics."""
    found = list(rows(tuned.double() - base.double(), rng))
    return {"retained": found, "matrices": [statistics(base, tuned)]}


def at_equal_bits(
    base: torch.Tensor, tuned: torch.Tensor, rng: np.random.Generator
) -> dict[str, list[Row]]:
    """What coders leave of one matrix."""
    delta = (tuned.double() - base.double()).numpy()
    found = [
        {
            "method": method, "transform": transform.value, "bits": bits,
            "stored_bits": coded.bits, "error": coded.error,
        }
        for method, transform, bits, coded in measure_all(delta, BITS, rng)
    ]  # fmt: skip
    return {"bits": found}


def measure(
    study: str, data: Path, measured: Callable[..., dict[str, list[Row]]]
) -> dict[str, list[Row]]:
    """The rows of each table for one study."""
    torch.set_num_threads(1)  # small matrices, and sums in one order
    tables: dict[str, list[Row]] = {}
    for pair in STUDIES[study].pairs(Wheels(data, STUDIES[study].packages)):
        for name, base, tuned in increments(pair):
            known = {"study": study, "pair": pair.name, "name": name}
            rng = generator(0, "published", study, pair.name, name)
            for table, found in measured(base, tuned, rng).items():
                tables.setdefault(table, []).extend({**known, **row} for row in found)
    return tables


@click.command(cls=Command)
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path),
              required=True, help="Folder with the wheels.")  # fmt: skip
@click.option("--only", multiple=True, type=click.Choice(list(STUDIES)), help="These pairs alone.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path),
              default=Path("figures/published"), show_default=True)  # fmt: skip
@click.option("--bits", is_flag=True, help="Compare coders at equal bits instead of adapters.")
def main(data: Path, only: tuple[str, ...], out: Path, *, bits: bool) -> None:
    """Measure every published pair whose wheel is in the folder, and store a table for each.

    Example: python -m experiments.published --data wheels
    """
    done = 0
    for study in only or STUDIES:
        try:
            tables = measure(study, data, at_equal_bits if bits else retained)
        except (LocaTheoryError, OSError, ValueError, zipfile.BadZipFile) as error:
            click.echo(f"{study}: left out: {error}", err=True)
            continue
        if not tables:
            click.echo(f"{study}: left out: it has no matrix that was changed", err=True)
            continue
        about = STUDIES[study]
        made = manifest(
            grid={"study": study, "about": about.about, "wheels": list(about.packages)},
            seed=0, dtype="float64",
        )  # fmt: skip
        for name, found in tables.items():
            store_rows(found, made, out, f"{study}-{name}")
        click.echo(f"{study}: " + ", ".join(f"{len(one)} {key}" for key, one in tables.items()))
        done += 1
    if not done:
        msg = "nothing was measured"
        raise click.ClickException(msg)


if __name__ == "__main__":
    main(prog_name="python -m experiments.published")
