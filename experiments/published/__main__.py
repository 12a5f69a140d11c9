"""What each form of adapter retains of fine-tunes that others published.

``python -m experiments.published --data FOLDER`` reads the wheels there; ``docs/published.md``
has the lines that download them, and what was found. With ``--bits`` it compares what coders leave
at equal bits instead.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import torch

from experiments.extracted import Row
from experiments.published.wheels import STUDIES, Fitted, Wheels
from loca_theory.checkpoints.measure.errors import fitting_budget
from loca_theory.checkpoints.measure.settings import Settings
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder
from loca_theory.errors import InvalidArgumentError, LocaTheoryError
from loca_theory.expressivity import Accounting, spectral_error
from loca_theory.expressivity.coders.registry import measure_all
from loca_theory.expressivity.matrices import retained_energies
from loca_theory.expressivity.methods.registry import find_methods
from loca_theory.increments.ranks import effective_rank, energy_ranks
from loca_theory.sweeps import generator
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.tables import store_rows
from loca_theory.transforms import dct, dct2

RANKS = (2, 4, 8, 16)
ACCOUNTINGS = (Accounting.PAPER, Accounting.TRAINABLE, Accounting.BITS)
METHODS = ("R", "D", "S", "F2", "FourierFT")
SHUFFLES = 8  # random orders of the shuffled axes
LEADING, ALIKE = 10, 0.5  # singular vectors that may be intruders, and the cosine that clears them
SMALLEST = 16  # sides below this have no ranks to compare
BITS = (0.25, 0.5, 1.0, 2.0)  # per entry, at which coders are compared


def rows(delta: torch.Tensor, rng: np.random.Generator) -> Iterator[Row]:
    """One row per rank, accounting and form: the fraction of ‖ΔW‖² that is retained.

    The forms are the package's methods; ``D``, its axes in random order (mean over orders); and the
    largest coefficients of the DCT along one axis. ``predicted`` is the fraction that the singular
    values alone predict.
    """
    delta = delta.double()
    total, singular = float(delta.square().sum()), torch.linalg.svdvals(delta).numpy()
    p, q = delta.shape
    orders = [(rng.permutation(p), rng.permutation(q)) for _ in range(SHUFFLES)]
    spectra = {
        "D, outputs shuffled": [dct2(delta[rows]) for rows, _ in orders],
        "D, inputs shuffled": [dct2(delta[:, columns]) for _, columns in orders],
        "D, both shuffled": [dct2(delta[rows][:, columns]) for rows, columns in orders],
        "DCT along outputs": [dct(delta.T.contiguous())],
        "DCT along inputs": [dct(delta)],
    }
    # Energy of the 1, 2, … largest coefficients, in the mean over spectra.
    energies = {
        form: np.mean([np.sort(one.flatten().square().numpy())[::-1].cumsum() for one in own], 0)
        for form, own in spectra.items()
    }
    for accounting in ACCOUNTINGS:
        settings = Settings(RANKS, find_methods(METHODS), accounting=accounting)
        budgets = [one for r in RANKS if (one := fitting_budget(p, q, r, settings))]
        for form in (*METHODS, *energies) if budgets else ():
            if form in energies:
                found = [energies[form][one.chosen_coefficients - 1] for one in budgets]
            else:
                found = retained_energies(delta, form, budgets, rng)
            predicts = form in METHODS and form != "FourierFT"
            for budget, energy in zip(budgets, found, strict=True):
                predicted = 1 - spectral_error(singular, form, budget) if predicts else None
                yield {"r": budget.r, "accounting": accounting.value, "method": form,
                       "retained": float(energy / total), "predicted": predicted}  # fmt: skip


def statistics(base: torch.Tensor, tuned: torch.Tensor) -> Row:
    """Statistics of one increment and its weights."""
    base, tuned = base.double(), tuned.double()
    delta = tuned - base
    squares = torch.linalg.svdvals(delta).square().numpy()
    centred = delta - delta.mean()
    kurtosis = float(centred.pow(4).mean() / centred.square().mean() ** 2 - 3)
    before, after = (torch.linalg.svd(one, full_matrices=False).U for one in (base, tuned))
    cosines = (before.T @ after[:, :LEADING]).abs().amax(0)
    return {
        "p": delta.shape[0],
        "q": delta.shape[1],
        "relative_norm": float(delta.norm() / base.norm()),
        "cosine": float((base * tuned).sum() / (base.norm() * tuned.norm())),
        "excess_kurtosis": kurtosis,
        "effective_rank": effective_rank(squares[::-1]),
        "rank_90": energy_ranks(squares[::-1], (0.9,))[0],
        "unchanged": float((delta == 0).double().mean()),
        # Of the leading left singular vectors of W′, those that are like none of all of W₀'s.
        "intruders": int((cosines < ALIKE).sum()),
    }


def increments(pair: Fitted) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Matrices that were changed and are large enough, before and after."""
    for name, base in pair.base.items():
        tuned = pair.tuned.get(name)
        if tuned is None or tuned.shape != base.shape or min(base.shape) < SMALLEST:
            continue
        if torch.isfinite(tuned).all() and not torch.equal(base, tuned):
            yield name, base, tuned


