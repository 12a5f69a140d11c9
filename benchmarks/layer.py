"""Training speed and memory of LoCA beside FourierFT and LoRA of PEFT, as in the complexity table.

Run from the checkout: ``python -m benchmarks.layer [--part layers|models] [--out FILE.json]``
(``pip install 'loca-theory[adapters]'``).

- *layers*: one frozen linear layer with an adapter; forward and backward for a batch of tokens
  that itself asks for a gradient. ``marginal`` is the time beyond the frozen layer's own.
- *models*: a step (forward, backward, AdamW) of models of RoBERTa-base's and ViT-base's shape,
  query and value adapted, random weights.

Each rival's memory is that of a process of its own: its peak during steps, beyond what it held
before its first; ``above_frozen_mib`` compares with the frozen layer, or with LoRA for models.
All times are medians over interleaved rounds. On CUDA where there is one, else on the CPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch
from peft import FourierFTConfig, LoraConfig, get_peft_model
from rich.console import Console
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
    ViTConfig,
    ViTForImageClassification,
)

from benchmarks._measure import Rival, environment, interleaved, print_rows, write_json
from loca_theory.adapters import LoCAConfig

PACKAGES = ("numpy", "scipy", "torch", "peft", "transformers")
TARGETS = ["query", "value", "q_proj", "v_proj"]
_STEPS = 3


@dataclass(frozen=True)
class Layer:
    """One linear layer and its load."""

    size: int
    components: int
    tokens: int
    r: int

    def __str__(self) -> str:
        return f"{self.size}x{self.size}, B = {self.components}, {self.tokens} tokens"


@dataclass(frozen=True)
class Model:
    """A model, its load, and the budgets of the paper's experiments."""

    name: str
    components: int
    r: int

    def __str__(self) -> str:
        return f"{self.name}, B = {self.components}, r = {self.r}"


LAYERS = (
    Layer(768, 1000, 512, 8),
    Layer(768, 1000, 4096, 8),
    Layer(768, 10_000, 1024, 16),
    Layer(4096, 150_000, 512, 64),
)
MODELS = (
    Model("RoBERTa-base, 8 x 128", 1000, 8),
    Model("ViT-base, 4 x 197", 3000, 16),
    Model("MiniLM, 16 x 32", 3072, 4),
)
LAYER_RIVALS = ("frozen", "LoRA", "FourierFT", "LoCA", "LoCA locations",
                "LoCA implicit", "LoCA fft", "LoCA dense", "LoCA sparse")  # fmt: skip
MODEL_RIVALS = ("LoRA", "FourierFT", "LoCA", "LoCA locations", "LoCA implicit", "LoCA fft",
                "LoCA dense", "LoCA sparse")  # fmt: skip
# Left out in layers of 4096x4096 and in models as wide as 768, where products with its DCT
# matrices take seconds a step.
_SLOW = {"LoCA dense", "LoCA sparse"}


class Single(nn.Module):
    """A model of one layer, so that PEFT adapts it as any other."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.query = nn.Linear(size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer."""
        return self.query(x)


def targets_of(model: nn.Module) -> list[str]:
    """The names of its query and value layers."""
    return [t for t in TARGETS if any(name.endswith(t) for name, _ in model.named_modules())]


def with_adapter(model: nn.Module, config: Any) -> Any:
    """The model under PEFT, whose own deprecations are none of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return get_peft_model(model, config)


def adapted(model: nn.Module, rival: str, components: int, r: int) -> Any:
    """The model with the rival's adapter on its query and value layers."""
    if rival == "frozen":
        return model.requires_grad_(requires_grad=False)
    targets = targets_of(model)
    config: Any
    if rival == "LoRA":
        config = LoraConfig(r=r, lora_alpha=r, target_modules=targets)
    elif rival == "FourierFT":
        config = FourierFTConfig(n_frequency=components, target_modules=targets)
    else:
        way = rival.removeprefix("LoCA").strip()
        config = LoCAConfig(
            n_frequency=components,
            target_modules=targets,
            implementation="auto" if way in ("", "locations") else way,  # type: ignore[arg-type]
        )
    result = with_adapter(model, config)
    if rival.startswith("LoCA"):
        # It stays in the phase that is measured.
        for training in result.base_model.location_training.values():
            training.automatic = False
            if rival == "LoCA locations":
                training.go_to(training.schedule.coefficient_steps)
    return result


def layer_step(layer: Layer, rival: str, device: str) -> Callable[[], object]:
    """Forward and backward of one layer."""
    torch.manual_seed(0)
    model = adapted(Single(layer.size), rival, layer.components, layer.r).to(device)
    x = torch.randn(layer.tokens, layer.size, device=device, requires_grad=True)
    g = torch.randn(layer.tokens, layer.size, device=device)

    def step() -> None:
        x.grad = None
        model.zero_grad()
        model(x).backward(g)

    return step


