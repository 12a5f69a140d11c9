"""Speed of ``analyze`` and ``extract``, and a comparison of the fit with WeightWatcher's.

Run from the checkout: ``python -m benchmarks.increments [--matrices 8] [--out FILE.json]``.

- *small*: the whole command, with tables, figures and page, on the nine matrices of a pair of a
  small transformer's shapes, in a process of its own; a process that only imports the same modules;
  and the nine dense SVDs, in this process. The ratio is that of the medians, with the imports taken
  off. The rivals run in rounds and in random order.
- *large*: matrices of LLaMA-7B's shape (4096×4096, bfloat16, sharded), whose increments are
  independent entries plus a weak spike: reading and analysing one, with and without the shuffled
  control, which runs for one matrix per kind, compared with the eigenvalues of its Gram matrix
  alone, on one thread and in random order.
- *extraction*: reading one of these matrices and extracting a LoRA of rank 16, and the dense SVD of
  its increment alone, on one thread and in random order.
- *weightwatcher*: time and result of the Marchenko–Pastur fit of some of the same increments, by
  WeightWatcher (``pip install 'loca-theory[bench]'``) and by this package.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from safetensors.torch import save_file

from benchmarks._measure import timed
from benchmarks._record import OUT, Record
from loca_theory.checkpoints import extract
from loca_theory.checkpoints.change.opening import open_pair
from loca_theory.checkpoints.measure.matrix import analyse_matrix
from loca_theory.checkpoints.measure.settings import Settings
from loca_theory.increments import fit_bulk
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.sweeps.threads import one_thread

PACKAGES = ("numpy", "scipy", "torch", "safetensors")
SIZE, LAYERS_PER_SHARD = 4096, 4
_CHANGE, _SPIKE = 1e-3, 1.5
_COMPARED = 3
# A round takes up to a minute.
_ATTEMPTS = 2


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
    for start in range(0, matrices, 2 * LAYERS_PER_SHARD):
        shard = f"model-{start:05d}.safetensors"
        content: dict[str, dict[str, torch.Tensor]] = {side: {} for side in sides}
        for name in names[start : start + 2 * LAYERS_PER_SHARD]:
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


def make_small_pair(folder: Path) -> tuple[Path, Path]:
    """Create a pair of nine matrices: six of 384×384, three of 1536×384."""
    source = torch.Generator().manual_seed(0)
    sides: dict[str, dict[str, torch.Tensor]] = {"base": {}, "tuned": {}}
    for layer in range(3):
        for name, rows in (("self.query", 384), ("self.value", 384), ("intermediate", 1536)):
            base = 0.05 * torch.randn(rows, 384, generator=source)
            change = torch.randn(rows, 384, generator=source)
            change += (
                0.1 * torch.randn(rows, 8, generator=source) @ torch.randn(8, 384, generator=source)
            )
            weight = f"encoder.layer.{layer}.{name}.weight"
            sides["base"][weight], sides["tuned"][weight] = base, base + _CHANGE * change
    for side, tensors in sides.items():
        (folder / side).mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / side / "model.safetensors")
    return folder / "base", folder / "tuned"


def measure_small(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Compare the command on nine small matrices with their dense SVDs."""
    base, tuned = make_small_pair(folder)
    pair = open_pair(base, tuned)
    increments = [pair.increment(name) for name in pair.matrices]
    modules = folder / "modules.json"

    def command() -> None:
        with tempfile.TemporaryDirectory() as out:
            arguments = [str(base), str(tuned), "--r", "8,16,32", "--quiet", "--out", out]
            _run(_COMMAND_AND_MODULES, "analyze", *arguments, environment={"MODULES": str(modules)})

    command()
    rivals = {
        "command": command,
        "imports": lambda: _run(_IMPORTS, environment={"MODULES": str(modules)}),
        "svds": lambda: [torch.linalg.svd(increment) for increment in increments],
    }
    rows = timed(rivals, rounds=rounds, attempts=_ATTEMPTS)
    medians = {row["what"]: row["median_s"] for row in rows}
    svds, net = medians["svds"], medians["command"] - medians["imports"]
    return [*rows, {"what": "command less imports", "median_s": net, "ratio_to_svds": net / svds}]


