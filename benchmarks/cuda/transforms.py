"""dct2 and idct2 compared with torch-dct, CuPy and a plain real FFT as the floor.

There is no FFT in bfloat16, so the floor of such inputs is the FFT of the same numbers, cast to
float32 beforehand. The times of all other transforms include their casts.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from benchmarks._measure import Timing
from benchmarks._transforms import floor, normal, scipy_transform
from benchmarks.cuda.comparison import Build, Step, compare, verdict
from benchmarks.cuda.session import Row, Session
from loca_theory.transforms import dct2, idct2

Transform = Callable[[torch.Tensor], Any]

SHAPES = ((24, 768, 768), (1, 4096, 4096), (1, 768, 768), (96, 768, 768))
_TINY = ((2, 12, 12), (1, 16, 16))
_FLOOR = "torch.fft (floor)"
_OURS = "loca_theory"
# Target: dct2 takes at most this multiple of the floor's time.
_TARGETS = {(24, 768, 768): 3.0, (1, 4096, 4096): 2.0, (1, 16, 16): 2.0}


def check(session: Session) -> None:
    """Measure every shape, dtype and direction, and record a trace."""
    shapes = _TINY if session.tiny else SHAPES
    for dtype in (torch.float32, torch.bfloat16):
        for inverse in (False, True):
            for shape in shapes:
                name, size = "idct2" if inverse else "dct2", " x ".join(map(str, shape))
                compare(
                    session,
                    f"{name} {size} {str(dtype).removeprefix('torch.')}",
                    partial(_rivals, session.device, shape, dtype, inverse=inverse),
                    judge=partial(_judge, None if inverse else _TARGETS.get(shape)),
                )
    # The trace comes last, because the profiler may slow down what follows.
    session.trace("dct2", lambda: partial(dct2, normal(*shapes[0]).to(session.device)))


def _rivals(
    device: str, shape: tuple[int, ...], dtype: torch.dtype, *, inverse: bool
) -> tuple[dict[str, Build], int]:
    x = normal(*shape).to(dtype)
    # The error is that of the first two matrices. For bfloat16 it includes the rounding of the
    # result to eight bits.
    expected = scipy_transform(x[:2].double(), inverse=inverse, workers=-1)
    x = x.to(device)

    def build(rival: str, transform: Transform) -> tuple[Step, Mapping[str, Any]]:
        found = transform(x)
        facts: dict[str, Any] = {}
        if rival == "CuPy":
            facts["peak_mib"] = None  # CuPy has its own allocator
        if rival != _FLOOR:
            error = (torch.as_tensor(found)[:2].cpu().double() - expected).abs().max()
            facts["max_abs_error"] = float(error)
        return partial(transform, x), facts

    rivals = {
        rival: partial(build, rival, transform)
        for rival, transform in _transforms(x, inverse=inverse, device=device).items()
    }
    return rivals, x.numel() * x.element_size()


def _judge(most: float | None, rows: dict[str, Row], times: dict[str, Timing]) -> None:
    for rival, row in rows.items():
        if _FLOOR in times:
            row["times_floor"] = times[rival].ratio_to(times[_FLOOR])
    found = rows.get(_OURS, {}).get("times_floor")
    if most and found:
        target = f"time over rfft2's at most {most:g}"
        rows[_OURS]["verdicts"] = [verdict(target, found, reached=found <= most)]


def _transforms(x: torch.Tensor, *, inverse: bool, device: str) -> dict[str, Transform]:
    ours = idct2 if inverse else dct2
    lowest = floor(x.float(), inverse)
    found: dict[str, Transform] = {
        _OURS: ours,
        _FLOOR: lambda _: lowest(),
        f"{_OURS}, matmul": partial(ours, method="matmul"),
    }
    for module, name, wrap in (
        ("torch_dct", "torch-dct", _torch_dct),
        ("cupyx.scipy.fft", "CuPy", _cupy),
    ):
        if name == "CuPy" and device == "cpu":
            continue
        try:
            found[name] = wrap(importlib.import_module(module), inverse)
        except ImportError:
            continue  # the report lists it as missing
        except Exception as error:
            found[name] = _failing(error)
    return found


def _failing(error: Exception) -> Transform:
    def apply(_: torch.Tensor) -> None:
        raise error

    return apply


def _torch_dct(module: Any, inverse: bool) -> Transform:
    transform = module.idct_2d if inverse else module.dct_2d
    return lambda x: transform(x.float(), norm="ortho").to(x.dtype)


def _cupy(module: Any, inverse: bool) -> Transform:
    """Transform in the memory of torch's tensors; bfloat16 is cast to float32 for CuPy."""
    cupy = importlib.import_module("cupy")
    transform = module.idctn if inverse else module.dctn

    def apply(x: torch.Tensor) -> torch.Tensor:
        array = cupy.from_dlpack(x.float())
        found = transform(array, type=2, norm="ortho", axes=(-2, -1))
        return torch.from_dlpack(found).to(x.dtype)

    return apply