def network(model: Model) -> tuple[Any, dict[str, torch.Tensor], torch.Tensor]:
    """A model with random weights, its inputs and labels."""
    torch.manual_seed(0)
    inputs: dict[str, torch.Tensor]
    if model.name.startswith("RoBERTa"):
        made: Any = RobertaForSequenceClassification(RobertaConfig(vocab_size=50265))
        inputs = {"input_ids": torch.randint(10, 50265, (8, 128))}
        labels = torch.randint(0, 2, (8,))
    elif model.name.startswith("MiniLM"):
        shape = BertConfig(
            hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
        )
        made = BertForSequenceClassification(shape)
        inputs = {"input_ids": torch.randint(1000, 30522, (16, 32))}
        labels = torch.randint(0, 2, (16,))
    else:
        made = ViTForImageClassification(ViTConfig(id2label=dict(enumerate("abcdefghij"))))
        inputs = {"pixel_values": torch.randn(4, 3, 224, 224)}
        labels = torch.randint(0, 10, (4,))
    return made, inputs, labels


def model_step(model: Model, rival: str, device: str) -> Callable[[], object]:
    """A training step of a model."""
    made, inputs, labels = network(model)
    made = adapted(made, rival, model.components, model.r).to(device).train()
    parameters = [p for p in made.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    return training_step(made, inputs, labels, optimizer, device)


def training_step(
    made: Any,
    inputs: dict[str, torch.Tensor],
    labels: torch.Tensor,
    optimizer: torch.optim.Optimizer,
    device: str,
) -> Callable[[], object]:
    """Forward, backward and a step of the optimiser."""
    inputs = {name: value.to(device) for name, value in inputs.items()}
    labels = labels.to(device)

    def step() -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(made(**inputs).logits, labels)
        loss.backward()
        optimizer.step()

    return step


def peak_mib(part: str, index: int, rival: str, device: str) -> float:
    """Peak memory of a few steps in a process of their own, beyond that of the model."""
    command = [sys.executable, "-m", "benchmarks.layer", "--memory-of", part, str(index), rival]
    done = subprocess.run(
        [*command, "--device", device], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def _own_peak(part: str, index: int, rival: str, device: str) -> float:
    """In the process of its own."""
    work: Any = (LAYERS if part == "layers" else MODELS)[index]
    step = (layer_step if part == "layers" else model_step)(work, rival, device)
    if device.startswith("cuda"):
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(_STEPS):
            step()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _status("VmRSS")
    for _ in range(_STEPS):
        step()
    return (_status("VmHWM") - before) / 1024


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def compare(
    part: str, index: int, device: str, rounds: int, rivals: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Time and memory of every rival at one load.

    Args:
        part: ``layers`` or ``models``.
        index: Which of LAYERS or MODELS.
        device: Where.
        rounds: How often.
        rivals: Which; by default all of LAYER_RIVALS or MODEL_RIVALS. The first is compared with.
    """
    work: Any = (LAYERS if part == "layers" else MODELS)[index]
    is_layer = part == "layers"
    names = rivals or (LAYER_RIVALS if is_layer else MODEL_RIVALS)
    make: Any = layer_step if is_layer else model_step
    reference = "frozen" if is_layer else "LoRA"
    is_large = work.size > 1024 if is_layer else not work.name.startswith("MiniLM")
    slow = _SLOW if is_large else set()
    steps = {name: make(work, name, device) for name in names if name not in slow}
    times = interleaved(
        {name: Rival(step) for name, step in steps.items()}, rounds=rounds, device=device
    )
    frozen = peak_mib(part, index, reference, device)
    rows = []
    for name, timing in times.items():
        row: dict[str, Any] = {"load": str(work), "rival": name, "ms": 1e3 * timing.median}
        if is_layer:
            row["marginal_ms"] = 1e3 * (timing.median - times["frozen"].median)
        else:
            row["steps_per_s"] = 1 / timing.median
            row["of_lora"] = times["LoRA"].ratio_to(timing)
        row["peak_mib"] = peak_mib(part, index, name, device)
        row["above_frozen_mib" if is_layer else "above_lora_mib"] = row["peak_mib"] - frozen
        row["timing"] = timing.as_record()
        rows.append(row)
    return rows


@click.command()
@click.option("--part", type=click.Choice(["layers", "models", "all"]), default="all")
@click.option("--rounds", type=click.IntRange(min=2), default=7, show_default=True)
@click.option("--device", help="One device; by default the CPU, and CUDA where there is one.")
@click.option("--out", type=click.Path(path_type=Path), help="Store the result as JSON.")
@click.option("--memory-of", nargs=3, type=(str, int, str), hidden=True)
def main(
    part: str,
    rounds: int,
    device: str | None,
    out: Path | None,
    memory_of: tuple[str, int, str] | None,
) -> None:
    """Compare LoCA with FourierFT and LoRA of PEFT."""
    if memory_of:
        print(json.dumps(_own_peak(*memory_of, device or "cpu")))
        return
    console = Console()
    record: dict[str, Any] = {"environment": environment(PACKAGES)}
    devices = [device] if device else ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    for name, loads in (("layers", LAYERS), ("models", MODELS)):
        if part not in (name, "all"):
            continue
        record[name] = []
        for index, load in enumerate(loads):
            for where in devices:
                rows = compare(name, index, where, rounds)
                record[name] += [{"device": where, **row} for row in rows]
                hidden = ("load", "timing")
                shown = [{k: v for k, v in row.items() if k not in hidden} for row in rows]
                print_rows(console, f"{load}, {where}", shown)
                if out:
                    write_json(out, record)


if __name__ == "__main__":
    main()
