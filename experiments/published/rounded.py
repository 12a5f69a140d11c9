"""What rounding leaves of a fine-tune, and what ``extract`` finds of it, against known changes.

``python -m experiments.published.rounded --data wheels`` rounds float32 fine-tunes that others
published to bfloat16 and float16, with their changes scaled down, and adds low-rank and cosine
changes that it merges itself. Of each matrix it compares the change that was made with the adapters
that ``extract`` makes of the stored pair, inside rounding cells and without them; and of each pair,
what ``analyze`` says retains most. Takes some minutes on one core.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Literal

import click
import torch

from experiments.extracted import Row
from experiments.published.wheels import STUDIES, Weights, Wheels
from loca_theory.checkpoints import Analysis, Extraction, analyze, extract
from loca_theory.checkpoints.form.forms import FORMS as ADAPTERS
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder
from loca_theory.rounding import FORMATS, Format, rounded_change, rounding_cells
from loca_theory.sweeps import generator
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.tables import store_rows
from loca_theory.transforms import idct2

FORMS = ("bfloat16", "float16")
SCALES = (1.0, 1 / 3, 0.1, 1 / 30, 0.01)
RANKS = (4, 16)
# Of each study every sixth or second matrix, up to this many entries.
PAIRS = {"rxnfp": 6, "rxnfp-10k": 6, "sre": 6, "chgnet": 2}
LARGEST, SMALLEST = 2**19, 32
# Ranks of merged changes, their sizes in median steps of the weights, and the width of the layer.
MERGED_RANKS, STEPS, WIDTH, SPREAD = (4, 32), (0.03, 0.1, 0.3, 1.0, 10.0, 100.0), 512, 0.02
METHODS = tuple(form.method for form in ADAPTERS.values())  # LoRA, LoCA and entries
WARNING = "Stored in "


Form = Literal["lora", "loca"]
Merge = tuple[Form, int, torch.Tensor, torch.Tensor]
"""Form and rank of a change, the weights and the change."""


def published(name: str, data: Path) -> tuple[Weights, Weights]:
    """Base and change of the matrices of a study, in float64."""
    (pair,) = STUDIES[name].pairs(Wheels(data, STUDIES[name].packages))
    base: Weights = {}
    change: Weights = {}
    for key, before in pair.base.items():
        after = pair.tuned.get(key)
        if after is None or after.shape != before.shape or torch.equal(before, after):
            continue
        if min(before.shape) >= SMALLEST and before.numel() <= LARGEST:
            base[key], change[key] = before.double(), after.double() - before.double()
    chosen = list(base)[:: PAIRS[name]]
    return {key: base[key] for key in chosen}, {key: change[key] for key in chosen}


def merges(steps: float, form: Format) -> Iterator[Merge]:
    """Changes of low rank, and of few cosines: their form, size, weights and the change."""
    for rank in MERGED_RANKS:
        source = generator(0, "rounded merges", rank, form.name, round(1000 * steps))
        normal = [
            torch.from_numpy(source.standard_normal(shape))
            for shape in ((WIDTH, WIDTH), (WIDTH, rank), (rank, WIDTH))
        ]
        base = form.round(SPREAD * normal[0])
        spectrum = torch.zeros(WIDTH**2, dtype=torch.float64)
        chosen = torch.from_numpy(source.choice(WIDTH**2, WIDTH * rank, replace=False))
        spectrum[chosen] = torch.from_numpy(source.standard_normal(WIDTH * rank))
        step = float(form.steps(base).median())
        low, cosines = normal[1] @ normal[2], idct2(spectrum.view(WIDTH, WIDTH))
        yield "lora", rank, base, low * (steps * step / float(low.abs().median()))
        yield "loca", rank, base, cosines * (steps * step / float(cosines.abs().median()))


def made(extraction: Extraction, name: str) -> torch.Tensor:
    """The increment of one layer of an adapter, from the numbers that it stores."""
    (adapter,) = extraction.adapters.values()
    prefix = f"base_model.model.{name.removesuffix('.weight')}."
    tensors = {
        key.removeprefix(prefix): value.double()
        for key, value in adapter.tensors.items()
        if key.startswith(prefix)
    }
    if extraction.method == "lora":
        b, a = tensors["lora_B.weight"], tensors["lora_A.weight"]
        return adapter.config["lora_alpha"] / len(a) * (b @ a)
    values, indices, shape = tensors.values()
    spectrum = torch.zeros([int(side) for side in shape], dtype=torch.float64)
    spectrum[tuple(indices.long().T)] = values
    return idct2(spectrum)


def stored(
    base: torch.Tensor, change: torch.Tensor, form: Format
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights before and after as a format stores them; the base is rounded first."""
    before = form.round(base)
    return before.to(form.dtype), form.round(before + change).to(form.dtype)


