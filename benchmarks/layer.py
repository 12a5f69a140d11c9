"""Training speed and memory of LoCA and of PEFT's other methods: the complexity table.

Run from the checkout: ``python -m benchmarks.layer [--part layers|models] [--out FILE.json]``
(``pip install 'loca-theory[adapters]'``).

- *layers*: forward and backward pass of one frozen linear layer with an adapter, for a batch of
  tokens that requires a gradient. ``marginal_ms`` is the time beyond that of the frozen layer;
  ``of_frozen``, ``of_lora`` and ``of_fourierft`` are ratios of times.
- *models*: a training step (forward, backward, AdamW) of models of RoBERTa-base's, ViT-base's and
  MiniLM's shape, with random weights and adapters on query and value. ``of_lora`` is the ratio of
  steps per second.

The memory of each rival is measured in a process of its own: the peak during the steps minus the
memory held before the first step. ``above_frozen_mib`` is the difference from the frozen layer,
``above_lora_mib`` that from LoRA. Times are medians over interleaved rounds. All is measured on the
CPU and, if available, on CUDA.
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
    OTHERS,
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
LAYER_RIVALS = ("frozen", "LoRA", *OTHERS, *LOCA)
MODEL_RIVALS = ("LoRA", *OTHERS, *LOCA)


def build_step(part: str, index: int, rival: str, device: str) -> Step:
    """Build the step of a rival for one load."""
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
    """Peak memory of a few steps in a separate process, minus the memory before them."""
    command = [sys.executable, "-m", "benchmarks.layer", "--memory-of", part, str(index), rival]
    done = subprocess.run(
        [*command, "--device", device], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def _own_peak(part: str, index: int, rival: str, device: str) -> float:
    """Measure the peak memory of this process."""
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
    """Measure time and memory of every rival for one load.

    Args:
        part: ``layers`` or ``models``.
        index: Index of the load in LAYERS or MODELS.
        device: Device to measure on.
        rounds: Number of rounds.
        rivals: Names of the rivals, which must include the reference, ``frozen`` for layers and
            ``LoRA`` for models; by default all of LAYER_RIVALS or MODEL_RIVALS.
    """
    work: Any = (LAYERS if part == "layers" else MODELS)[index]
    is_layer = part == "layers"
    names = rivals or (LAYER_RIVALS if is_layer else MODEL_RIVALS)
    reference = "frozen" if is_layer else "LoRA"
    steps = {name: build_step(part, index, name, device) for name in names}
    times = interleaved(
        {name: Rival(step) for name, step in steps.items()}, rounds=rounds, device=device
    )
    frozen = peak_mib(part, index, reference, device)
    rows = []
    for name, timing in times.items():
        row: dict[str, Any] = {"load": str(work), "rival": name, "ms": 1e3 * timing.median}
        if is_layer:
            row["marginal_ms"] = 1e3 * (timing.median - times["frozen"].median)
            for other in ("frozen", "LoRA", "FourierFT"):
                if other in times:
                    row[f"of_{other.lower()}"] = timing.ratio_to(times[other])
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
@click.option("--device", help="Device; by default the CPU and, if available, CUDA.")
@click.option("--out", type=click.Path(path_type=Path), help="File for the results as JSON.")
@click.option("--memory-of", nargs=3, type=(str, int, str), hidden=True)
def main(
    part: str,
    rounds: int,
    device: str | None,
    out: Path | None,
    memory_of: tuple[str, int, str] | None,
) -> None:
    """Compare LoCA with PEFT's other methods."""
    if memory_of:
        print(json.dumps(_own_peak(*memory_of, device or "cpu")))
        return
    console = Console()
    # A part that is not run keeps its results.
    record = json.loads(out.read_text(encoding="utf-8")) if out and out.exists() else {}
    devices = [device] if device else ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    for name, loads in (("layers", LAYERS), ("models", MODELS)):
        if part not in (name, "all"):
            continue
        record[name] = {"environment": environment(PACKAGES), "rows": []}
        for index, load in enumerate(loads):
            for where in devices:
                rows = compare(name, index, where, rounds)
                record[name]["rows"] += [{"device": where, **row} for row in rows]
                hidden = ("load", "timing")
                shown = [{k: v for k, v in row.items() if k not in hidden} for row in rows]
                print_rows(console, f"{load}, {where}", shown)
                if out:
                    write_json(out, record)


if __name__ == "__main__":
    main()
