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


# Trained numbers of a p×q layer, and its first step at the learning rate 1.
_ADAPTERS: dict[str, tuple[Callable[[int, int], int], Step]] = {
    "LoCA, α = 1": (lambda p, q: _NUMBERS, _orthonormal(_NUMBERS)),
    "SHiRA, r = 32": (lambda p, q: 32 * (p + q), _orthonormal(_NUMBERS)),
    "LoRA, r = 32, α = 64": (lambda p, q: 32 * (p + q), lambda p, q: of_low_rank(p, q, 32, 2.0)),
    "FourierFT, 5000 of 300": (
        lambda p, q: 5000,
        lambda p, q: of_random_cosines(p, q, 5000, 300.0),
    ),
    "WaveFT, 5000 of 25": (lambda p, q: 5000, _orthonormal(5000, 25.0)),
    "VeRA, r = 256": (lambda p, q: p + 256, lambda p, q: of_frozen_factors(p, q, 256, 0.1)),
}
_RATES = {
    "LoCA, α = 1": (1e-4, 1e-3),
    "SHiRA, r = 32": (1e-4,),
    "LoRA, r = 32, α = 64": (1e-5, 1e-3),
    "FourierFT, 5000 of 300": (1e-2,),
    "WaveFT, 5000 of 25": (1e-5,),
    "VeRA, r = 256": (1e-2,),
}


def candidates() -> pd.DataFrame:
    """Inputs of the model for each run: trained numbers, first step and predicted decrease."""
    shapes = [(p, q) for name, (p, q) in _TASK["shapes"].items() if name in _ADAPTED]
    copies, rows = _TASK["copies"], []
    for name, (numbers, step) in _ADAPTERS.items():
        trained = copies * sum(numbers(p, q) for p, q in shapes)
        steps = [step(p, q) for p, q in shapes]
        length = math.sqrt(copies * sum(size.frobenius**2 for size in steps))
        decrease = sum(size.decrease for size in steps)
        for lr in _RATES[name]:
            row = {"adapter": name, "lr": lr, "trained": trained}
            rows.append({**row, "frobenius": lr * length, "decrease": lr * copies * decrease})
    return pd.DataFrame(rows)
