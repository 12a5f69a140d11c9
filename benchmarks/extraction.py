"""Speed of ``loca_theory.extract`` beside a full decomposition.

Run from the checkout: ``python -m benchmarks.extraction [--matrices 2] [--out FILE.json]``.

- *pair*: LoRA of rank 16 from query and value matrices of a model of LLaMA-7B's shape (4096×4096,
  bfloat16) on disk, in bfloat16 again: by :func:`loca_theory.extract`, and as mergekit's
  ``mergekit-extract-lora`` does it, by ``torch.linalg.svd`` of each increment. Both on all cores,
  one after the other, once each.
- *small*: the same decomposition of matrices of other shapes, by this package and by
  ``torch.linalg.svd``, in rounds.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks._measure import Rival, interleaved
from benchmarks._record import OUT, Record
from benchmarks.increments import make_pair
from loca_theory.checkpoints import extract
from loca_theory.checkpoints.pairs.opening import open_pair
from loca_theory.increments.truncated_svd import truncated_svd

PACKAGES = ("numpy", "torch", "safetensors")
_RANK = 16
_SHAPES = ((384, 384), (1536, 384), (768, 768), (2048, 2048))


def measure_pair(base: Path, tuned: Path, folder: Path) -> list[dict[str, Any]]:
    """Extract from a pair in both ways, reading and writing included."""
    start = time.perf_counter()
    found = extract(base, tuned, "lora", rank=_RANK, dtype="bfloat16", device="cpu")
    found.save(folder / "ours")
    ours = time.perf_counter() - start
    start = time.perf_counter()
    errors = _by_full_decomposition(base, tuned, folder / "theirs.safetensors")
    theirs = time.perf_counter() - start
    return [
        {
            "matrices": len(errors),
            "ours_s": ours,
            "full_svd_s": theirs,
            "ratio": theirs / ours,
            "largest_excess_error": max(one.error - errors[one.name] for one in found.matrices),
            "largest_stated_gap": max(one.gap for one in found.matrices),
        }
    ]


def _by_full_decomposition(base: Path, tuned: Path, out: Path) -> dict[str, float]:
    """Error of each adapter, written as mergekit does."""
    from safetensors.torch import save_file

    pair = open_pair(base, tuned)
    factors, errors = {}, {}
    for name in pair.names:
        increment = pair.increment(name)
        u, s, vh = torch.linalg.svd(increment, full_matrices=False)
        root = s[:_RANK].sqrt()
        factors[f"{name}.A"] = (root[:, None] * vh[:_RANK]).bfloat16().contiguous()
        factors[f"{name}.B"] = (u[:, :_RANK] * root).bfloat16().contiguous()
        left = increment - factors[f"{name}.B"].float() @ factors[f"{name}.A"].float()
        errors[name] = float(left.square().sum() / increment.square().sum())
    save_file(factors, out)
    return errors


def measure_small() -> list[dict[str, Any]]:
    """Compare the decompositions of one matrix of each shape."""
    rows = []
    for shape in _SHAPES:
        matrix = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
        rivals = {
            "ours": Rival(lambda matrix=matrix: truncated_svd(matrix, _RANK)),
            "full SVD": Rival(lambda matrix=matrix: torch.linalg.svd(matrix, full_matrices=False)),
        }
        timings = interleaved(rivals, rounds=5, attempts=2)
        rows.append(
            {
                "shape": "x".join(map(str, shape)),
                "ours_s": timings["ours"].median,
                "full_svd_s": timings["full SVD"].median,
                "ratio": timings["full SVD"].ratio_to(timings["ours"]),
            }
        )
    return rows


@click.command()
@click.option("--matrices", default=2, show_default=True, help="Number of matrices in the pair.")
@click.option("--skip", multiple=True, type=click.Choice(["pair", "small"]))
@OUT
def main(matrices: int, skip: tuple[str, ...], out: Path | None) -> None:
    """Measure speed, and print the results."""
    record = Record(out, PACKAGES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base, tuned = make_pair(folder, matrices)
        for part, measure in {
            "pair": lambda: measure_pair(base, tuned, folder),
            "small": measure_small,
        }.items():
            if part not in skip:
                record.add(part, "", measure)


if __name__ == "__main__":
    main()