_COMMAND_AND_MODULES = """
import atexit, json, os, sys
from pathlib import Path
from loca_theory.cli import main
atexit.register(lambda: Path(os.environ["MODULES"]).write_text(json.dumps(list(sys.modules))))
main()
"""
# Import the command's modules in its order; skip those that cannot be imported by name.
_IMPORTS = """
import contextlib, importlib, json, os
from pathlib import Path
for name in json.loads(Path(os.environ["MODULES"]).read_text()):
    if not name.startswith("__m"):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
"""


def _run(script: str, *arguments: str, environment: dict[str, str]) -> None:
    """Run a Python script in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()[-500:]}"
        )


def measure_large(base: Path, tuned: Path, rounds: int) -> list[dict[str, Any]]:
    """Compare the analysis of a large matrix with the eigenvalues of its Gram matrix."""
    pair = open_pair(base, tuned)
    name = next(iter(pair.matrices))
    gram = pair.increment(name).mT @ pair.increment(name)
    analysed = partial(analyse_matrix, settings=Settings((8, 16, 32)))
    rivals = {
        "matrix": lambda: analysed(name, pair.increment(name), has_control=False),
        "with shuffled entries": lambda: analysed(name, pair.increment(name)),
        "eigenvalues": lambda: torch.linalg.eigvalsh(gram),
    }
    return _on_one_thread(rivals, rounds)


def measure_extraction(base: Path, tuned: Path, rounds: int) -> list[dict[str, Any]]:
    """Compare LoRA extracted from a large matrix with the SVD of its increment."""
    pair = open_pair(base, tuned)
    name = next(iter(pair.matrices))
    increment = pair.increment(name).float()
    rivals = {
        "LoRA of rank 16": lambda: extract(base, tuned, "lora", rank=16, include=re.escape(name)),
        "svd": lambda: torch.linalg.svd(increment, full_matrices=False),
    }
    return _on_one_thread(rivals, rounds)


def _on_one_thread(rivals: dict[str, Callable[[], object]], rounds: int) -> list[dict[str, Any]]:
    """The times of rivals, and their ratios to the last."""
    with one_thread():
        rows = timed(rivals, rounds=rounds, attempts=_ATTEMPTS)
    return [{**row, "ratio": row["median_s"] / rows[-1]["median_s"]} for row in rows]


def measure_weightwatcher(base: Path, tuned: Path) -> list[dict[str, Any]]:
    """Compare both fits of the same increments, which WeightWatcher gets as linear layers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weightwatcher = importlib.import_module("weightwatcher")
    logging.getLogger("weightwatcher").setLevel(logging.ERROR)
    pair = open_pair(base, tuned)
    rows = []
    for name in list(pair.matrices)[:_COMPARED]:
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
        statistics = details.iloc[0]
        rows.append(
            {
                "matrix": name,
                "ours_s": ours,
                "weightwatcher_s": theirs,
                "ratio": theirs / ours,
                "ours_sigma": fit.sigma,
                "weightwatcher_sigma": float(statistics.get("sigma_mp", np.nan)),
                "ours_spikes": fit.spikes,
                "weightwatcher_spikes": int(statistics.get("num_spikes", -1)),
            }
        )
    return rows


_PARTS = ("small", "large", "extraction", "weightwatcher")


@click.command()
@click.option("--matrices", default=8, show_default=True, help="Number of large matrices.")
@click.option("--rounds", default=5, show_default=True, help="Rounds of each comparison.")
@click.option("--skip", multiple=True, type=click.Choice(_PARTS))
@OUT
def main(matrices: int, rounds: int, skip: tuple[str, ...], out: Path | None) -> None:
    """Measure speed, and print the results."""
    record = Record(out, PACKAGES)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        large = set(_PARTS[1:]).difference(skip)
        base, tuned = make_pair(folder / "large", matrices) if large else (folder, folder)
        for name, measure in {
            "small": lambda: measure_small(folder / "small", rounds),
            "large": lambda: measure_large(base, tuned, rounds),
            "extraction": lambda: measure_extraction(base, tuned, rounds),
            "weightwatcher": lambda: measure_weightwatcher(base, tuned),
        }.items():
            if name not in skip:
                record.add(name, "", measure)


if __name__ == "__main__":
    main()
