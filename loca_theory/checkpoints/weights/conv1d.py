"""Weights that GPT-2 and its relatives store transposed, in layers of the class ``Conv1D``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loca_theory.checkpoints.weights.checkpoint import Checkpoint

_NAMES = re.compile(r"(^|\.)(c_attn|q_attn|c_proj|c_fc)\.weight$")
_FUSED = re.compile(r"(^|\.)c_attn\.weight$")


def has_conv1d_name(name: str) -> bool:
    """Whether GPT-2 and its relatives store the weight of this name transposed.

    Other models give the same names to weights that they store as usual.
    """
    return bool(_NAMES.search(name))


def has_fused_attention(base: Checkpoint) -> bool:
    """Whether a base has the weights that :func:`stores_transposed` looks at."""
    return any(_FUSED.search(name) for name in base.entries)


def stores_transposed(base: Checkpoint) -> bool:
    """Whether the fused query, key and value weights are d×3d, as ``Conv1D`` stores them."""
    shapes = [entry.shape for name, entry in base.entries.items() if _FUSED.search(name)]
    return any(len(shape) == 2 and shape[1] > shape[0] for shape in shapes)
