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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console

from benchmarks._measure import Rival, environment, interleaved, print_rows
from benchmarks._records import write_json
from benchmarks._rivals import (
    LOCA,
    Layer,
    Model,
    Single,
    Step,
    adapted,
    layer_step,
    model_step,
    network,
)

PACKAGES = ("numpy", "scipy", "torch", "peft", "transformers")
_STEPS = 3


LAYERS = (
    Layer(768, 1000, 512, 8),
    Layer(768, 1000, 4096, 8),
    Layer(768, 10_000, 1024, 16),
    Layer(4096, 150_000, 512, 64),
)
MODELS = (
    Model("RoBERTa-base", (8, 128), 1000, 8),
    Model("ViT-base", (4, 197), 3000, 16),
    Model("MiniLM", (16, 32), 3072, 4),
)
LAYER_RIVALS = ("frozen", "LoRA", "FourierFT", *LOCA)
MODEL_RIVALS = ("LoRA", "FourierFT", *LOCA)
# Left out in layers of 4096x4096 and in models as wide as 768, where products with its DCT
# matrices take seconds per step.
_SLOW = {"LoCA dense", "LoCA sparse"}


def build_step(part: str, index: int, rival: str, device: str) -> Step:
    """The work of a rival at a load."""
    if part == "layers":
        layer = LAYERS[index]
        torch.manual_seed(0)
        made = adapted(Single(layer.size), rival, layer.components, layer.r).to(device)
        return layer_step(layer, made, device)
    model = MODELS[index]
    made, inputs, labels = network(model)
    made = adapted(made, rival, model.components, model.r).to(device)
    return model_step(made, inputs, labels, device)


def peak_mib(part: str, index: int, rival: str, device: str) -> float:
    """Peak memory of a few steps in a process of their own, beyond that of the model."""
    command = [sys.executable, "-m", "benchmarks.layer", "--memory-of", part, str(index), rival]
    done = subprocess.run(
        [*command, "--device", device], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def _own_peak(part: str, index: int, rival: str, device: str) -> float:
    """In the process of its own."""
    step = build_step(part, index, rival, device)
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
    reference = "frozen" if is_layer else "LoRA"
    is_large = work.size > 1024 if is_layer else not work.name.startswith("MiniLM")
    slow = _SLOW if is_large else set()
    steps = {name: build_step(part, index, name, device) for name in names if name not in slow}
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
