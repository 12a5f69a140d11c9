"""Gradients of one batch and the first update of Adam, of the sentence transformer's matrices.

``python -m experiments.minilm_gradients --out pair`` writes ``pair/gradients.parquet``, one row per
linear layer: the energy beyond the r largest singular values in the first batch of
``experiments.minilm``, and the bounds of docs/theory/low-rank-increments.md. It takes a few minutes
and needs ``pip install 'loca-theory[experiments]'``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pandas as pd
import torch

from experiments.docstrings import splits
from experiments.minilm import BATCH, RATE, TESTED_FRACTION, encoded, pretrained
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder

RANK = 8


def tail(matrix: torch.Tensor, r: int) -> float:
    """Fraction of the energy beyond the r largest singular values."""
    # The smaller Gram matrix in double precision is exact enough, and much faster than an SVD.
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    energies = torch.linalg.eigvalsh(tall.T @ tall)
    return float(energies[:-r].sum() / energies.sum())


def row(
    inputs: torch.Tensor, outputs: torch.Tensor, update: torch.Tensor, r: int
) -> dict[str, float]:
    """The numbers of one layer."""
    gradient = outputs.T @ inputs
    energy = float(gradient.square().sum())
    x, g = inputs.square().sum(), outputs.square().sum()
    beyond = {"inputs": tail(inputs, r), "outputs": tail(outputs, r), "gradient": tail(gradient, r)}
    bounds = (
        torch.linalg.matrix_norm(outputs, 2).square() * x * beyond["inputs"],
        torch.linalg.matrix_norm(inputs, 2).square() * g * beyond["outputs"],
    )
    # Theorem 3, which holds for tau <= omega.
    omega, tau = float(gradient.abs().sum()) ** 2 / (gradient.numel() * energy), beyond["gradient"]
    least = max(0.0, omega**0.5 - tau**0.5) ** 2 / (1 - tau)
    return {
        **beyond,
        "bound": float(min(bounds)) / energy,
        "flatness": omega,
        "adam": tail(update, r),
        "adam_bound": 1 - least,
    }


def measure(model: torch.nn.Module, batch: Mapping[str, torch.Tensor]) -> list[dict[str, Any]]:
    """The rows of a transformer's linear layers, whose weights take one step of Adam."""
    layers = {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, torch.nn.Linear) and ".layer." in name
    }
    seen: dict[str, dict[str, torch.Tensor]] = {name: {} for name in layers}

    def keep(name: str, key: str, value: torch.Tensor) -> None:
        seen[name][key] = value.detach().reshape(-1, value.shape[-1])

    for name, layer in layers.items():
        layer.register_forward_hook(lambda _, given, __, name=name: keep(name, "inputs", given[0]))
        layer.register_full_backward_hook(
            lambda _, __, given, name=name: keep(name, "outputs", given[0])
        )
    before = {name: layer.weight.detach().clone() for name, layer in layers.items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    model(**batch).loss.backward()
    optimizer.step()
    return [
        {"name": name, "r": RANK, "tokens": len(seen[name]["inputs"])}
        | row(**seen[name], update=layer.weight.detach() - before[name], r=RANK)
        for name, layer in layers.items()
    ]


@click.command(cls=Command)
@click.option("--out", type=Folder(), default=Path("pair"), show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(out: Path, seed: int) -> None:
    """Measure one batch and write the table."""
    train, _ = splits(seed, (TESTED_FRACTION,))
    examples = random.Random(seed).sample(train, BATCH)
    with pretrained(seed) as (tokenizer, model):
        # Double precision: an update is far smaller than a weight.
        rows = measure(model.double().train(), encoded(tokenizer, examples))
    out.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_parquet(out / "gradients.parquet", index=False)
    click.echo(f"{len(rows)} layers, {rows[0]['tokens']} tokens: {out / 'gradients.parquet'}")


if __name__ == "__main__":
    main(prog_name="python -m experiments.minilm_gradients")
