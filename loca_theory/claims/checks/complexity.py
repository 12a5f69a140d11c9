"""Costs: multiplications of the forms of ΔW, and numbers of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode

from loca_theory.claims.measurement import Measurement, Setting
from loca_theory.expressivity import Budget
from loca_theory.transforms import dct_matrix

_SIZE, _COMPONENTS = 128, 64
_ORDERS: dict[str, Callable[[int, int], float]] = {
    "B pq": lambda n, b: b * n**2,
    "B log pq": lambda n, b: b * math.log(n**2),
    "p²q²": lambda n, b: n**4,
    "pq (p + q)": lambda n, b: 2 * n**3,
}


def growth(setting: Setting, *, form: str, order: str) -> Measurement:
    """Operations at n = 256 over those at 128, over the same quotient of the printed order.

    Operations are counted by torch while ΔW is formed, B = 64.

    Args:
        setting: The source of the spectrum.
        form: ``sparse``, Σ a c dᵀ as one product of p×B and B×q, or ``dense``, Cᵀ S D.
        order: ``B pq``, ``B log pq``, ``p²q²`` or ``pq (p + q)``.

    Source: section "Computational Complexity" and the table complexity.
    """
    counts = [_operations(setting, form, n) for n in (_SIZE, 2 * _SIZE)]
    printed = [_ORDERS[order](n, _COMPONENTS) for n in (_SIZE, 2 * _SIZE)]
    return Measurement.exact((counts[1] / counts[0]) / (printed[1] / printed[0]))


def _operations(setting: Setting, form: str, n: int) -> int:
    c = dct_matrix(n)
    places = torch.from_numpy(setting.rng.integers(0, n, (_COMPONENTS, 2)))
    a = torch.from_numpy(setting.rng.standard_normal(_COMPONENTS))
    with FlopCounterMode(display=False) as counter:
        if form == "sparse":
            _ = (c[places[:, 0]] * a[:, None]).T @ c[places[:, 1]]
        else:
            spectrum = torch.zeros(n, n, dtype=c.dtype)
            spectrum[places[:, 0], places[:, 1]] = a
            _ = c.T @ spectrum @ c
    return counter.get_total_flops()


def parameters(
    setting: Setting, *, method: str, width: int, layers: int, budget: int
) -> Measurement:
    """Trainable parameters, in millions, of two adapted square matrices a layer.

    Args:
        setting: Not used.
        method: ``lora`` with rank ``budget``, or ``loca`` with that many coefficients a matrix.
        width: Width of the model.
        layers: Its layers.
        budget: Rank or number of components.

    Source: the parameter column of the table of GLUE results.
    """
    del setting
    each = Budget(width, width, budget).numbers if method == "lora" else budget
    return Measurement.exact(2 * layers * each / 1e6)
