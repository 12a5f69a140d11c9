"""Training speed and memory of LoCA and of PEFT's other methods: the complexity table.

Run from the checkout: ``python -m benchmarks.layer [--part PART] [--out FILE.json]``
(``pip install 'loca-theory[adapters]'``).

- *layers*: forward and backward pass of one frozen linear layer with an adapter, for a batch of
  tokens that requires a gradient. ``marginal_ms`` is the time beyond that of the frozen layer;
  ``of_frozen``, ``of_lora`` and ``of_fourierft`` are ratios of times.
- *models*: a training step (forward, backward, AdamW) of models with random weights and adapters
  on query and value. ``of_lora`` and ``of_fourierft`` are ratios of steps per second.
- *choices*: the entries of the layer's gradient spectrum sampled or taken from one dense product,
  and the sizes of a block of tokens, each forced.

``bound_ms`` estimates what a step costs at least, and ``bound_by`` why: launching its operations,
moving their bytes or computing the products (:mod:`benchmarks._bounds`).

On the CPU the memory of each rival is measured in a process of its own: the peak during the steps
minus the memory held before the first step. ``above_frozen_mib`` is the difference from the frozen
layer, ``above_lora_mib`` that from LoRA. On CUDA ``peak_mib`` is the peak of the rival alone, with
the frozen weights and the inputs; ``peak_of_lora`` and ``peak_of_fourierft`` are ratios. Times are
medians over interleaved rounds.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks._measure import Build, Step, Timing, compare
from benchmarks._record import DEVICE, OUT, TINY, Record, Row
from benchmarks._rivals import (
    LOCA,
    OTHERS,
    Case,
    LayerCase,
    ModelCase,
    Single,
    adapted,
    layer_step,
    model_step,
    network,
    trainable_parameters,
)
from loca_theory.adapters import kernels, linear_operator

PACKAGES = ("numpy", "scipy", "torch", "peft", "transformers")
_STEPS = 3

LAYERS = (
    LayerCase(768, 1000, 512, 8),
    LayerCase(768, 1000, 4096, 8),
    LayerCase(768, 10_000, 1024, 16),
    LayerCase(4096, 150_000, 512, 64),
)
MODELS = (
    ModelCase("RoBERTa-base", (8, 128), 1000, 8),
    ModelCase("ViT-base", (4, 197), 3000, 16),
    ModelCase("MiniLM", (16, 32), 3072, 4),
)
CUDA_LAYERS = (
    LayerCase(768, 1000, 4096, 8, "bfloat16"),
    LayerCase(4096, 150_000, 4096, 64, "bfloat16"),
    LayerCase(768, 1000, 4096, 8),
    LayerCase(768, 1000, 512, 8),
    LayerCase(2048, 10_000, 4096, 16),
    LayerCase(4096, 150_000, 512, 64),
)
CUDA_MODELS = (
    ModelCase("RoBERTa-base", (32, 128), 1000, 8),
    ModelCase("LLaMA-7B, two layers", (4, 512), 150_000, 64, "bfloat16"),
    ModelCase("ViT-base", (32, 197), 3000, 16),
    ModelCase("RoBERTa-base", (32, 128), 1000, 8, "bfloat16"),
    ModelCase("ViT-base", (32, 197), 3000, 16, "bfloat16"),
)
TINY_LAYERS = (LayerCase(16, 20, 8, 2), LayerCase(16, 20, 8, 2, "bfloat16"))
TINY_MODELS = (ModelCase("LLaMA, two small layers", (2, 4), 20, 2, "bfloat16"),)
# Loads on both sides of the threshold below which entries of Z are sampled.
SAMPLED = (LayerCase(768, 1000, 4096, 8), LayerCase(4096, 150_000, 512, 64))
# Enough tokens for several of the smaller blocks.
BLOCKS = (LayerCase(768, 1000, 16_384, 8), LayerCase(4096, 150_000, 4096, 64))
BLOCK_BITS = (18, 20, 22, 24)
LAYER_RIVALS = ("frozen", "LoRA", *OTHERS, *LOCA)
MODEL_RIVALS = ("LoRA", *OTHERS, *LOCA)


def _builds(load: Case, names: Sequence[str], device: str) -> dict[str, Build]:
    """Functions that build the rivals."""
    if isinstance(load, LayerCase):
        base, inputs, labels = Single(load.size).to(getattr(torch, load.dtype)), {}, None
    else:
        base, inputs, labels = network(load)

    def build(rival: str) -> tuple[Step, Mapping[str, Any]]:
        torch.manual_seed(0)
        model = adapted(copy.deepcopy(base), rival, load.components, load.r).to(device)
        facts = {"trained": sum(p.numel() for p in trainable_parameters(model))}
        if isinstance(load, LayerCase):
            return layer_step(load, model, device), facts
        return model_step(model, inputs, labels, device), facts

    return {name: partial(build, name) for name in names}


def peak_mib(load: Case, rival: str) -> float:
    """Peak memory of a few steps in a separate process on the CPU, minus the memory before them."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_own_peak, load, rival).result()


