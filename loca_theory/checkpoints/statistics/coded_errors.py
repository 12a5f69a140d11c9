"""What coders leave of one increment at equal bits."""

from __future__ import annotations

from functools import lru_cache

import torch

from loca_theory.checkpoints.rows import CodedError, Matrix
from loca_theory.checkpoints.settings import Settings
from loca_theory.expressivity.coders.registry import CODERS, measure_all
from loca_theory.sweeps import generator


def coded_errors(
    matrix: Matrix, increment: torch.Tensor, settings: Settings
) -> tuple[CodedError, ...]:
    """Errors of every coder with each of its transforms; none unless bits were asked for."""
    if not settings.bits:
        return ()
    rng = generator(settings.seed, "increments.coders", matrix.name)
    entries = increment.double().cpu().numpy()
    return tuple(
        CodedError(
            name=matrix.name,
            tuned=matrix.tuned,
            method=method,
            transform=transform.value,
            bits=bits,
            stored_bits=coded.bits,
            error=coded.error,
            iid_error=_expected(method, matrix.shape, bits),
        )
        for method, transform, bits, coded in measure_all(entries, settings.bits, rng)
    )


@lru_cache(maxsize=4096)
def _expected(method: str, shape: tuple[int, int], bits: float) -> float | None:
    found = CODERS[method].expected(shape, bits)
    return None if found is None else found.error
