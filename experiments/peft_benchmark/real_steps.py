"""How far real training moves weights, beside what the first step with a random gradient predicts.

``python -m experiments.peft_benchmark.real_steps`` adapts the queries and values of MiniLM in
several ways, at the rate at which each first step is as large as LoRA's, trains on docstrings by
AdamW, and stores ‖ΔW‖ after 1, 10 and 100 steps, beside the prediction for one step. It can be
stopped at any time. Needs ``pip install 'loca-theory[experiments]'``; some minutes on one core.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import torch

from experiments.docstrings import PACKAGES, Example, model_folder, splits
from experiments.finetuning.adaptation import parameter_groups, with_adapter
from experiments.finetuning.tasks.published import MeanPooledClassifier
from experiments.minilm import TESTED_FRACTION, training_losses
from experiments.tables import stored_rows
from loca_theory.adapters import LoCAConfig, equivalent_lr, first_step
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.tables import store_rows

NAME = "real-steps"
STORED = Path(__file__).parents[2] / "figures" / "peft-benchmark"
WIDTH, TARGETS, HEAD = 384, ("query", "value"), "head"
RATE, HEAD_RATE, BATCH, STEPS = 1e-4, 1e-3, 8, (1, 10, 100)


def adapters() -> dict[str, Any]:
    """The adapters by name; LoRA, the reference, is the first."""
    import peft

    numbers = 8 * 2 * WIDTH
    return {
        "LoRA": peft.LoraConfig(r=8, lora_alpha=16),
        "LoCA": LoCAConfig(n_frequency=numbers),
        "FourierFT": peft.FourierFTConfig(n_frequency=numbers),
        "WaveFT": peft.WaveFTConfig(n_frequency=numbers),
        "SHiRA": peft.ShiraConfig(r=8),
        "VeRA": peft.VeraConfig(r=256),
    }


def sizes(config: Any, rate: float, train: list[Example], seed: int) -> Iterator[tuple[int, float]]:
    """‖ΔW‖ over all adapted layers, after the numbers of steps in ``STEPS``."""
    from transformers import AutoModel, AutoTokenizer

    choice, tokenizer = random.Random(seed), AutoTokenizer.from_pretrained(model_folder())
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        encoder: Any = AutoModel.from_pretrained(model_folder(), dtype=torch.float32)
        model = MeanPooledClassifier(encoder, encoder.config.hidden_size, len(PACKAGES))
        adapted = with_adapter(model, config, TARGETS, HEAD)
        layers: list[Any] = [m for m in adapted.modules() if hasattr(m, "get_delta_weight")]
        before = [layer.get_delta_weight("default").detach().clone() for layer in layers]
        optimizer = torch.optim.AdamW(
            parameter_groups(adapted, head=HEAD, rate=rate, head_rate=HEAD_RATE, weight_decay=0.01)
        )
        losses = training_losses(adapted, optimizer, tokenizer, train, BATCH, choice)
        for step, _ in zip(range(1, max(STEPS) + 1), losses, strict=False):
            if step in STEPS:
                with torch.no_grad():
                    changes = [
                        layer.get_delta_weight("default") - start
                        for layer, start in zip(layers, before, strict=True)
                    ]
                yield step, math.sqrt(sum(float(change.square().sum()) for change in changes))


@click.command(cls=Command)
@click.option("--out", type=Folder(), default=STORED, help="Folder of the table.")
@click.option("--seeds", default=2, show_default=True, help="Number of trainings of each adapter.")
def main(out: Path, seeds: int) -> None:
    """Train each adapter that has no rows yet, and store how far it has moved the weights.

    Example: python -m experiments.peft_benchmark.real_steps --out rows
    """
    rows = stored_rows(out, NAME)
    done, shape = {(row["adapter"], row["seed"]) for row in rows}, (WIDTH, WIDTH)
    grid = {"lr": RATE, "head_lr": HEAD_RATE, "targets": TARGETS, "batch": BATCH}
    about = manifest(grid=grid, seed=0, dtype="float32")
    reference, *_ = adapters().values()
    for name in adapters():
        rate = equivalent_lr(adapters()[name], reference, shape, lr=RATE)
        one_layer = first_step(adapters()[name], shape, lr=rate).frobenius.value
        predicted = one_layer * math.sqrt(12)  # queries and values of six layers
        for seed in set(range(seeds)) - {seed for adapter, seed in done if adapter == name}:
            train, _ = splits(seed, (TESTED_FRACTION,))
            with warnings.catch_warnings(action="ignore"):
                for steps, size in sizes(adapters()[name], rate, train, seed):
                    row = {"adapter": name, "lr": rate, "seed": seed, "steps": steps}
                    rows.append({**row, "size": size, "predicted": predicted})
                    click.echo(f"{name}, {steps} steps: {size / predicted:.3f} of the prediction")
            store_rows(rows, about, out, NAME)


if __name__ == "__main__":
    main(prog_name="python -m experiments.peft_benchmark.real_steps")