def _own_peak(load: Case, rival: str) -> float:
    step, _ = _builds(load, (rival,), "cpu")[rival]()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _status("VmRSS")
    for _ in range(_STEPS):
        step()
    return (_status("VmHWM") - before) / 1024


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def measure(
    load: Case, device: str, rounds: int, rivals: Sequence[str] = (), *, tiny: bool = False
) -> list[Row]:
    """Measure time and memory of every rival for one load."""
    is_layer = isinstance(load, LayerCase)
    names = rivals or (LAYER_RIVALS if is_layer else MODEL_RIVALS)
    rows, times = compare(_builds(load, names, device), device=device, rounds=rounds, tiny=tiny)
    for name in times:
        row = rows[name]
        if is_layer:
            row["marginal_ms"] = row["ms"] - rows["frozen"]["ms"]
        else:
            row["steps_per_s"] = 1e3 / row["ms"]
        _add_ratios(row, times[name], times, is_layer=is_layer)
        if device == "cpu" and not tiny:
            row["peak_mib"] = peak_mib(load, name)
    _add_memory(rows, "frozen" if is_layer else "LoRA", device)
    return list(rows.values())


def _add_ratios(row: Row, time: Timing, times: Mapping[str, Timing], *, is_layer: bool) -> None:
    """Add ratios of times to a layer's row, of steps per second to a model's."""
    for other in ("frozen", "LoRA", "FourierFT"):
        if other in times:
            ratio = time.ratio_to(times[other]) if is_layer else times[other].ratio_to(time)
            row[f"of_{other.lower()}"] = ratio


def _add_memory(rows: Mapping[str, Row], reference: str, device: str) -> None:
    """Add differences from the reference on the CPU, ratios on another device."""
    peaks = {name: row["peak_mib"] for name, row in rows.items() if "peak_mib" in row}
    for name, peak in peaks.items():
        if device == "cpu":
            rows[name][f"above_{reference.lower()}_mib"] = peak - peaks[reference]
            continue
        for other in ("LoRA", "FourierFT"):
            if other in peaks:
                rows[name][f"peak_of_{other.lower()}"] = peak / peaks[other]


def measure_sampling(layer: LayerCase, device: str, rounds: int, *, tiny: bool) -> list[Row]:
    """Compare sampled entries of the gradient's spectrum with one dense product."""
    builds = {
        name: _forced(layer, "LoCA materialised", device, linear_operator, "sampling_pays", choice)
        for name, choice in (
            ("sampled", lambda *_, **__: True),
            ("one product", lambda *_, **__: False),
        )
    }
    return list(compare(builds, device=device, rounds=rounds, tiny=tiny)[0].values())


def measure_blocks(layer: LayerCase, device: str, rounds: int, *, tiny: bool) -> list[Row]:
    """Compare sizes of a block of tokens, in numbers."""
    constant = "_BLOCK" if device == "cpu" else "_BLOCK_ON_DEVICE"
    builds = {
        f"2^{bits}": _forced(layer, "LoCA implicit", device, kernels, constant, 1 << bits)
        for bits in BLOCK_BITS
    }
    return list(compare(builds, device=device, rounds=rounds, tiny=tiny)[0].values())


def _forced(
    layer: LayerCase, rival: str, device: str, module: Any, name: str, value: object
) -> Build:
    """A rival during whose steps an attribute of the library has another value."""

    def build() -> tuple[Step, Mapping[str, Any]]:
        step, facts = _builds(layer, (rival,), device)[rival]()

        def forced() -> None:
            before = getattr(module, name)
            setattr(module, name, value)
            try:
                step()
            finally:
                setattr(module, name, before)

        return forced, facts

    return build


@click.command()
@click.option("--part", type=click.Choice(["layers", "models", "choices", "all"]), default="all")
@click.option("--rounds", type=click.IntRange(min=2), default=7, show_default=True)
@DEVICE
@TINY
@OUT
def main(part: str, rounds: int, device: str, tiny: bool, out: Path | None) -> None:
    """Compare LoCA with PEFT's other methods."""
    record = Record(out, PACKAGES)
    layers, models = (LAYERS, MODELS) if device == "cpu" else (CUDA_LAYERS, CUDA_MODELS)
    if tiny:
        layers, models = TINY_LAYERS, TINY_MODELS
    works = [("layers", layer, measure) for layer in layers]
    works += [("models", model, measure) for model in models]
    choices = (("entries of Z", SAMPLED, measure_sampling), ("blocks", BLOCKS, measure_blocks))
    for _, loads, work in choices:
        works += [("choices", load, work) for load in (TINY_LAYERS[:1] if tiny else loads)]
    for name, load, work in works:
        if part in (name, "all"):
            todo = partial(work, load, device, rounds, tiny=tiny)
            record.add(name, str(load), todo, device=device, load=str(load))


if __name__ == "__main__":
    main()
