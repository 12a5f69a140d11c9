"""``analyze`` on the device and on the CPU: differences and speed, for a synthetic pair.

The increments have independent normal entries; in the second matrix a low-rank matrix is added.
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.cuda.comparison import verdict
from benchmarks.cuda.session import Row, Session
from loca_theory.checkpoints import analyze

_SHAPES = ((768, 768), (768, 3072), (2048, 2048))
_TINY = ((16, 16), (16, 24))
# Tolerance for sums of up to four million products in float32, in a different order.
_ROUNDING = 1e-3


def check(session: Session) -> None:
    """Analyse one pair of checkpoints per matrix shape."""
    shapes = _TINY if session.tiny else _SHAPES
    ranks = (2,) if session.tiny else (8, 32)
    session.note("on the CPU torch uses all its threads; the parts in NumPy, which take most of "
                 "the time at 768 x 768, run on the CPU for either device")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for index, shape in enumerate(shapes):

            def work(row: Row, index: int = index, shape: tuple[int, int] = shape) -> None:
                paths = _pair(Path(folder), index, shape)
                if session.is_cuda:  # the first call on a device creates plans and workspaces
                    _analysed(paths, ranks, session.device)
                found = {}
                for device, name in ((session.device, "s"), ("cpu", "cpu_s")):
                    start = time.perf_counter()
                    found[name] = _analysed(paths, ranks, device)
                    row[name] = time.perf_counter() - start
                    if name == "s":
                        session.so_far(row)
                row |= _difference(found["s"], found["cpu_s"])
                row["speed_over_cpu"] = row["cpu_s"] / row["s"]

            kind = "low rank and noise" if index % 2 else "noise"
            key = f"matrix {index + 1}: {shape[0]} x {shape[1]}, {kind}"
            session.attempt({"key": key}, work, seconds=8.0 if session.is_cuda else 0.0)


def _pair(folder: Path, index: int, shape: tuple[int, int]) -> tuple[str, str]:
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(index)
    base = torch.randn(shape, generator=generator) * 0.05
    change = torch.randn(shape, generator=generator) * 1e-3
    if index % 2:
        left, right = (torch.randn(n, 4, generator=generator) for n in shape)
        change += 3e-3 * left @ right.T
    paths = folder / f"base{index}.safetensors", folder / f"tuned{index}.safetensors"
    for path, value in zip(paths, (base, base + change), strict=True):
        save_file({"layer.0.query.weight": value.contiguous()}, path)
    return str(paths[0]), str(paths[1])


def _analysed(paths: tuple[str, str], ranks: tuple[int, ...], device: str) -> dict[str, float]:
    """Analyse a pair with a single matrix, and return its numbers by name."""
    result = analyze(*paths, ranks=ranks, device=device)
    if not result.matrices:
        msg = f"nothing was analysed: {[one.reason for one in result.skipped]}"
        raise RuntimeError(msg)
    (row,) = result.matrices
    found = {name: value for name, value in vars(row).items() if isinstance(value, float)}
    for error in result.errors:
        named = f"{error.method} at r = {error.r}"
        found |= {
            f"{key} of {named}": getattr(error, key)
            for key in ("error", "iid_error", "shuffled_error", "spectral_error")
        }
    return found


def _difference(here: dict[str, float], cpu: dict[str, float]) -> dict[str, Any]:
    def apart(name: str) -> float:
        ours, theirs = here.get(name, math.nan), cpu[name]
        if ours == theirs or (math.isnan(ours) and math.isnan(theirs)):
            return 0.0
        difference = abs(ours - theirs) / max(abs(theirs), 1e-6)
        return math.inf if math.isnan(difference) else difference

    worst = max(cpu, key=apart)
    target = f"relative difference from the CPU at most {_ROUNDING:g}"
    return {
        "compared": len(cpu),
        "largest_relative_difference": apart(worst),
        "of": worst,
        "here": here.get(worst),
        "cpu": cpu[worst],
        "verdicts": [verdict(target, apart(worst), reached=apart(worst) <= _ROUNDING)],
    }
