"""Which tensors of two checkpoints belong together, and how a tensor stores matrices.

- A tensor of two dimensions is a matrix. GPT-2 and its relatives store some transposed, in layers
  of the class ``Conv1D``.
- A tensor of three dimensions with ``expert`` or ``moe`` in its name holds the weights of the
  experts of one layer, along its first dimension. Each expert is a matrix, ``NAME[0]``,
  ``NAME[1]``, …; or all are stacked into one matrix of as many columns. Its rows are those that
  are stored: models such as Llama 4 and GPT-OSS store the transposes.
- Any other tensor of three to five dimensions is a convolution kernel of shape (outputs, inputs,
  …). It is flattened to a matrix with one row for each output, as mergekit and kohya's scripts do.
"""

from __future__ import annotations

import math
import re
from typing import Literal

from loca_theory.checkpoints.source.checkpoint import Checkpoint

Experts = Literal["each", "stacked"]
EXPERT_LAYOUTS: dict[str, Experts] = {"each": "each", "stacked": "stacked"}
"""The two interpretations of a tensor with the weights of several experts."""

_EXPERTS = re.compile(r"expert|(?<![a-z])moe(?![a-z])", re.IGNORECASE)
LARGEST_KERNEL = 5
"""Most dimensions of a tensor that holds a matrix, or several."""

_CONV1D = re.compile(r"(^|\.)(c_attn|q_attn|c_proj|c_fc)\.weight$")
_FUSED = re.compile(r"(^|\.)c_attn\.weight$")


# Modules of language models that share one weight, in the order in which to look for the other.
_EMBEDDINGS = (
    *("shared", "embed_tokens", "wte", "word_embeddings"),
    *("embeddings", "tok_embeddings", "embed_in", "emb"),
)
_HEAD = "lm_head"
_TIED = {_HEAD: _EMBEDDINGS, **dict.fromkeys(_EMBEDDINGS, (_HEAD,))}
_OTHER_HEADS = ("score", "classifier")
_MODULE = re.compile(r"(?:^|\.)(\w+)\.weight$")


def holds_experts(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor holds the weights of several experts along its first dimension."""
    return len(shape) == 3 and bool(_EXPERTS.search(name))


def matrix_shape(name: str, shape: tuple[int, ...], experts: Experts) -> tuple[int, int]:
    """Numbers of rows and columns of the matrices in a tensor."""
    if not holds_experts(name, shape):
        return shape[0], math.prod(shape[1:])
    return (shape[1] if experts == "each" else shape[0] * shape[1]), shape[2]


def has_conv1d_name(name: str) -> bool:
    """Whether GPT-2 and its relatives store the weight of this name transposed.

    Other models give the same names to weights that they store as usual.
    """
    return bool(_CONV1D.search(name))


def stores_transposed(base: Checkpoint) -> bool | None:
    """Whether the fused query, key and value weights are d×3d, as ``Conv1D`` stores them.

    None if the base has no such weights.
    """
    shapes = [entry.shape for name, entry in base.entries.items() if _FUSED.search(name)]
    return any(len(shape) == 2 and shape[1] > shape[0] for shape in shapes) if shapes else None


def by(shape: tuple[int, ...]) -> str:
    """A shape in words, such as ``64x48``."""
    return "x".join(map(str, shape))


def resized(was: tuple[int, ...], now: tuple[int, ...]) -> str:
    """The reason for a weight that has another shape than that of the base."""
    return f"resized from {by(was)} to {by(now)}"


def tied_weight(
    name: str, shape: tuple[int, ...], other: Checkpoint, own: Checkpoint | None = None
) -> str | None:
    """The weight of another checkpoint that serves there as the output head or input embedding.

    Many models tie the two, and their files hold only one of them. It is the only embedding, or
    head, of as many columns there; None if there is none or there are several, if a configuration
    says that they are not tied, or if the other checkpoint has another head or none. For an
    embedding there is none either if the other checkpoint has an embedding of another name, or if
    the checkpoint that the embedding is of has a head of its own.
    """
    module = _module(name)
    if len(shape) != 2 or module not in _TIED or not _may_be_tied(other):
        return None
    if own is not None and _ties(own) is False:
        return None
    if module in _EMBEDDINGS:
        held = {_module(tensor) for tensor in other.entries}
        if held & set(_EMBEDDINGS) or (own and _HEAD in map(_module, own.entries)):
            return None
    for partner in _TIED.get(module, ()):
        candidates = [
            tensor
            for tensor, entry in other.entries.items()
            if _module(tensor) == partner and len(entry.shape) == 2 and entry.shape[1] == shape[1]
        ]
        if candidates:
            return candidates[0] if len(candidates) == 1 else None
    return None


def _module(name: str) -> str:
    match = _MODULE.search(name)
    return match[1] if match else ""


def _ties(checkpoint: Checkpoint) -> object:
    """Whether the configuration ties head and embedding; None if it does not say."""
    text = checkpoint.config.get("text_config")
    inner = text.get("tie_word_embeddings") if isinstance(text, dict) else None
    return checkpoint.config.get("tie_word_embeddings", inner)


def _may_be_tied(checkpoint: Checkpoint) -> bool:
    if _ties(checkpoint) is False:
        return False
    if any(_module(name) in _OTHER_HEADS for name in checkpoint.entries):
        return False
    classes = checkpoint.config.get("architectures")
    if not isinstance(classes, list) or not classes:
        return True
    return any(re.search("LM|Generation", str(kind)) for kind in classes)
