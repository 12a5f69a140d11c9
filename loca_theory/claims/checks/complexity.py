"""Costs: operations for the forms of ΔW, and numbers of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.flop_counter import FlopCounterMode

from loca_theory.claims import printed
from loca_theory.claims.estimates import Named, Returned, extreme, listed
from loca_theory.expressivity import Budget

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
}
# Width of the adapted matrices and number of components of the paper's main experiments.
_ADAPTED = {
    "RoBERTa-base": (768, 1000),
    "RoBERTa-large": (1024, 1000),
    "GPT-2 medium": (1024, 1000),
    "GPT-2 large": (1280, 1000),
    "ViT-base, 72K": (768, 3000),
    "ViT-base, 239K": (768, 10_000),
    "ViT-large, 144K": (1024, 3000),
    "ViT-large, 480K": (1024, 10_000),
    "LLaMA-7b": (4096, 150_000),
    "LLaMA-13b": (5120, 150_000),
}
# Width and layers of the models of the table complexity; query and value are adapted.
_COST_SHAPES = {"RoBERTa-base": (768, 12), "LLaMA-1-7b": (4096, 32), "ViT-base": (768, 12)}


def growth(*, form: str, order: str) -> Returned:
    """Growth of the operations when a size is doubled, relative to the growth of the order.

    There is one estimate per size: of three shapes, the one whose growth is furthest from that of
    the order. Torch counts the operations of the matrix products that form ΔW.

    Args:
        form: ``sparse``, Σ a c dᵀ as one product of p×B and B×q; ``dense``, Cᵀ S D; or ``four
            indices``, the sum over all of S for every entry of ΔW.
        order: ``B pq``, ``B log pq``, ``p²q²``, ``pq (p + q)`` or ``pq log pq``.
    """

    def relative(start: _Numbers, name: str) -> float:
        doubled = {**start, name: 2 * start[name]}
        expected = _ORDERS[order](doubled) / _ORDERS[order](start)
        return _operations(form, **doubled) / _operations(form, **start) / expected

    def from_one(ratio: float) -> float:
        return abs(math.log(ratio))

    return {
        f"{name} doubled": max((relative(start, name) for start in _STARTS), key=from_one)
        for name in _STARTS[0]
    }


def _operations(form: str, *, p: int, q: int, B: int = 1, r: int = 1) -> int:
    """Operations of a form of ΔW.

    Torch counts those of matrix products; the multiplications of the fast transforms of columns and
    rows are counted while they run (:func:`fast_cosine`).
    """
    if form == "fast":
        columns, rows = (fast_cosine(np.zeros(n))[1] for n in (p, q))
        return q * columns + p * rows
    shapes = {
        "sparse": [(p, B), (B, q)],
        "dense": [(p, p), (p, q), (q, q)],
        "four indices": [(p * q, p * q), (p * q, 1)],  # (C ⊗ D)ᵀ vec S
        "low rank": [(p, r), (r, q)],
    }
    with FlopCounterMode(display=False) as counter:
        # Tensors without entries: operations are counted from shapes alone.
        reduce(torch.matmul, [torch.empty(shape, device="meta") for shape in shapes[form]])
    return counter.get_total_flops()


def sparse_to_dense(*, models: Sequence[str] = (), dense: str = "dense") -> Returned:
    """Operations of the sparse form over those of the dense form, the largest of several models.

    Args:
        models: Models of the paper, with the number of components; all if empty.
        dense: ``dense``, two matrix products, or ``four indices``, as for :func:`growth`.
    """
    ratios = {}
    for name in models or _ADAPTED:
        width, components = _ADAPTED[name]
        sparse = _operations("sparse", p=width, q=width, B=components)
        ratios[name] = sparse / _operations(dense, p=width, q=width)
    return max(ratios.values()), listed(ratios, ".3g")


def low_rank_to_fast(*, below: str = "ln pq") -> Returned:
    """Multiplications of BA over those of the fast transforms, at the largest r below a bound.

    Args:
        below: The bound on r: ``ln pq``, or ``half log2 pq``.
    """
    ratios = {}
    for width in (1024, 4096):
        bound = math.log(width**2) if below == "ln pq" else math.log2(width**2) / 2
        r = math.ceil(bound) - 1
        # Torch counts an addition with each multiplication.
        multiplications = _operations("low rank", p=width, q=width, r=r) / 2
        fast = _operations("fast", p=width, q=width)
        ratios[f"p = q = {width}, r = {r}"] = multiplications / fast
    return extreme(max, ratios, "Largest at {at}.")


def location_gradients(*, is_shared: bool = True) -> Returned:
    """Operations of all location gradients over those of Z, the largest of all models.

    Z = D (∂L/∂ΔW)ᵀ Cᵀ, two matrix products, has the gradients of the coefficients as entries. The
    location gradients are α a (Z[l² , l¹ + 1] − Z[l², l¹ − 1])/2 and the same along l².

    Args:
        is_shared: Whether all gradients are taken from one Z; if not, each component forms its own.
    """
    ratios = {}
    for name, (width, components) in _ADAPTED.items():
        products = _operations("dense", p=width, q=width)
        # a/2 once, and a difference and a product along each of the two axes.
        of_gradients = (1 + 2 * 2) * components
        extra = 0 if is_shared else components * products
        ratios[name] = (of_gradients + extra) / products
    return extreme(max, ratios, "Largest for {at}.")


def transform_memory(*, of: str, copies: str = "one") -> Named:
    """Memory of the DCT matrices C and D in float32, for each model of the table complexity.

    The adapted matrices are square, so that C = D.

    Args:
        of: ``all``, in MiB, or ``the run``, as a fraction of the printed memory of LoCA³.
        copies: ``one``, or ``each`` adapted matrix its own.
    """
    for name, (width, layers) in _COST_SHAPES.items():
        run = printed.costs("memory", "LoCA-3")["LoCA-3"][name]
        size = 4 * width**2 * (2 * layers if copies == "each" else 1)
        yield name, size / 2**20 if of == "all" else size / (run * 1e6)


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
    cosine = np.stack([even, odd + np.append(odd[1:], 0.0)], axis=1).ravel()
    return cosine, first + second + n // 2


def parameters(
    *, method: str, width: int, layers: int, budget: int, matrices: int = 2, counted: str = "values"
) -> Returned:
    """Trainable parameters, in millions, of the adapted square matrices of all layers.

    Args:
        method: ``lora`` with rank ``budget``, ``dora``, which adds a magnitude per column, or
            ``loca`` with that many coefficients per matrix.
        width: Width of the model.
        layers: Number of its layers.
        budget: Rank or number of components.
        matrices: Adapted matrices per layer: query and value.
        counted: ``values`` alone, or ``values and locations``, one index per component.
    """
    count = budget if method == "loca" else Budget(width, width, budget).numbers
    count += width * (method == "dora")
    count *= 1 + (counted == "values and locations")
    return matrices * layers * count / 1e6
