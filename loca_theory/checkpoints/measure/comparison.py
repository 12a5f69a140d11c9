r"""Comparison of an increment with the weights that it changes, and of two increments.

- *Cosine* of two increments as vectors: of the task vectors.
- *Sign conflict*: proportion of the entries that both change to which they give opposite signs.
- *Alignment*: let the columns of :math:`U_Δ` and :math:`U_0` be the k leading left singular vectors
  of ΔW and W₀. The alignment :math:`‖U_0^⊤ U_Δ‖_F^2/k` is the mean squared cosine of the angles
  between the two spans: 1 if they are equal, and k/p in the mean if they are unrelated. The
  *overlap* of two increments is the same of their leading singular vectors.
- *Intruder dimensions*: those of the k leading left singular vectors of W′ = W₀ + ΔW whose cosine
  with every leading left singular vector of W₀ is below 0.5. The source compares with all singular
  vectors of W₀. Here the 4k leading ones count, so a vector of W′ that resembles a later one of W₀
  is counted as well.

Source: G. Ilharco et al., Editing models with task arithmetic, ICLR 2023; P. Yadav et al.,
TIES-merging, NeurIPS 2023, for sign conflicts; R. Shuttleworth et al., LoRA vs full fine-tuning: an
illusion of equivalence, arXiv 2410.21228, for intruders.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from loca_theory.increments.truncated_svd import truncated_svd
from loca_theory.transforms.inputs import balanced

_ROWS_AT_ONCE = 1024
_FEW_ROWS = 256
_THRESHOLD = 0.5
_COMPARED = 4  # singular vectors of W₀ per one of W′


def compare(
    first: torch.Tensor, second: torch.Tensor, k: int | None = None
) -> dict[str, float | None]:
    """Columns of a row on two increments of one weight, and on k of their singular vectors."""
    # The cosine and the signs do not depend on the scale of either increment.
    first, second = (balanced(one, "increment")[0] for one in (first, second))
    pieces = list(zip(first.split(_ROWS_AT_ONCE), second.split(_ROWS_AT_ONCE), strict=True))
    conflicts = changed = 0
    for mine, theirs in pieces:
        signs = mine.sign() * theirs.sign()
        conflicts += int((signs < 0).sum())
        changed += int((signs != 0).sum())
    left = right = None
    if k is not None:
        k = min(k, *first.shape)
        one, other = truncated_svd(first, k), truncated_svd(second, k)
        left, right = overlap(one.u, other.u), overlap(one.vh.mT, other.vh.mT)
    return {
        "cosine": _norm_and_cosine((a.double(), b.double()) for a, b in pieces)[1] or 0.0,
        "sign_conflict": conflicts / changed if changed else None,
        "left_overlap": left,
        "right_overlap": right,
    }


def norm_and_cosine(
    weights: torch.Tensor, change: torch.Tensor
) -> tuple[float | None, float | None]:
    """Frobenius norm of W₀, and the cosine between W₀ and W′ = W₀ + ΔW; None if undefined."""
    largest = _largest(weights)
    if not math.isfinite(largest) or not largest:
        return largest if largest == 0 else None, None
    scale = max(largest, _largest(change))
    pieces = zip(weights.split(_FEW_ROWS), change.split(_FEW_ROWS), strict=True)
    norm, cosine = _norm_and_cosine(
        (rows.double() / largest, (changes.double() / scale).add_(rows.double() / scale))
        for rows, changes in pieces
    )
    return largest * norm, cosine


def _norm_and_cosine(
    pieces: Iterable[tuple[torch.Tensor, torch.Tensor]],
) -> tuple[float, float | None]:
    """Norm of the first of two matrices, and their cosine, from pieces of both.

    In pieces, so that no temporary tensor is as large as they are.
    """
    sums = [
        (float(a.square().sum()), float(b.square().sum()), float((a * b).sum())) for a, b in pieces
    ]
    squares, others, products = map(math.fsum, zip(*sums, strict=True))
    norms = math.sqrt(squares) * math.sqrt(others)
    return math.sqrt(squares), min(max(products / norms, -1.0), 1.0) if norms else None


def _largest(matrix: torch.Tensor) -> float:
    """Largest magnitude of the entries; not finite if one of them is not."""
    return max(abs(float(end)) for end in matrix.aminmax())


def compare_subspaces(
    increment: torch.Tensor, weights: torch.Tensor, k: int
) -> dict[str, float | int]:
    """Columns of a row on the k leading singular vectors of ΔW and W′, and those of W₀."""
    k = min(k, *increment.shape)
    change = truncated_svd(increment, k)
    before = truncated_svd(weights, min(_COMPARED * k, *weights.shape))
    after = truncated_svd(weights + increment.to(weights.dtype), k)
    closest = (before.u.mT @ after.u).abs().amax(dim=0)
    return {
        "left_alignment": overlap(before.u[:, :k], change.u),
        "right_alignment": overlap(before.vh[:k].mT, change.vh.mT),
        "intruders": int((closest < _THRESHOLD).sum()),
        "subspace_error": max(found.missing for found in (change, before, after)),
    }


def overlap(first: torch.Tensor, second: torch.Tensor) -> float:
    """Mean squared cosine between the spans of two matrices with k orthonormal columns each."""
    cosines = (first.mT @ second.to(first.dtype)).double()
    return min(float(cosines.square().sum()) / first.shape[1], 1.0)
