"""Make the merged checkpoint that ships with the package for ``loca-theory unmerge --demo``.

``python -m experiments.merged_demo`` takes the base of ``loca-theory analyze --demo`` in bfloat16,
a transformer that was trained to classify handwritten digits of scikit-learn, 0 to 4. It trains a
LoRA of rank 4 on 5 to 9 with PEFT, merges it as PEFT does, and writes the attention weights of both
sides to ``loca_theory/checkpoints/demo``. Needs scikit-learn and PEFT, and takes seconds.
"""

from __future__ import annotations

import copy
import importlib
from pathlib import Path
from typing import Any

import click
import peft
import torch
from safetensors.torch import load_file, save_file

from loca_theory.checkpoints.demo import demo_pair
from loca_theory.cli.options import Folder

SIDE, WIDTH, INNER, LAYERS, CLASSES = 8, 96, 192, 2, 5
RANK, STEPS, BATCH, RATE = 4, 300, 64, 2e-3


class Block(torch.nn.Module):
    """Attention and two linear layers, both with layer norm before and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        names = ("q_proj", "v_proj")
        self.attention = torch.nn.ModuleDict(
            {name: torch.nn.Linear(WIDTH, WIDTH, bias=False) for name in names}
        )
        self.up_proj = torch.nn.Linear(WIDTH, INNER, bias=False)
        self.down_proj = torch.nn.Linear(INNER, WIDTH, bias=False)
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(WIDTH) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map shape (images, rows, width) to the same shape."""
        rows = self.norms[0](x)
        query, value = (layer(rows) for layer in self.attention.values())
        x = x + torch.nn.functional.scaled_dot_product_attention(query, rows, value)
        return x + self.down_proj(torch.nn.functional.gelu(self.up_proj(self.norms[1](x))))


class Reader(torch.nn.Module):
    """A transformer whose tokens are the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Linear(SIDE, WIDTH)
        self.position = torch.nn.Parameter(torch.zeros(SIDE, WIDTH))
        self.layers = torch.nn.ModuleList([Block() for _ in range(LAYERS)])
        self.head = torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return the logits, shape (images, classes)."""
        x = self.embed(pictures) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def _train(model: Any, pictures: torch.Tensor, labels: torch.Tensor, seed: int) -> None:
    """Train the adapter and the head."""
    source = torch.Generator().manual_seed(seed)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE)
    for _ in range(STEPS):
        batch = torch.randint(len(labels), (BATCH,), generator=source)
        loss = torch.nn.functional.cross_entropy(model(pictures[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.inference_mode():
        right = (model(pictures).argmax(1) == labels).float().mean()
    click.echo(f"accuracy on the images trained on: {right:.3f}")


@click.command()
@click.option("--out", type=Folder(), help="[default: the package's own copy]")
@click.option("--seed", default=0, show_default=True)
def main(out: Path | None, seed: int) -> None:
    """Train and merge the adapter, and write both sides."""
    digits = importlib.import_module("sklearn.datasets").load_digits()
    labels = torch.from_numpy(digits.target)
    chosen = labels >= CLASSES
    pictures = torch.from_numpy(digits.images).float()[chosen] / 16 - 0.5
    base = Reader()
    base.load_state_dict({n: t.bfloat16().float() for n, t in load_file(demo_pair()[0]).items()})
    config = peft.LoraConfig(
        r=RANK, lora_alpha=2 * RANK, target_modules=["q_proj", "v_proj"], modules_to_save=["head"]
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        adapted = peft.get_peft_model(copy.deepcopy(base), config)
        _train(adapted, pictures, labels[chosen] - CLASSES, seed)
    factors = peft.get_peft_model_state_dict(adapted)
    stored = peft.get_peft_model(copy.deepcopy(base).bfloat16(), config)
    peft.set_peft_model_state_dict(stored, factors)
    sides = {"unmerged": base.bfloat16(), "merged": stored.merge_and_unload()}
    for name, model in sides.items():
        weights = {key: tensor for key, tensor in model.state_dict().items() if "attention" in key}
        path = (out or demo_pair()[0].parent) / f"{name}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(weights, path, {"format": "pt"})
        click.echo(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
