"""Costs: operations for the forms of ΔW, and numbers of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.flop_counter import FlopCounterMode

from loca_theory.claims.measurement import Estimate, Measurement, Setting
from loca_theory.expressivity import Budget
from loca_theory.transforms import dct_matrix

_Numbers = Mapping[str, int]
# In each of these shapes, each number is doubled in turn: B is the number of components, r LoRA's
# rank.
_STARTS = (
    {"p": 64, "q": 128, "B": 32, "r": 8},
    {"p": 256, "q": 32, "B": 512, "r": 2},
    {"p": 128, "q": 128, "B": 64, "r": 16},
)
_ORDERS: dict[str, Callable[[_Numbers], float]] = {
    "B pq": lambda n: n["B"] * n["p"] * n["q"],
    "B log pq": lambda n: n["B"] * math.log(n["p"] * n["q"]),
    "p²q²": lambda n: n["p"] ** 2 * n["q"] ** 2,
    "pq (p + q)": lambda n: n["p"] * n["q"] * (n["p"] + n["q"]),
    "pq log pq": lambda n: n["p"] * n["q"] * math.log(n["p"] * n["q"]),
    "rpq": lambda n: n["r"] * n["p"] * n["q"],
}


def growth(setting: Setting, *, form: str, order: str) -> Measurement:
    """Growth of the operations when a size is doubled, relative to the growth of the order.

    There is one estimate per size: of three shapes, the one whose growth is furthest from that of
    the order. Torch counts the operations of the matrix products while ΔW is formed. For the fast
    transform, the multiplications of a recursion are counted while it runs (:func:`fast_cosine`).

    Args:
        setting: Random generator of the spectrum.
        form: ``sparse``, Σ a c dᵀ as one product of p×B and B×q; ``dense``, Cᵀ S D; ``four
            indices``, the sum over all of S for every entry of ΔW; ``fast``, fast transforms of
            columns and rows; ``low rank``, BA.
        order: ``B pq``, ``B log pq``, ``p²q²``, ``pq (p + q)``, ``pq log pq`` or ``rpq``.

    Source: section "Computational Complexity" and the table complexity.
    """
    growths: dict[str, list[float]] = {name: [] for name in _STARTS[0]}
    for start in _STARTS:
        base = _operations(setting, form, start)
        for name, found in growths.items():
            doubled = {**start, name: 2 * start[name]}
            expected = _ORDERS[order](doubled) / _ORDERS[order](start)
            found.append(_operations(setting, form, doubled) / base / expected)
    return Measurement.of(
        Estimate(f"{name} doubled", max(found, key=lambda ratio: abs(math.log(ratio))))
        for name, found in growths.items()
    )


def _operations(setting: Setting, form: str, sizes: _Numbers) -> int:
    p, q, components, r = (sizes[name] for name in ("p", "q", "B", "r"))
    if form == "fast":
        columns, rows = (fast_cosine(setting.rng.standard_normal(n))[1] for n in (p, q))
        return q * columns + p * rows
    c, d = dct_matrix(p), dct_matrix(q)
    i, j = (torch.from_numpy(setting.rng.integers(0, n, components)) for n in (p, q))
    a = torch.from_numpy(setting.rng.standard_normal(components))
    spectrum = torch.zeros(p, q, dtype=c.dtype)
    spectrum[i, j] = a
    with FlopCounterMode(display=False) as counter:
        if form == "sparse":
            _ = (c[i] * a[:, None]).T @ d[j]
        elif form == "dense":
            _ = c.T @ spectrum @ d
        elif form == "four indices":
            # (C ⊗ D)ᵀ vec S. The count needs only shapes, so meta tensors without entries suffice.
            _ = torch.empty(p * q, p * q, device="meta") @ torch.empty(p * q, 1, device="meta")
        else:
            _ = torch.zeros(p, r) @ torch.zeros(r, q)
    return counter.get_total_flops()


def fast_cosine(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Unnormalised DCT-II, Σ_j x_j cos(π(2j+1)k/2n), and its number of multiplications.

    Lee's recursion: half-length transforms of x_j ± x_{n−1−j}, the latter divided by
    2 cos(π(2j+1)/2n).

    Args:
        x: n numbers, n a power of 2.

    Source: "the fast algorithm-based implementation" of the paper, which has no DCT of its own.
    """
    n = len(x)
    if n == 1:
        return x.copy(), 0
    back = x[::-1][: n // 2]
    scale = 2 * np.cos(np.pi * (2 * np.arange(n // 2) + 1) / (2 * n))
    even, first = fast_cosine(x[: n // 2] + back)
    odd, second = fast_cosine((x[: n // 2] - back) / scale)
    found = np.empty(n)
    found[::2] = even
    found[1::2] = odd + np.append(odd[1:], 0.0)
    return found, first + second + n // 2


def parameters(
    setting: Setting,
    *,
    method: str,
    width: int,
    layers: int,
    budget: int,
    matrices: int = 2,
    counted: str = "values",
) -> Measurement:
    """Trainable parameters, in millions, of the adapted square matrices of all layers.

    Args:
        setting: Not used.
        method: ``lora`` with rank ``budget``, or ``loca`` with that many coefficients per matrix.
        width: Width of the model.
        layers: Number of its layers.
        budget: Rank or number of components.
        matrices: Adapted matrices per layer: query and value.
        counted: ``values`` alone, or ``values and locations``, one index per component.

    Source: the parameter columns of the tables of results.
    """
    del setting
    each = Budget(width, width, budget).numbers if method == "lora" else budget
    each *= 1 + (counted == "values and locations")
    return Measurement.exact(matrices * layers * each / 1e6)
