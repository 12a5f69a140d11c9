"""Kind and layer of a weight, from its name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

# The first match counts. The patterns cover BERT, RoBERTa, DistilBERT, GPT-2, OPT, Llama, T5 and
# ViT models, mixtures of experts, and diffusion models.
_KINDS = (
    ("embedding", r"embed|\bwte\b|\bwpe\b|lm_head|\bshared\b"),
    ("MLP out", r"DenseReluDense\.wo\b|dense_4h_to_h"),
    ("query, key, value", r"c_attn|qkv|query_key_value|in_proj"),
    ("query", r"query|q_proj|q_lin\b|to_q\b|\bq\b|\bwq\b"),
    ("key", r"\bkey\b|k_proj|k_lin\b|to_k\b|\bk\b|\bwk\b"),
    ("value", r"\bvalue\b|v_proj|v_lin\b|to_v\b|\bv\b|\bwv\b"),
    ("attention output", r"o_proj|out_proj|out_lin|to_out\b|attention\.(output|dense)"),
    ("attention output", r"attn\.(c_)?proj|\b[Ww]?o\b"),
    ("MLP in", r"intermediate|gate_proj|up_proj|gate_up|\bfc1\b|c_fc|lin1"),
    ("MLP in", r"\b[Ww]i|\bw1\b|\bw3\b|h_to_4h"),
    ("MLP out", r"output\.dense|down_proj|\bfc2\b|mlp\.c_proj|lin2|\bw2\b"),
    ("pooler or head", r"pooler|classifier|score|\bcls\b"),
    ("router", r"\brouter\b|\bgate\b"),
    ("convolution", r"\bconv|downsample"),
)
_PATTERNS = tuple((kind, re.compile(pattern)) for kind, pattern in _KINDS)


def kind_of(name: str, group: str | None = None) -> str:
    r"""``query``, ``value``, ``MLP in``, …; ``other`` if no pattern matches the name.

    If the name contains a match of the expression ``group``, the kind is its first group, or the
    whole match.

    >>> kind_of("ensemble.3.H.2.weight", r"\.([A-Z])\.")
    'H'
    """
    if group is not None and (found := re.search(group, name)):
        return next(filter(None, found.groups()), found[0])
    return next((kind for kind, pattern in _PATTERNS if pattern.search(name)), "other")


def middle_of_each_kind(rows: Iterable[Any], group: str | None = None) -> list[Any]:
    """Of the rows (or cells) of each fine-tune and kind of weight, the one in the middle layer."""
    kinds: dict[tuple[Any, str], list[Any]] = {}
    for one in sorted(rows, key=lambda r: (layer_of(r.name) is not None, layer_of(r.name) or 0)):
        kinds.setdefault((one.tuned, kind_of(one.name, group)), []).append(one)
    return [mine[len(mine) // 2] for mine in kinds.values()]


def layer_of(name: str) -> int | None:
    """Number of the layer: the first number among the dotted parts of the name."""
    # Tables store it in 64 bits.
    numbers = (one for one in name.split(".") if one.isdecimal() and len(one) < 19)
    return next(map(int, numbers), None)
