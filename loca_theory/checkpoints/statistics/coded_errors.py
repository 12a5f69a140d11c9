"""What coders leave of one increment at equal bits."""

from __future__ import annotations

from functools import lru_cache

import torch

from loca_theory.checkpoints.rows import CodedError, Matrix
from loca_theory.checkpoints.settings import Settings
from loca_theory.expressivity.coders.coder import Transform
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
    found = list(measure_all(entries, settings.bits, rng))
    errors = {(method, at, bits): coded.error for method, at, bits, coded in found}

    def gain(method: str, reference: Transform, bits: float, error: float) -> float | None:
        before = errors.get((method, reference, bits))
        return None if before is None or len(CODERS[method].transforms) == 1 else before - error

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
            gain=gain(method, Transform.NONE, bits, coded.error),
            excess_gain=gain(method, Transform.RANDOM, bits, coded.error),
        )
        for method, transform, bits, coded in found
    )


@lru_cache(maxsize=4096)
def _expected(method: str, shape: tuple[int, int], bits: float) -> float | None:
    found = CODERS[method].expected(shape, bits)
    return None if found is None else found.error
