r"""Comparison of two fine-tunes of one base on one weight.

- *Cosine* of the two increments as vectors: of the task vectors.
- *Sign conflict*: proportion of the entries that both change to which they give opposite signs.
- *Overlap* of the leading singular vectors; see
  :mod:`loca_theory.checkpoints.statistics.subspaces`.

Source: G. Ilharco et al., Editing models with task arithmetic, ICLR 2023; P. Yadav et al.,
TIES-merging, NeurIPS 2023, for sign conflicts.
"""

from __future__ import annotations

import math

import torch

from loca_theory.checkpoints.names import kind_of, layer_of
from loca_theory.checkpoints.rows import Comparison
from loca_theory.checkpoints.statistics.subspaces import overlap
from loca_theory.increments.truncated_svd import truncated_svd
from loca_theory.transforms.inputs import balanced

_ROWS_AT_ONCE = 1024


def compare(
    name: str,
    labels: tuple[str, str],
    first: torch.Tensor,
    second: torch.Tensor,
    k: int | None = None,
) -> Comparison:
    """Compare two increments of one weight."""
    # The cosine and the signs do not depend on the scale of either increment.
    first, second = (balanced(one, "increment")[0] for one in (first, second))
    products, squares, others = [], [], []
    conflicts = changed = 0
    for mine, theirs in zip(first.split(_ROWS_AT_ONCE), second.split(_ROWS_AT_ONCE), strict=True):
        a, b = mine.double(), theirs.double()
        products.append(float((a * b).sum()))
        squares.append(float(a.square().sum()))
        others.append(float(b.square().sum()))
        signs = a.sign() * b.sign()
        conflicts += int((signs < 0).sum())
        changed += int((signs != 0).sum())
    norm = math.sqrt(math.fsum(squares)) * math.sqrt(math.fsum(others))
    left = right = None
    if k is not None:
        k = min(k, *first.shape)
        one, other = truncated_svd(first, k), truncated_svd(second, k)
        left, right = overlap(one.u, other.u), overlap(one.vh.mT, other.vh.mT)
    return Comparison(
        name=name,
        kind=kind_of(name),
        layer=layer_of(name),
        first=labels[0],
        second=labels[1],
        cosine=min(max(math.fsum(products) / norm, -1.0), 1.0),
        sign_conflict=conflicts / changed if changed else None,
        left_overlap=left,
        right_overlap=right,
    )