def coded(delta: torch.Tensor, rng: np.random.Generator) -> Iterator[Row]:
    """One row per coder, transform and size: the error that is left of one increment."""
    for method, transform, bits, found in measure_all(delta.double().numpy(), BITS, rng):
        yield {"method": method, "transform": transform.value, "bits": bits,
               "stored_bits": found.bits, "error": found.error}  # fmt: skip


def measure(study: str, data: Path, *, bits: bool) -> dict[str, list[Row]]:
    """The rows of each table for one study."""
    torch.set_num_threads(1)  # small matrices, and sums in one order
    tables: dict[str, list[Row]] = {}
    for pair in STUDIES[study].pairs(Wheels(data, STUDIES[study].packages)):
        for name, base, tuned in increments(pair):
            delta = tuned.double() - base.double()
            rng = generator(0, "published", study, pair.name, name)
            found = {"bits": coded(delta, rng)} if bits else {
                "retained": rows(delta, rng), "matrices": [statistics(base, tuned)]}  # fmt: skip
            known = {"study": study, "pair": pair.name, "name": name}
            for table, own in found.items():
                tables.setdefault(table, []).extend({**known, **row} for row in own)
    if not tables:
        msg = "it has no matrix that was changed"
        raise InvalidArgumentError(msg)
    return tables


@click.command(cls=Command)
@click.option("--data", type=Folder(exists=True, file_okay=False), required=True,
              help="Folder with the wheels.")  # fmt: skip
@click.option("--out", type=Folder(file_okay=False), default="figures/published", show_default=True)
@click.option("--bits", is_flag=True, help="Compare coders at equal bits instead of adapters.")
def main(data: Path, out: Path, *, bits: bool) -> None:
    """Measure every published pair whose wheel is in the folder, and store a table for each.

    Example: python -m experiments.published --data wheels
    """
    done = 0
    for study in STUDIES:
        try:
            tables = measure(study, data, bits=bits)
        except (LocaTheoryError, OSError, ValueError, zipfile.BadZipFile) as error:
            click.echo(f"{study}: left out: {error}", err=True)
            continue
        grid = {"study": study, "about": STUDIES[study].about, "wheels": STUDIES[study].packages}
        made = manifest(grid=grid, seed=0, dtype="float64")
        for name, found in tables.items():
            store_rows(found, made, out, f"{study}-{name}")
        click.echo(f"{study}: " + ", ".join(f"{len(one)} {key}" for key, one in tables.items()))
        done += 1
    if not done:
        msg = "nothing was measured"
        raise click.ClickException(msg)


if __name__ == "__main__":
    main(prog_name="python -m experiments.published")
