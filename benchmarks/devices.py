"""Compare a device with the CPU: ``simulate`` with its dense sampler, and ``analyze``.

Run from the checkout: ``python -m benchmarks.devices [--device cuda] [--out FILE.json]``.

- *simulation*: the largest difference of the errors, the time of one CPU thread (each process of
  ``simulate`` has one) divided by the device's, and on CUDA the peak memory in float64 matrices.
- *analysis*: the largest relative difference of the numbers, and the time of the CPU divided by
  the device's, for pairs of checkpoints whose increments have independent normal entries; in the
  second matrix a low-rank matrix is added. On the CPU torch uses all its threads; the parts in
  NumPy run on the CPU for either device.
"""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
import torch
from safetensors.torch import save_file

from benchmarks._record import DEVICE, OUT, TINY, Record, Row
from loca_theory.checkpoints import analyze
from loca_theory.expressivity.methods.engine import Engine
from loca_theory.expressivity.methods.registry import DEFAULT_METHODS, find_methods
from loca_theory.expressivity.monte_carlo import Sampler
from loca_theory.expressivity.simulation import Simulation, squares
from loca_theory.sweeps import Runner

PACKAGES = ("numpy", "scipy", "torch", "safetensors")

# (K, ranks, methods, draws, whether the CPU is measured too); the large loads have only methods of
# dense linear algebra, and the largest would take the CPU minutes.
_SIMULATED = tuple(method.name for method in DEFAULT_METHODS if method.can_approximate)
LOADS = (
    (300, (8, 32), _SIMULATED, 64, True),
    (1024, (8,), ("LoRA", "Fourier pairs", "LoCA"), 3, True),
    (4096, (8,), ("LoRA", "Fourier pairs", "LoCA", "DoRA"), 1, False),
    (2048, (8,), ("LoRA", "Fourier pairs", "LoCA"), 2, True),
)
TINY_LOADS = (
    (16, (2,), _SIMULATED, 2, True),
    (18, (2,), ("LoRA", "Fourier pairs", "LoCA", "DoRA"), 1, False),
)
SHAPES = ((768, 768), (768, 3072), (2048, 2048))
TINY_SHAPES = ((16, 16), (16, 24))


def measure_simulation(
    size: int, ranks: tuple[int, ...], names: tuple[str, ...], draws: int, on_cpu: bool, device: str
) -> list[Row]:
    """Time one simulation on the device and, if ``on_cpu``, on the CPU."""
    runner = Runner(jobs=1)
    simulation = Simulation(
        shapes=squares([size]),
        ranks=ranks,
        methods=find_methods(names),
        engines=(Engine.MONTE_CARLO,),
        draws=draws,
        sampler=Sampler.DENSE,
    )
    on_device = simulation.on_device(device)
    row: Row = {"draws": draws, "methods": len(names)}
    if on_cpu:
        replace(on_device, draws=1).run(runner)  # plans, workspaces and tables of indices
    before = _begin(device)
    start = time.perf_counter()
    rows = on_device.run(runner).rows
    row["s"] = time.perf_counter() - start
    if device.startswith("cuda"):
        peak = torch.cuda.max_memory_allocated() - before
        row |= {"peak_mib": peak / 2**20, "peak_matrices": peak / (8 * size**2)}
    if on_cpu:
        start = time.perf_counter()
        expected = simulation.run(runner).rows
        row["cpu_s"] = time.perf_counter() - start
        row["speed_over_thread"] = row["cpu_s"] / row["s"]
        pairs = zip(rows, expected, strict=True)
        row["largest_difference"] = max(abs(a.error - b.error) for a, b in pairs)
    return [row]


def _begin(device: str) -> int:
    """Bytes that tensors hold on a CUDA device, from where the peak counts."""
    if not device.startswith("cuda"):
        return 0
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def measure_analysis(index: int, shape: tuple[int, int], device: str, *, tiny: bool) -> list[Row]:
    """Analyse a pair of checkpoints with one matrix on the device and on the CPU."""
    ranks = (2,) if tiny else (8, 32)
    with tempfile.TemporaryDirectory() as folder:
        paths = _pair(Path(folder), index, shape)
        if device != "cpu":  # the first call on a device creates plans and workspaces
            _analysed(paths, ranks, device)
        start = time.perf_counter()
        analysed = _analysed(paths, ranks, device)
        middle = time.perf_counter()
        expected = _analysed(paths, ranks, "cpu")
        end = time.perf_counter()

    def apart(name: str) -> float:
        ours, theirs = analysed.get(name, math.nan), expected[name]
        if ours == theirs or (math.isnan(ours) and math.isnan(theirs)):
            return 0.0
        difference = abs(ours - theirs) / max(abs(theirs), 1e-6)
        return math.inf if math.isnan(difference) else difference

    worst = max(expected, key=apart)
    return [
        {
            "s": middle - start,
            "cpu_s": end - middle,
            "speed_over_cpu": (end - middle) / (middle - start),
            "compared": len(expected),
            "largest_relative_difference": apart(worst),
            "of": worst,
        }
    ]


def _pair(folder: Path, index: int, shape: tuple[int, int]) -> tuple[str, str]:
    generator = torch.Generator().manual_seed(index)
    base = torch.randn(shape, generator=generator) * 0.05
    change = torch.randn(shape, generator=generator) * 1e-3
    if index % 2:
        left, right = (torch.randn(n, 4, generator=generator) for n in shape)
        change += 3e-3 * left @ right.T
    paths = folder / "base.safetensors", folder / "tuned.safetensors"
    for path, value in zip(paths, (base, base + change), strict=True):
        save_file({"layer.0.query.weight": value.contiguous()}, path)
    return str(paths[0]), str(paths[1])


def _analysed(paths: tuple[str, str], ranks: tuple[int, ...], device: str) -> dict[str, float]:
    """Analyse a pair with a single matrix, and return its numbers by name."""
    result = analyze(*paths, ranks=ranks, device=device)
    (row,) = result.matrices
    values = {name: value for name, value in vars(row).items() if isinstance(value, float)}
    for error in result.errors:
        for key in ("error", "iid_error", "shuffled_error", "spectral_error"):
            if (value := getattr(error, key)) is not None:
                values[f"{key} of {error.method} at r = {error.r}"] = value
    return values


@click.command()
@DEVICE
@TINY
@OUT
def main(device: str, tiny: bool, out: Path | None) -> None:
    """Compare a device with the CPU."""
    record = Record(out, PACKAGES)
    for load in TINY_LOADS if tiny else LOADS:
        title = f"K = {load[0]}"
        work = partial(measure_simulation, *load, device)
        record.add("simulation", title, work, device=device, load=title)
    for index, shape in enumerate(TINY_SHAPES if tiny else SHAPES):
        title = f"{shape[0]} x {shape[1]}, {'low rank and noise' if index % 2 else 'noise'}"
        work = partial(measure_analysis, index, shape, device, tiny=tiny)
        record.add("analysis", title, work, device=device, load=title)


if __name__ == "__main__":
    main()
