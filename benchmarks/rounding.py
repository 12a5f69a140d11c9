"""How well the search inside rounding cells recovers merged adapters, and its cost.

Run from the checkout: ``python -m benchmarks.rounding [--quick] [--out FILE.json]``.

- *merges*: LoRA of known rank merged into normal weights by PEFT's recipes, with a median change of
  x median steps. By unknowns per changed entry and recipe: how often the rank is found, how often
  there is no claim, the error of the fit relative to that of the truncated SVD of d (median and
  largest), and entries that merging the result again reproduces exactly, of
  fit and SVD.
- *negatives*: changes of another form than the one that is searched for; no claim is right.
- *cost*: a fit with its cells, and the search for the rank with its held-out cells, relative to the
  eigenvalues of the Gram matrix of one 4096x4096 matrix, on one thread and interleaved; and the
  largest memory in float32 matrices above the pair.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import torch

from benchmarks._measure import timed
from benchmarks._memory import PeakMemory
from benchmarks._record import OUT, Record, Row
from loca_theory.rounding import (
    FORMATS,
    Format,
    Outcome,
    Recipe,
    find_components,
    find_rank,
    fit_low_rank,
    identical_entries,
    rounding_cells,
)
from loca_theory.sweeps import generator
from loca_theory.sweeps.threads import one_thread
from loca_theory.transforms import idct2

PACKAGES = ("numpy", "scipy", "torch")
_SPREAD = 0.02
# Unknowns per changed entry, as the requirements group them.
_GROUPS = (0.25, 0.5, float("inf"))
_RECIPES = {
    "exact": Recipe.EXACT,
    "float32 base": Recipe.EXACT,
    "half adapter": Recipe.ROUNDED_INCREMENT,
    "scaled half adapter": Recipe.ROUNDED_INCREMENT,
    "two merges": Recipe.ROUNDED_TWICE,
    "cast base": Recipe.ROUNDED_TWICE,
}
_ROUNDS = 3
# The only negative for LoCA; all others are negatives for LoRA.
_LOW_RANK = "low rank, as LoCA"


def _normal(source: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(source.standard_normal(shape, dtype=np.float32))


def _factors(
    source: np.random.Generator, weight: torch.Tensor, rank: int, x: float, form: Format
) -> tuple[torch.Tensor, torch.Tensor]:
    """B and A, whose product has a median of x median steps of the weights."""
    p, q = weight.shape
    b, a = _normal(source, p, rank), _normal(source, rank, q)
    step = float(form.steps(weight.double()).median())
    return b * (x * step / float((b @ a).abs().median())), a


def merge(
    kind: str,
    source: np.random.Generator,
    shape: tuple[int, int],
    rank: int,
    x: float,
    form: Format,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Base, fine-tune and true change of a merge, in the arithmetic of PEFT on the CPU."""
    weight = _SPREAD * _normal(source, *shape)
    base = weight.to(form.dtype)
    if kind == "two merges":
        first = max(1, rank // 4)
        change = torch.zeros(shape)
        tuned = base
        for size in (first, rank - first):
            b, a = _factors(source, base, size, x, form)
            tuned, change = (tuned.float() + b @ a).to(form.dtype), change + b @ a
        return base, tuned, change
    b, a = _factors(source, weight, rank, x, form)
    if kind in ("exact", "float32 base", "cast base"):
        start = base.float() if kind == "exact" else weight
        tuned = (start + b @ a).to(form.dtype)
        return (weight if kind == "float32 base" else base), tuned, b @ a
    # PEFT on the CPU multiplies half factors in float32, and rounds the scaled product.
    scaling = 1.0 if kind == "half adapter" else 1.7
    b, a = (b / scaling).to(form.dtype).float(), a.to(form.dtype).float()
    change = (b @ a) * scaling
    return base, base + change.to(form.dtype), change


def _relative_error(matrix: torch.Tensor, change: torch.Tensor) -> float:
    return float((matrix - change).square().sum() / change.square().sum())


def measure_merge(kind: str, shape: tuple[int, int], rank: int, x: float, name: str) -> Row:
    """One merge: what is found, and the errors of fit and SVD at the true rank."""
    form = FORMATS[name]
    source = generator(0, "merges", kind, *shape, rank, round(1000 * x), name)
    base, tuned, change = merge(kind, source, shape, rank, x, form)
    rounded = base.to(form.dtype)
    count = int((tuned != rounded).count_nonzero())
    row: Row = {"kind": kind, "unknowns": rank * sum(shape) / max(1, count), "x": x, "rank": rank}
    if not count:
        return row
    result = find_rank(base, tuned)
    row |= {"outcome": result.outcome.value, "found": result.rank, "recipe": result.recipe}
    recipe = _RECIPES[kind]
    cells = rounding_cells(base, tuned, form, recipe)
    d = tuned.float() - base.float()
    fit, svd = (fit_low_rank(d, cells, rank, steps=steps) for steps in (60, 0))
    replayed = Recipe.EXACT if recipe is Recipe.ROUNDED_TWICE else recipe
    errors = [_relative_error(approximation.increment(), change) for approximation in (fit, svd)]
    return row | {
        "error": errors[0],
        "error_svd": errors[1],
        "ratio": errors[0] / errors[1],
        "inside": fit.inside,
        "identical": identical_entries(base, tuned, fit.increment(), form, replayed),
        "identical_svd": identical_entries(base, tuned, svd.increment(), form, replayed),
    }


def summaries(rows: list[Row]) -> Iterator[Row]:
    """A row for each kind and group of unknowns, with x of at least 0.3 apart."""
    groups = defaultdict[tuple[str, float, bool], list[Row]](list)
    for row in rows:
        group = next(limit for limit in _GROUPS if row["unknowns"] <= limit)
        groups[row["kind"], group, row["x"] >= 0.3].append(row)
    for (kind, group, is_large), members in groups.items():
        right = [row.get("found") == row["rank"] for row in members]
        claimed = [row.get("found") is not None for row in members]
        wrong = [a and not b for a, b in zip(claimed, right, strict=True)]
        summary: Row = {
            "kind": kind,
            "unknowns up to": group,
            "x": "0.3 and more" if is_large else "less than 0.3",
            "pairs": len(members),
            "rank right": sum(right) / len(right),
            "wrong claims": sum(wrong),
        }
        fits = [row for row in members if "ratio" in row]
        if fits:
            ratios, identical = ([row[key] for row in fits] for key in ("ratio", "identical"))
            summary |= {
                "ratio, median": float(np.median(ratios)),
                "ratio, largest": max(ratios),
                "identical, mean": float(np.mean(identical)),
                "identical, least": min(identical),
                "identical, SVD": float(np.mean([row["identical_svd"] for row in fits])),
            }
        yield summary


def measure_merges(*, quick: bool, kinds: tuple[str, ...], names: tuple[str, ...]) -> list[Row]:
    """Measure all merges, and summarise them by kind."""
    shapes = [(256, 320)] if quick else [(512, 512), (512, 1024)]
    ranks = (2, 8) if quick else (2, 4, 8, 16, 32, 64)
    sizes = (0.3, 10) if quick else (0.1, 0.3, 1, 10, 100)
    rows = [
        measure_merge(kind, shape, rank, x, name)
        for kind, shape, rank, x, name in itertools.product(kinds, shapes, ranks, sizes, names)
    ]
    return list(summaries(rows))


def negatives(draws: int, *, quick: bool) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Pairs that the search of their kind should not claim.

    These are changes that are not of low rank, for the search for a rank, and one of low rank, for
    the search for components. All are drawn from one generator, so that their order is fixed.
    """
    side = 256 if quick else 384
    for number, x in itertools.product(range(draws), (0.03, 0.1, 0.3, 1, 10)):
        source = generator(0, "negatives", number, round(1000 * x))
        for name in ("bfloat16", "float16"):
            form = FORMATS[name]
            base = (_SPREAD * _normal(source, side, side)).to(form.dtype)
            step = float(form.steps(base.double()).median())
            entries = _normal(source, side, side) * (1.5 * x * step)
            yield "independent entries", base, (base.float() + entries).to(form.dtype)
            decay = torch.arange(1, side + 1) ** -0.7
            u, v = (torch.linalg.qr(_normal(source, side, side)).Q for _ in range(2))
            powers = u * decay @ v
            powers *= x * step / powers.abs().median()
            yield "power law", base, (base.float() + powers).to(form.dtype)
            b, a = _factors(source, base, 8, x, form)
            changed = base.float() + b @ a
            scaled = base.float().norm(dim=1) / changed.norm(dim=1)
            scaled *= 1 + 0.01 * _normal(source, side)
            yield "DoRA", base, (changed * scaled[:, None]).to(form.dtype)
            chosen = torch.from_numpy(source.random((side, side)) < 0.03)
            yield "SHiRA", base, (base.float() + 3 * entries * chosen).to(form.dtype)
            walked = base
            for _ in range(20):  # every step of the training is rounded
                walked = walked + (_normal(source, side, side) * (x * step)).to(form.dtype)
            yield "pure half precision", base, walked
            spectrum = torch.zeros(side, side)
            spectrum.view(-1)[torch.from_numpy(source.choice(side**2, 4 * side, replace=False))] = (
                _normal(source, 4 * side)
            )
            cosines = idct2(spectrum)
            cosines *= x * step / cosines.abs().median()
            yield "LoCA", base, (base.float() + cosines).to(form.dtype)
            yield _LOW_RANK, base, changed.to(form.dtype)


def measure_negatives(draws: int, *, quick: bool) -> list[Row]:
    """Claims among pairs that should have none."""
    counts = defaultdict[str, list[Outcome]](list)
    for kind, base, tuned in negatives(draws, quick=quick):
        if bool((base != tuned).any()):
            search = find_components if kind == _LOW_RANK else find_rank
            counts[kind].append(search(base, tuned).outcome)
    return [
        {"kind": kind, "pairs": len(outcomes), "claimed": outcomes.count(Outcome.FOUND)}
        for kind, outcomes in counts.items()
    ]


def measure_cost(side: int, rounds: int) -> list[Row]:
    """Times relative to the eigenvalues of the Gram matrix, and the largest memory."""
    form, rank = FORMATS["bfloat16"], 16
    base, tuned, change = merge("exact", generator(0, "cost"), (side, side), rank, 1.0, form)
    gram = change.mT @ change
    del change

    def fit() -> object:
        d = tuned.float() - base.float()
        return fit_low_rank(d, rounding_cells(base, tuned, form), rank)

    def search() -> object:
        result = find_rank(base, tuned)
        if result.rank != rank:
            raise RuntimeError(f"the rank is {rank}, not {result.rank}")
        return result

    rivals = {
        "fit, cells included": fit,
        "search for the rank": search,
        "eigenvalues": lambda: torch.linalg.eigvalsh(gram),
    }
    matrix = 4 * side**2
    memory: dict[str, float] = {}
    for name, step in rivals.items():
        with PeakMemory() as peak:
            step()
        memory[name] = peak.bytes / matrix
    with one_thread():
        rows = timed(rivals, "eigenvalues", rounds=rounds, attempts=1)
    return [row | {"memory, matrices": memory[row["what"]]} for row in rows]


_PARTS = ("merges", "negatives", "cost")


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes.")
@click.option("--rounds", default=_ROUNDS, show_default=True, help="Rounds of the timing.")
@click.option(
    "--draws",
    default=1,
    show_default=True,
    help="Draws of the negatives; each makes ten pairs per kind.",
)
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(list(_RECIPES)), default=list(_RECIPES)
)
@click.option(
    "--format",
    "names",
    multiple=True,
    type=click.Choice(["bfloat16", "float16"]),
    default=["bfloat16"],
    show_default=True,
)
@click.option("--skip", multiple=True, type=click.Choice(_PARTS), help="A part to leave out.")
@OUT
def main(
    *,
    quick: bool,
    rounds: int,
    draws: int,
    kinds: tuple[str, ...],
    names: tuple[str, ...],
    skip: tuple[str, ...],
    out: Path | None,
) -> None:
    """Measure what is found and what it costs, and print the results."""
    record = Record(out, PACKAGES)
    for name, measure in {
        "merges": lambda: measure_merges(quick=quick, kinds=kinds, names=names),
        "negatives": lambda: measure_negatives(draws, quick=quick),
        "cost": lambda: measure_cost(1024 if quick else 4096, rounds),
    }.items():
        if name not in skip:
            record.add(name, "", measure)


if __name__ == "__main__":
    main()
