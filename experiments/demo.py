"""Train the pair of weights that ships with the package for ``loca-theory analyze --demo``.

``python -m experiments.demo`` trains a transformer to classify the handwritten digits 0 to 4 of
scikit-learn's data set, fine-tunes all of its weights on 5 to 9, and writes both sets of weights to
``loca_theory/checkpoints/demo``. Needs scikit-learn; takes seconds.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import click
import torch
from safetensors.torch import save_file

import loca_theory
from loca_theory.cli.options import Folder

SIDE, WIDTH, INNER, LAYERS, CLASSES = 8, 96, 192, 2, 5
STEPS, BATCH, RATE, TUNING_RATE = 600, 64, 1e-3, 3e-4
_PACKAGED = Path(loca_theory.__file__).parent / "checkpoints" / "demo"


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
        self.position = torch.nn.Parameter(0.02 * torch.randn(SIDE, WIDTH))
        self.layers = torch.nn.ModuleList([Block() for _ in range(LAYERS)])
        self.head = torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return the logits, shape (images, classes)."""
        x = self.embed(pictures) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def _train(
    model: Reader, pictures: torch.Tensor, labels: torch.Tensor, rate: float, seed: int
) -> None:
    """Train all weights, and print the accuracy on a fifth of the images held out."""
    source = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=source)
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    for _ in range(STEPS):
        batch = train[torch.randint(len(train), (BATCH,), generator=source)]
        loss = torch.nn.functional.cross_entropy(model(pictures[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.inference_mode():
        right = (model(pictures[test]).argmax(1) == labels[test]).float().mean()
    click.echo(f"accuracy on {len(test)} unseen images: {right:.3f}")


@click.command()
@click.option("--out", type=Folder(), default=_PACKAGED, help="[default: the package's own copy]")
@click.option("--seed", default=0, show_default=True)
def main(out: Path, seed: int) -> None:
    """Train the base and the fine-tuned model and write their weights."""
    digits = importlib.import_module("sklearn.datasets").load_digits()
    pictures = torch.from_numpy(digits.images).float() / 16 - 0.5
    labels = torch.from_numpy(digits.target)
    out.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = Reader()
    for name, first, rate in (("base", 0, RATE), ("tuned", CLASSES, TUNING_RATE)):
        mine = (labels >= first) & (labels < first + CLASSES)
        _train(model, pictures[mine], labels[mine] - first, rate, seed)
        weights = {key: value.half() for key, value in model.state_dict().items()}
        save_file(weights, out / f"{name}.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main()