def extracted(
    base: Mapping[str, torch.Tensor],
    change: Mapping[str, torch.Tensor],
    form: Format,
    rank: int,
    methods: Sequence[Form] = ("lora", "loca"),
) -> Iterator[Row]:
    """A row per matrix and method: what the adapters retain of the change that was made."""
    pairs = {key: stored(base[key], change[key], form) for key in base}
    moved = {key: pair for key, pair in pairs.items() if not torch.equal(*pair)}
    if not moved:
        return
    sides = [{key: pair[i] for key, pair in moved.items()} for i in (0, 1)]
    for method in methods:
        inside, ignored = (
            extract(sides[0], sides[1], method, rank=rank, rounding=rounding)
            for rounding in ("cells", "ignore")
        )
        for row in inside.matrices:
            truth = change[row.name]
            before, after = moved[row.name]
            cells = rounding_cells(before.double(), after.double(), form)
            increments = [made(extraction, row.name) for extraction in (inside, ignored)]
            errors = [
                float((increment - truth).square().sum() / truth.square().sum())
                for increment in increments
            ]
            entries = [float(cells.contain(some.float()).double().mean()) for some in increments]
            count = int((before != after).count_nonzero())
            law = rounded_change(form, float(truth.std()), float(base[row.name].std()))
            yield {
                "matrix": row.name, "p": row.shape[0], "q": row.shape[1],
                "changed": count / before.numel(), "changed_law": law.changed,
                "method": row.method, "r": rank, "unknowns": row.numbers / count,
                "steps": row.steps, "retained": 1 - errors[0], "retained_nearest": 1 - errors[1],
                "error": row.error, "nearest_error": row.nearest_error,
                "distance": row.distance, "nearest_distance": row.nearest_distance,
                "inside": entries[0], "inside_nearest": entries[1],
            }  # fmt: skip


def retained(analysis: Analysis) -> dict[str, float]:
    """The mean energy that each method retains, as the verdict has it."""
    (errors,) = analysis.summary.all.by_rank.values()
    return {method: 1 - errors[method].error for method in METHODS}


def winners(analysis: Analysis) -> dict[str, str]:
    """The method that retains most of each matrix."""
    best: dict[str, tuple[float, str]] = {}
    for row in analysis.errors:
        if row.method not in METHODS:
            continue
        best[row.name] = min(best.get(row.name, (2.0, "")), (row.error, row.method))
    return {name: method for name, (_, method) in best.items()}


def verdicts(base: Weights, change: Weights) -> Iterator[Row]:
    """A row per format and scale: what analyze says of the stored pair, and of the change."""

    def analysed(before: Weights, after: Weights) -> Analysis:
        return analyze(before, after, ranks=RANKS[0])

    truth = analysed(base, {key: base[key] + change[key] for key in base})
    known, goal = winners(truth), retained(truth)
    for name in FORMS:
        for scale in SCALES:
            pairs = {key: stored(base[key], scale * change[key], FORMATS[name]) for key in base}
            pairs = {key: pair for key, pair in pairs.items() if not torch.equal(*pair)}
            sides = [{key: pair[i] for key, pair in pairs.items()} for i in (0, 1)]
            result = analysed(sides[0], sides[1])
            best, means = winners(result), retained(result)
            yield {
                "format": name, "scale": scale, "matrices": len(best),
                "changed": median(row.changed or 0.0 for row in result.matrices),
                "rounding": median(row.rounding or 0.0 for row in result.matrices),
                "warned": any(text.startswith(WARNING) for text in result.warnings),
                "winner": max(means, key=lambda method: means[method]),
                "true_winner": max(goal, key=lambda method: goal[method]),
                "other_winner": sum(known[key] != method for key, method in best.items()),
                **{f"retained_{method}": value for method, value in means.items()},
                **{f"true_{method}": value for method, value in goal.items()},
            }  # fmt: skip


def measure(data: Path) -> tuple[list[Row], list[Row]]:
    """The rows of adapters, and those of verdicts."""
    torch.set_num_threads(1)  # sums in one order
    adapters, said = list[Row](), list[Row]()
    for study in PAIRS:
        base, change = published(study, data)
        said += [{"study": study, **row} for row in verdicts(base, change)]
        for name in FORMS:
            for scale in SCALES:
                scaled = {key: scale * matrix for key, matrix in change.items()}
                for rank in RANKS:
                    known = {"study": study, "format": name, "scale": scale}
                    rows = extracted(base, scaled, FORMATS[name], rank)
                    adapters += [{**known, **row} for row in rows]
        click.echo(f"{study}: {len(base)} matrices, {len(adapters)} rows of adapters so far")
    for name in FORMS:
        for steps in STEPS:
            for method, rank, base, change in merges(steps, FORMATS[name]):
                known = {"study": f"merged {method}, r = {rank}", "format": name, "scale": steps}
                for size in sorted({max(1, rank // 2), rank, 2 * rank}):
                    rows = extracted({"w": base}, {"w": change}, FORMATS[name], size, [method])
                    adapters += [{**known, **row} for row in rows]
    return adapters, said


@click.command(cls=Command)
@click.option("--data", type=Folder(exists=True, file_okay=False), required=True,
              help="Folder with the wheels.")  # fmt: skip
@click.option("--out", type=Folder(file_okay=False), default="figures/published", show_default=True)
def main(data: Path, out: Path) -> None:
    """Measure what rounding leaves of fine-tunes in the wheels in a folder, and of merges.

    Example: python -m experiments.published.rounded --data wheels
    """
    adapters, said = measure(data)
    wheels = [package for study in PAIRS for package in STUDIES[study].packages]
    grid = {
        "wheels": wheels, "formats": FORMS, "scales": SCALES, "ranks": RANKS,
        "merged ranks": MERGED_RANKS, "steps": STEPS, "width": WIDTH,
    }  # fmt: skip
    about = manifest(grid=grid, seed=0, dtype="float64")
    store_rows(adapters, about, out, "rounded-adapters")
    store_rows(said, about, out, "rounded-verdicts")
    gains = [row["retained"] - row["retained_nearest"] for row in adapters]
    click.echo(f"{len(adapters)} adapters: gains from {min(gains):.4f} to {max(gains):.4f}")
    wrong = [row for row in said if row["winner"] != row["true_winner"]]
    click.echo(f"{len(said)} verdicts: {len(wrong)} name another form than that of the change, "
               f"{sum(row['warned'] for row in wrong)} of these with a warning")  # fmt: skip


if __name__ == "__main__":
    main(prog_name="python -m experiments.published.rounded")
