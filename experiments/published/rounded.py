"""What rounding leaves of a fine-tune, and what ``extract`` finds of it, against known changes.

``python -m experiments.published.rounded --data wheels`` rounds float32 fine-tunes that others
published to bfloat16 and float16, with their changes scaled down, and adds low-rank and cosine
changes that it merges itself. Of each matrix it compares the change that was made with the adapters
that ``extract`` makes of the stored pair, inside rounding cells and without them; and of each pair,
what ``analyze`` says retains most. Takes some minutes on one core.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import median

import click
import torch

from experiments.published.files import WHEELS
from experiments.published.rounded_pairs import (
    EVERY,
    MERGED_RANKS,
    STEPS,
    WIDTH,
    Form,
    merges,
    published,
    stored,
)
from experiments.published.wheels import STUDIES, Weights
from experiments.tables import Row
from loca_theory.checkpoints import Analysis, Extraction, analyze, extract
from loca_theory.checkpoints.form.forms import FORMS as ADAPTERS
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder
from loca_theory.rounding import FORMATS, Format, rounded_change, rounding_cells
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.tables import store_rows
from loca_theory.transforms import idct2

FORMAT_NAMES = ("bfloat16", "float16")
SCALES = (1.0, 1 / 3, 0.1, 1 / 30, 0.01)
RANKS = (4, 16)
MERGES, LAYER = "merges", "layer.weight"
PARTS = (*EVERY, MERGES)
METHODS = tuple(form.method for form in ADAPTERS.values())  # LoRA, LoCA and entries
WARNING = "Stored in "


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


def extracted(
    base: Mapping[str, torch.Tensor],
    change: Mapping[str, torch.Tensor],
    stored_as: Format,
    rank: int,
    methods: Sequence[Form] = ("lora", "loca"),
) -> Iterator[Row]:
    """A row per matrix and method: what the adapters retain of the change that was made."""
    pairs = {key: stored(base[key], change[key], stored_as) for key in base}
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
            cells = rounding_cells(before.double(), after.double(), stored_as)
            increments = [made(extraction, row.name) for extraction in (inside, ignored)]
            errors = [
                float((increment - truth).square().sum() / truth.square().sum())
                for increment in increments
            ]
            entries = [float(cells.contain(new.float()).double().mean()) for new in increments]
            count = int((before != after).count_nonzero())
            law = rounded_change(stored_as, float(truth.std()), float(base[row.name].std()))
            yield {
                "matrix": row.name,
                "p": row.shape[0],
                "q": row.shape[1],
                "changed": count / before.numel(),
                "changed_law": law.changed,
                "method": row.method,
                "r": rank,
                "unknowns": row.numbers / count,
                "steps": row.steps,
                "retained": 1 - errors[0],
                "retained_nearest": 1 - errors[1],
                "distance": row.distance,
                "nearest_distance": row.nearest_distance,
                "inside": entries[0],
                "inside_nearest": entries[1],
            }


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
    true_best, goal = winners(truth), retained(truth)
    for name in FORMAT_NAMES:
        for scale in SCALES:
            pairs = {key: stored(base[key], scale * change[key], FORMATS[name]) for key in base}
            pairs = {key: pair for key, pair in pairs.items() if not torch.equal(*pair)}
            sides = [{key: pair[i] for key, pair in pairs.items()} for i in (0, 1)]
            result = analysed(sides[0], sides[1])
            best, means = winners(result), retained(result)
            yield {
                "format": name,
                "scale": scale,
                "matrices": len(best),
                "changed": median(row.changed or 0.0 for row in result.matrices),
                "rounding": median(row.rounding or 0.0 for row in result.matrices),
                "warned": any(text.startswith(WARNING) for text in result.warnings),
                "winner": max(means, key=lambda method: means[method]),
                "true_winner": max(goal, key=lambda method: goal[method]),
                "other_winner": sum(true_best[key] != method for key, method in best.items()),
                **{f"retained_{method}": value for method, value in means.items()},
                **{f"true_{method}": value for method, value in goal.items()},
            }


def measure(part: str, data: Path) -> dict[str, list[Row]]:
    """The rows of adapters of a study or of merges, and those of verdicts."""
    torch.set_num_threads(1)  # sums in one order
    if part == MERGES:
        return {"adapters": list(merged())}
    base, change = published(part, data)
    adapters = list[Row]()
    for name, scale, rank in product(FORMAT_NAMES, SCALES, RANKS):
        fields = {"study": part, "format": name, "scale": scale}
        scaled = {key: scale * matrix for key, matrix in change.items()}
        adapters += [{**fields, **row} for row in extracted(base, scaled, FORMATS[name], rank)]
    said = [{"study": part, **row} for row in verdicts(base, change)]
    return {"adapters": adapters, "verdicts": said}


def merged() -> Iterator[Row]:
    """The rows of merges, by adapters of half the rank, of the rank and of twice the rank."""
    for name, steps in product(FORMAT_NAMES, STEPS):
        for method, rank, base, change in merges(steps, FORMATS[name]):
            fields = {"study": f"merged {method}, r = {rank}", "format": name, "scale": steps}
            for size in (rank // 2, rank, 2 * rank):
                rows = extracted({LAYER: base}, {LAYER: change}, FORMATS[name], size, [method])
                yield from ({**fields, **row} for row in rows)


@click.command(cls=Command)
@WHEELS
@click.option("--out", type=Folder(file_okay=False), default="figures/published", show_default=True)
def main(data: Path, out: Path) -> None:
    """Measure what rounding leaves of fine-tunes in the wheels in a folder, and of merges.

    Example: python -m experiments.published.rounded --data wheels
    """
    wheels = [package for study in EVERY for package in STUDIES[study].packages]
    grid = {"wheels": wheels, "formats": FORMAT_NAMES, "scales": SCALES, "ranks": RANKS}
    merges = {"merged ranks": MERGED_RANKS, "steps": STEPS, "width": WIDTH}
    about = manifest(grid={**grid, **merges}, seed=0, dtype="float64")
    tables: dict[str, list[Row]] = {"adapters": [], "verdicts": []}
    for part in PARTS:
        for name, rows in measure(part, data).items():
            tables[name] += rows
        click.echo(f"{part} is done")
    for name, rows in tables.items():
        store_rows(rows, about, out, f"rounded-{name}")


if __name__ == "__main__":
    main(prog_name="python -m experiments.published.rounded")
