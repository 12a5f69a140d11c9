"""Speed and accuracy of the cosine transforms, compared with other libraries.

Run from the checkout: ``python -m benchmarks.transforms [--out FILE.json]``. Needs the ``bench``
extra. It compares ``dct2`` and ``idct2`` with scipy or CuPy, torch-dct and the
package's own methods, with the largest error on N(0, 1) entries. A plain real FFT of the same size
is the floor. On CUDA also in bfloat16, whose floor is an FFT of the same numbers, cast to float32
beforehand; the other times include the casts.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
import scipy.fft
import torch

from benchmarks._measure import Build, Step, compare
from benchmarks._record import DEVICE, OUT, TINY, Record, Row
from loca_theory.transforms import dct2, idct2

PACKAGES = ("torch", "scipy", "numpy", "torch-dct", "cupy")
SHAPES = ((16, 300, 300), (1, 768, 768), (1, 4096, 4096))
CUDA_SHAPES = ((24, 768, 768), (1, 4096, 4096), (1, 768, 768), (96, 768, 768))
TINY_SHAPES = ((2, 12, 12), (1, 16, 16))
OURS, FLOOR = "dct2/idct2 (auto)", "torch.fft.rfft2/irfft2 (floor)"

Transform = Callable[[torch.Tensor], Any]


def _scipy(x: torch.Tensor, *, inverse: bool) -> torch.Tensor:
    transform = scipy.fft.idctn if inverse else scipy.fft.dctn
    x, workers = x.float() if x.dtype is torch.bfloat16 else x, torch.get_num_threads()
    array = transform(x.numpy(), type=2, norm="ortho", axes=(-2, -1), workers=workers)
    return torch.from_numpy(array)


def _cupy(x: torch.Tensor, *, inverse: bool) -> torch.Tensor:
    """Transform in the memory of torch's tensors; bfloat16 is cast to float32 for CuPy."""
    cupy, fft = importlib.import_module("cupy"), importlib.import_module("cupyx.scipy.fft")
    transform = fft.idctn if inverse else fft.dctn
    spectrum = transform(cupy.from_dlpack(x.float()), type=2, norm="ortho", axes=(-2, -1))
    return torch.from_dlpack(spectrum).to(x.dtype)


def _torch_dct(x: torch.Tensor, *, inverse: bool) -> torch.Tensor:
    torch_dct = importlib.import_module("torch_dct")
    transform = torch_dct.idct_2d if inverse else torch_dct.dct_2d
    return transform(x.float(), norm="ortho").to(x.dtype)


def _floor(x: torch.Tensor, *, inverse: bool) -> Step:
    """A plain real FFT of the size of ``x``, or its inverse from a precomputed spectrum."""
    if not inverse:
        return partial(torch.fft.rfft2, x)
    return partial(torch.fft.irfft2, torch.fft.rfft2(x), s=x.shape[-2:])


def _transforms(inverse: bool, device: str) -> dict[str, Transform]:
    ours = idct2 if inverse else dct2
    transforms: dict[str, Transform] = {
        OURS: ours,
        "torch-dct": partial(_torch_dct, inverse=inverse),
        "ours, fft": partial(ours, method="fft"),
        "ours, matmul": partial(ours, method="matmul"),
    }
    if device == "cpu":
        transforms["scipy.fft.dctn/idctn"] = partial(_scipy, inverse=inverse)
    else:
        transforms["CuPy"] = partial(_cupy, inverse=inverse)
    return transforms


def dense(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    *,
    inverse: bool,
    device: str,
    rounds: int,
    tiny: bool,
) -> list[Row]:
    """Measure every dense transform for one shape, precision and direction."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    # The error is that of the first two matrices.
    expected = _scipy(x[:2].double(), inverse=inverse)
    x = x.to(device)

    def build(transform: Transform) -> tuple[Step, Mapping[str, Any]]:
        output = torch.as_tensor(transform(x))[:2].cpu().double()
        return partial(transform, x), {"max_abs_error": float((output - expected).abs().max())}

    builds: dict[str, Build] = {
        name: partial(build, transform) for name, transform in _transforms(inverse, device).items()
    }
    builds[FLOOR] = lambda: (_floor(x.float(), inverse=inverse), {})
    rows, times = compare(builds, device=device, rounds=rounds, tiny=tiny)
    for name, timing in times.items():
        rows[name]["times_ours"] = timing.ratio_to(times[OURS])
        rows[name]["times_floor"] = timing.ratio_to(times[FLOOR])
    return list(rows.values())


@click.command()
@click.option("--rounds", default=11, show_default=True, type=click.IntRange(2))
@DEVICE
@TINY
@OUT
def main(rounds: int, device: str, tiny: bool, out: Path | None) -> None:
    """Compare the cosine transforms with those of other libraries."""
    record = Record(out, PACKAGES)
    on_cpu = device == "cpu"
    shapes = TINY_SHAPES if tiny else SHAPES if on_cpu else CUDA_SHAPES
    for dtype in (torch.float32,) if on_cpu and not tiny else (torch.float32, torch.bfloat16):
        for inverse in (False, True):
            for shape in shapes:
                work = partial(dense, shape, dtype, inverse=inverse, device=device, rounds=rounds)
                precision = str(dtype).removeprefix("torch.")
                size, name = "x".join(map(str, shape)), "idct2" if inverse else "dct2"
                load = f"{name} {size} {precision}"
                record.add("dense", load, partial(work, tiny=tiny), load=load, device=device)


if __name__ == "__main__":
    main()
