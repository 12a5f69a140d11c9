"""What each form of adapter retains of fine-tunes that others published.

``python -m experiments.published --data FOLDER`` reads the wheels there; ``docs/published.md``
has the lines that download them, and what was found.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import torch

from experiments.published.measures import SMALLEST, Row, rows, statistics
from experiments.published.wheels import STUDIES, Fitted, Wheels
from loca_theory.cli.command import Command
from loca_theory.errors import LocaTheoryError
from loca_theory.sweeps import generator
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.results import store_rows


def increments(pair: Fitted) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Matrices that were changed and are large enough, before and after."""
    for name, base in pair.base.items():
        tuned = pair.tuned.get(name)
        if tuned is None or tuned.shape != base.shape or min(base.shape) < SMALLEST:
            continue
        if torch.isfinite(tuned).all() and not torch.equal(base, tuned):
            yield name, base, tuned


def measure(study: str, data: Path) -> tuple[list[Row], list[Row]]:
    """The rows of both tables for one study."""
    torch.set_num_threads(1)  # small matrices, and sums in one order
    retained, matrices = [], []
    for pair in STUDIES[study].pairs(Wheels(data, STUDIES[study].packages)):
        for name, base, tuned in increments(pair):
            known = {"study": study, "pair": pair.name, "name": name}
            rng: np.random.Generator = generator(0, "published", study, pair.name, name)
            matrices.append({**known, **statistics(base, tuned)})
            retained += [{**known, **row} for row in rows(tuned.double() - base.double(), rng)]
    return retained, matrices


@click.command(cls=Command)
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path),
              required=True, help="Folder with the wheels.")  # fmt: skip
@click.option("--only", multiple=True, type=click.Choice(list(STUDIES)), help="These pairs alone.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path),
              default=Path("figures/published"), show_default=True)  # fmt: skip
def main(data: Path, only: tuple[str, ...], out: Path) -> None:
    """Measure every published pair whose wheel is in the folder, and store a table for each.

    Example: python -m experiments.published --data wheels
    """
    done = 0
    for study in only or STUDIES:
        try:
            retained, matrices = measure(study, data)
        except (LocaTheoryError, OSError, ValueError, zipfile.BadZipFile) as error:
            click.echo(f"{study}: left out: {error}", err=True)
            continue
        if not matrices:
            click.echo(f"{study}: left out: it has no matrix that was changed", err=True)
            continue
        about = STUDIES[study]
        made = manifest(
            grid={"study": study, "about": about.about, "wheels": list(about.packages)},
            seed=0, dtype="float64",
        )  # fmt: skip
        store_rows(retained, made, out, f"{study}-retained")
        store_rows(matrices, made, out, f"{study}-matrices")
        click.echo(f"{study}: {len(matrices)} matrices")
        done += 1
    if not done:
        msg = "nothing was measured"
        raise click.ClickException(msg)


if __name__ == "__main__":
    main(prog_name="python -m experiments.published")
