"""Runs of the benchmark that nobody has published, for the model to be wrong about."""

from __future__ import annotations

import math
from collections.abc import Callable

import pandas as pd

from experiments.peft_benchmark.runs import DESIGN
from loca_theory.expressivity.laws.first_step import (
    StepSize,
    of_frozen_factors,
    of_low_rank,
    of_orthogonal_atoms,
    of_random_cosines,
)

_TASK = DESIGN["tasks"]["MetaMathQA"]
_ADAPTED = ("q_proj", "v_proj")
# As many numbers in each adapted layer as the published LoRA of rank 32 has on average.
_NUMBERS = 163_840

Step = Callable[[int, int], StepSize]


def _orthonormal(count: int, scaling: float = 1.0) -> Step:
    return lambda p, q: of_orthogonal_atoms(count, scaling)


# Name, learning rate, trained numbers of a p×q layer, and its first step.
_CANDIDATES: tuple[tuple[str, float, Callable[[int, int], int], Step], ...] = (
    ("LoCA, α = 1", 1e-4, lambda p, q: _NUMBERS, _orthonormal(_NUMBERS)),
    ("LoCA, α = 1", 1e-3, lambda p, q: _NUMBERS, _orthonormal(_NUMBERS)),
    ("SHiRA, r = 32", 1e-4, lambda p, q: 32 * (p + q), _orthonormal(_NUMBERS)),
    ("LoRA, r = 32, α = 64", 1e-5, lambda p, q: 32 * (p + q),
     lambda p, q: of_low_rank(p, q, 32, 2.0)),
    ("LoRA, r = 32, α = 64", 1e-3, lambda p, q: 32 * (p + q),
     lambda p, q: of_low_rank(p, q, 32, 2.0)),
    ("FourierFT, 5000 of 300", 1e-2, lambda p, q: 5000,
     lambda p, q: of_random_cosines(p, q, 5000, 300.0)),
    ("WaveFT, 5000 of 25", 1e-5, lambda p, q: 5000, _orthonormal(5000, 25.0)),
    ("VeRA, r = 256", 1e-2, lambda p, q: p + 256,
     lambda p, q: of_frozen_factors(p, q, 256, 0.1)),
)  # fmt: skip


def candidates() -> pd.DataFrame:
    """Inputs of the model for each run: trained numbers, first step and predicted decrease."""
    shapes = [(p, q) for name, (p, q) in _TASK["shapes"].items() if name in _ADAPTED]
    copies, rows = _TASK["copies"], []
    for name, lr, numbers, step in _CANDIDATES:
        steps = [step(p, q) for p, q in shapes]
        rows.append(
            {
                "adapter": name,
                "lr": lr,
                "trained": copies * sum(numbers(p, q) for p, q in shapes),
                "frobenius": lr * math.sqrt(copies * sum(size.frobenius**2 for size in steps)),
                "decrease": lr * copies * sum(size.decrease for size in steps),
            }
        )
    return pd.DataFrame(rows)
