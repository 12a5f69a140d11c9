"""Speed and memory of ``loca-theory analyze``, and a comparison of its fit with WeightWatcher's.

Run from the checkout: ``python -m benchmarks.increments [--matrices 64] [--out FILE.json]``.

- *pair*: time per matrix and peak memory of the command, in a process of its own. It analyses query
  and value matrices of a model of LLaMA-7B's shape (4096×4096, bfloat16, sharded) on disk, whose
  increments are independent entries plus a weak spike.
- *test*: time of the total-variation test alone at three sizes.
- *weightwatcher*: time and result of the Marchenko–Pastur fit of some of the same increments, by
  WeightWatcher (``pip install 'loca-theory[bench]'``) and by this package.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from rich.console import Console
from safetensors.torch import save_file

from benchmarks._measure import Rival, environment, interleaved, print_rows
from benchmarks._records import write_json
from loca_theory.checkpoints import open_pair
from loca_theory.increments import (
    calibrated_test,
    fit_bulk,
    histogram,
    squared_singular_values,
)

PACKAGES = ("numpy", "scipy", "torch", "safetensors")
SIZE, LAYERS_A_SHARD = 4096, 4
_CHANGE, _SPIKE = 1e-3, 1.5
_COMPARED = 3


def make_pair(folder: Path, matrices: int) -> tuple[Path, Path]:
    """Create the base and the fine-tuned checkpoint, shard by shard."""
    source = torch.Generator().manual_seed(0)
    sides = {side: folder / side for side in ("base", "tuned")}
    maps: dict[str, dict[str, str]] = {side: {} for side in sides}
    for path in sides.values():
        path.mkdir(parents=True, exist_ok=True)
    names = [
        f"model.layers.{layer}.self_attn.{kind}_proj.weight"
        for layer in range((matrices + 1) // 2)
        for kind in ("q", "v")
    ][:matrices]
    for start in range(0, matrices, 2 * LAYERS_A_SHARD):
        shard = f"model-{start:05d}.safetensors"
        content: dict[str, dict[str, torch.Tensor]] = {side: {} for side in sides}
        for name in names[start : start + 2 * LAYERS_A_SHARD]:
            base = 0.02 * torch.randn(SIZE, SIZE, generator=source)
            u, v = (torch.randn(SIZE, generator=source) for _ in range(2))
            strength = _SPIKE * 2 * SIZE**0.5 / SIZE
            change = torch.randn(SIZE, SIZE, generator=source) + strength * torch.outer(u, v)
            content["base"][name] = base.bfloat16()
            content["tuned"][name] = (base + _CHANGE * change).bfloat16()
        for side, tensors in content.items():
            save_file(tensors, sides[side] / shard)
            maps[side].update(dict.fromkeys(tensors, shard))
    for side, path in sides.items():
        index = json.dumps({"weight_map": maps[side]})
        (path / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    return sides["base"], sides["tuned"]


def measure_pair(base: Path, tuned: Path, device: str) -> list[dict[str, Any]]:
    """Measure the whole command in a process of its own."""
    script = "from loca_theory.cli import main; main()"
    command = [sys.executable, "-c", script, "analyze", str(base), str(tuned)]
    command += ["--format", "json", "--quiet", "--device", device]
    start, peak = time.perf_counter(), 0.0
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out)
        while process.poll() is None:
            peak = max(peak, _peak_mib(process.pid))
            time.sleep(0.05)
        seconds = time.perf_counter() - start
        out.seek(0)
        document = json.loads(out.read())
    count = len(document["rows"])
    return [
        {
            "matrices": count,
            "exit": process.returncode,
            "seconds": seconds,
            "seconds_a_matrix": seconds / count,
            "peak_mib": peak,
            "median_spikes": float(np.median([row["spikes"] for row in document["rows"]])),
            "median_mp_sigma": float(np.median([row["mp_sigma"] or 0 for row in document["rows"]])),
        }
    ]


def _peak_mib(pid: int) -> float:
    """Peak memory by the kernel's high-water mark, which unlike rusage starts with the program."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def measure_test() -> list[dict[str, Any]]:
    """Measure the histogram and the calibrated test separately."""
    rows = []
    rng = np.random.default_rng(0)
    for side in (300, 768, SIZE):
        entries = torch.randn(side, side, generator=torch.Generator().manual_seed(0))
        counts = histogram(entries)
        rivals = {
            "histogram": Rival(lambda entries=entries: histogram(entries)),
            "test of the histogram": Rival(lambda counts=counts: calibrated_test(counts, rng)),
        }
        timings = interleaved(rivals, rounds=5)
        rows += [{"side": side, "what": name, **one.as_record()} for name, one in timings.items()]
    return rows


def measure_weightwatcher(base: Path, tuned: Path) -> list[dict[str, Any]]:
    """Compare both fits of the same increments, which WeightWatcher gets as linear layers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weightwatcher = importlib.import_module("weightwatcher")
    logging.getLogger("weightwatcher").setLevel(logging.ERROR)
    pair = open_pair(base, tuned)
    rows = []
    for name in list(pair.names)[:_COMPARED]:
        increment = pair.increment(name)
        start = time.perf_counter()
        fit = fit_bulk(squared_singular_values(increment), *increment.shape)
        ours = time.perf_counter() - start
        layer = torch.nn.Linear(*increment.shape[::-1], bias=False)
        layer.weight.data.copy_(increment)
        watcher = weightwatcher.WeightWatcher(model=torch.nn.Sequential(layer))
        start = time.perf_counter()
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            details = watcher.analyze(mp_fit=True, randomize=False, plot=False)
        theirs = time.perf_counter() - start
        found = details.iloc[0]
        rows.append(
            {
                "matrix": name,
                "ours_s": ours,
                "weightwatcher_s": theirs,
                "ratio": theirs / ours,
                "ours_sigma": fit.sigma,
                "weightwatcher_sigma": float(found.get("sigma_mp", np.nan)),
                "ours_spikes": fit.spikes,
                "weightwatcher_spikes": int(found.get("num_spikes", -1)),
            }
        )
    return rows


@click.command()
@click.option("--matrices", default=64, show_default=True, help="Number of matrices in the pair.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--skip", multiple=True, type=click.Choice(["pair", "test", "weightwatcher"]))
@click.option("--out", type=click.Path(path_type=Path), help="File for the results as JSON.")
def main(matrices: int, device: str, skip: tuple[str, ...], out: Path | None) -> None:
    """Measure speed and memory, and print the results."""
    record: dict[str, Any] = {"environment": environment(PACKAGES)}
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        base, tuned = make_pair(Path(folder), matrices)
        for name, measure in {
            "pair": lambda: measure_pair(base, tuned, device),
            "test": measure_test,
            "weightwatcher": lambda: measure_weightwatcher(base, tuned),
        }.items():
            if name not in skip:
                record[name] = measure()
                print_rows(console, name, record[name])
    if out is not None:
        write_json(out, record)


if __name__ == "__main__":
    main()
