r"""The increments of LoRA: s·BA.

The factor s is α/r, or α/√r for rank-stabilised adapters; ``rank_pattern`` and ``alpha_pattern``
set r and α for single layers. An embedding stores its factors as A (r×n) and B (d×r), and its
increment is s(BA)ᵀ. For E experts in one tensor, A is rE×q and B is p×rE: expert e changes by
s·BₑAₑ with Aₑ the rows er, …, er + r − 1 of A and Bₑ the columns e, e + E, …, e + (r − 1)E of B.

Source: E. J. Hu et al., LoRA (2022); D. Kalajdzievski, arXiv 2312.03732, for √r; PEFT 0.21,
``tuners/lora/layer.py``, for the layouts.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from loca_theory.checkpoints.change.adapter.kinds import by_peft
from loca_theory.checkpoints.change.adapter.layers import AdaptedLayer
from loca_theory.checkpoints.source.checkpoint import (
    Checkpoint,
    DamagedError,
    LeftOutError,
    TensorEntry,
    any_error_as,
)

# Between these bounds, products of single-precision entries and their sums stay normal numbers.
_LEAST, _MOST = 2.0**-64, 2.0**64
_LAYER = ("lora_A.weight", "lora_B.weight")
EMBEDDING = ("lora_embedding_A", "lora_embedding_B")
"""What A and B of an embedding are called in the file."""

# Tensors that matter only in training.
_TRAINING_ONLY = ("lora_velora", "lora_monteclora")


def product_of(
    tensors: Mapping[str, TensorEntry], config: Mapping[str, Any]
) -> tuple[tuple[int, ...], int]:
    """Shape of BA, or of (BA)ᵀ of an embedding, and its rank: r, or rE for E experts."""
    names = next((pair for pair in (_LAYER, EMBEDDING) if tensors.keys() >= set(pair)), None)
    if names is None:
        held = f"the file has {', '.join(tensors)}"
        raise LeftOutError("PEFT finds no product of two factors", held, damaged=True)
    # (r, q), (r, n) of an embedding, or (r, channels, …); (p, r), (d, r), or (p, r, 1, …).
    a, b = (tensors[name].shape for name in names)
    is_product = len(a) == len(b) > 1 and a[0] == b[1] and math.prod(a + b) > 0
    if not is_product or math.prod(b[2:]) != 1:
        raise LeftOutError("the factors do not fit together", f"{b} and {a}", damaged=True)
    for part in () if by_peft(config) else tensors.keys() - set(names):
        if not part.endswith(".bias") and not part.startswith(_TRAINING_ONLY):
            case = "the configuration has no option for a tensor of the file"
            raise LeftOutError(case, part, damaged=True)
    shape = (a[1], b[0]) if names == EMBEDDING else (b[0], *a[1:])
    return shape, a[0]


def lora_rank(config: Mapping[str, Any], module: str) -> int:
    """Rank r of one layer."""
    ranks = (rank for _, rank in fitting_patterns(config, "rank_pattern", module))
    rank = next(ranks, config.get("r", 8))  # PEFT's default
    if not isinstance(rank, int) or rank < 1:
        raise DamagedError("adapter_config.json has no positive integer for r")
    return rank


def _scale(config: Mapping[str, Any], module: str) -> float:
    """Factor s of one layer."""
    rank = lora_rank(config, module)
    alphas = (alpha for _, alpha in fitting_patterns(config, "alpha_pattern", module))
    alpha = next(alphas, config.get("lora_alpha", 8))
    if not isinstance(alpha, int | float) or not abs(alpha) <= sys.float_info.max:
        raise DamagedError("adapter_config.json has no number for lora_alpha")
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def fitting_patterns(config: Mapping[str, Any], key: str, module: str) -> Iterator[tuple[int, Any]]:
    """What patterns of a configuration set for a layer, with the lengths of the ends they fit."""
    patterns = config.get(key)
    for pattern, value in (patterns if isinstance(patterns, dict) else {}).items():
        # PEFT's rule: a pattern matches the whole name, or its end after a dot.
        failure = f"adapter_config.json: {pattern!r} in {key} is not a regular expression"
        with any_error_as(DamagedError, failure):
            match = re.match(rf"(.*\.)?({pattern})$", module)
        if match:
            yield len(match[2]), value


def _factors(
    layer: AdaptedLayer, source: Checkpoint, config: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor, float, bool]:
    """A, B and s of a layer, and whether its increment is s(BA)ᵀ."""
    names = _LAYER if _LAYER[0] in layer.keys else EMBEDDING
    a, b = (source.load(layer.keys[name]) for name in names)
    scale = _scale(config, layer.module)
    return a, b, scale, layer.is_transposed or names == EMBEDDING


def lora_factors(
    layer: AdaptedLayer, source: Checkpoint, config: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two factors in float64 of which s·BA, as a matrix in the base's orientation, is the product.

    The layer is not of several experts.
    """
    a, b, scale, is_turned = _factors(layer, source, config)
    a, b = a.double().flatten(1), scale * b.double().flatten(1)
    return (a.mT, b.mT) if is_turned else (b, a)


def lora_increment(
    layer: AdaptedLayer, source: Checkpoint, config: Mapping[str, Any], expert: int | None
) -> torch.Tensor:
    """s·BA of a layer or one expert; in float64 if a product could leave float32's range."""
    *stored, scale, is_turned = _factors(layer, source, config)
    a, b = (factor if factor.dtype == torch.float64 else factor.float() for factor in stored)
    largest = abs(scale) * float(a.double().abs().max()) * float(b.double().abs().max())
    if largest and not _LEAST < largest < _MOST:
        a, b = a.double(), b.double()
    if layer.experts is not None:
        a = a.reshape(layer.experts, -1, a.shape[1])
        b = b.reshape(b.shape[0], -1, layer.experts).permute(2, 0, 1)
        a, b = (a, b) if expert is None else (a[expert], b[expert])
        increment = (scale * b) @ a
    else:
        shape = (b.shape[0], *a.shape[1:])
        increment = ((scale * b.flatten(1)) @ a.flatten(1)).reshape(shape)
    return increment.mT.contiguous() if is_turned else increment
