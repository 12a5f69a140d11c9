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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from loca_theory.checkpoints.weights.checkpoint import DamagedError, Entry, LeftOutError

# Between these bounds, products of single-precision entries and their sums stay normal numbers.
_LEAST, _MOST = 2.0**-64, 2.0**64
_MATRIX_DIMENSIONS, _STACK_DIMENSIONS = 2, 3
_PAIRS = (("lora_A.weight", "lora_B.weight"), ("lora_embedding_A", "lora_embedding_B"))


@dataclass(frozen=True)
class Factors:
    """Shapes of the two factors of one layer, as the file holds them.

    Attributes:
        a: (r, q), (r, n) of an embedding, or (r, channels, …) of a convolution.
        b: (p, r), (d, r) of an embedding, or (p, r, 1, …) of a convolution.
        is_embedding: Whether the layer is an embedding.
    """

    a: tuple[int, ...]
    b: tuple[int, ...]
    is_embedding: bool

    @property
    def names(self) -> tuple[str, str]:
        """What A and B are called in the file."""
        return _PAIRS[self.is_embedding]

    @classmethod
    def of(cls, tensors: Mapping[str, Entry]) -> Factors:
        """Shapes of the factors among a layer's tensors."""
        pair = next((one for one in _PAIRS if tensors.keys() >= set(one)), None)
        if pair is None:
            raise LeftOutError("only one of the two factors is in the file", damaged=True)  # noqa: EM101
        a, b = (tensors[name].shape for name in pair)
        if min(len(a), len(b)) < _MATRIX_DIMENSIONS or a[0] != b[1] or not math.prod(a + b):
            msg = f"the factors {b} and {a} do not fit together"
            raise LeftOutError(msg, damaged=True)
        if len(a) != len(b) or math.prod(b[2:]) != 1:
            msg = f"the factors {b} and {a} are not those of a linear layer or a convolution"
            raise LeftOutError(msg, damaged=True)
        return cls(a, b, is_embedding=pair == _PAIRS[1])

    @property
    def rank(self) -> int:
        """r, or rE for E experts."""
        return self.a[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of BA, or of (BA)ᵀ of an embedding."""
        p = self.b[0]
        return (self.a[1], p) if self.is_embedding else (p, *self.a[1:])

    def fits_parameter(self, weight: Entry) -> bool:
        """Whether the increment can belong to a parameter that PEFT targets by its own name."""
        shape = weight.shape
        if len(shape) != _STACK_DIMENSIONS:
            return shape == self.shape
        return shape[1:] in (self.shape, self.shape[::-1]) and self.rank % shape[0] == 0


def lora_rank(config: Mapping[str, Any], module: str) -> int:
    """Rank r of one layer."""
    rank = _of_layer(config, "rank_pattern", module, config.get("r", 8))  # PEFT's default
    if not isinstance(rank, int) or rank < 1:
        raise DamagedError("adapter_config.json has no positive integer for r")  # noqa: EM101
    return rank


def lora_scale(config: Mapping[str, Any], module: str) -> float:
    """Factor s of one layer."""
    rank = lora_rank(config, module)
    alpha = _of_layer(config, "alpha_pattern", module, config.get("lora_alpha", 8))
    if not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise DamagedError("adapter_config.json has no number for lora_alpha")  # noqa: EM101
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _of_layer(config: Mapping[str, Any], key: str, module: str, default: Any) -> Any:
    """What a pattern of the configuration sets for one layer."""
    patterns = config.get(key)
    for pattern, value in (patterns if isinstance(patterns, dict) else {}).items():
        # PEFT's rule: a pattern matches the whole name, or its end after a dot.
        try:
            matches = re.match(rf"(.*\.)?({pattern})$", module)
        except re.error as error:
            msg = f"adapter_config.json: {pattern!r} in {key} is not a regular expression"
            raise DamagedError(msg) from error
        if matches:
            return value
    return default


def lora_increment(
    tensors: Mapping[str, torch.Tensor],
    scale: float,
    *,
    is_transposed: bool = False,
    experts: int | None = None,
    expert: int | None = None,
) -> torch.Tensor:
    """s·BA in float32, or in float64 if a product of two entries could leave float32's range."""
    names = next(pair for pair in _PAIRS if pair[0] in tensors)
    stored = (tensors[name] for name in names)
    a, b = (one if one.dtype == torch.float64 else one.float() for one in stored)
    largest = abs(scale) * float(a.double().abs().max()) * float(b.double().abs().max())
    if largest and not _LEAST < largest < _MOST:
        a, b = a.double(), b.double()
    if experts is not None:
        a = a.reshape(experts, -1, a.shape[1])
        b = b.reshape(b.shape[0], -1, experts).permute(2, 0, 1)
        if expert is not None:
            a, b = a[expert], b[expert]
        increment = scale * (b @ a)
    elif a.ndim > _MATRIX_DIMENSIONS:
        increment = scale * (b.flatten(1) @ a.flatten(1)).reshape(b.shape[0], *a.shape[1:])
    else:
        increment = scale * (b @ a)
    turned = is_transposed or names == _PAIRS[1]
    return increment.mT.contiguous() if turned else increment
