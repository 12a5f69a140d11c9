r"""Leading singular vectors of an increment and of the weights that it changes.

- *Alignment*: let the columns of :math:`U_Δ` and :math:`U_0` be the k leading left singular vectors
  of ΔW and W₀. The alignment :math:`‖U_0^⊤ U_Δ‖_F^2/k` is the mean squared cosine of the angles
  between the two spans: 1 if they are equal, and k/p in the mean if they are unrelated.
- *Intruder dimensions*: those of the k leading left singular vectors of W′ = W₀ + ΔW whose cosine
  with every leading left singular vector of W₀ is below 0.5. The source compares with all singular
  vectors of W₀. Here the 4k leading ones count, so a vector of W′ that resembles a later one of W₀
  is counted as well.

Source: R. Shuttleworth et al., LoRA vs full fine-tuning: an illusion of equivalence, arXiv
2410.21228.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from loca_theory.increments.truncated_svd import truncated_svd

_THRESHOLD = 0.5
_COMPARED = 4  # singular vectors of W₀ per one of W′


@dataclass(frozen=True)
class Subspaces:
    """Comparison of the leading singular vectors of ΔW, W₀ and W′.

    Attributes:
        left: Alignment of left singular vectors.
        right: Alignment of right singular vectors.
        intruders: Number of intruder dimensions.
        error: Estimate of the energy that each computed span misses, as a fraction of the energy of
            its matrix: the largest of the three.
    """

    left: float | None
    right: float | None
    intruders: int | None
    error: float | None


NOT_COMPARED = Subspaces(None, None, None, None)


def compare_subspaces(increment: torch.Tensor, weights: torch.Tensor, k: int) -> Subspaces:
    """Compare the k leading singular vectors of ΔW and W′ with those of W₀.

    Args:
        increment: ΔW, shape (p, q); not all 0.
        weights: W₀, of the same shape; finite, not all 0.
        k: Number of singular vectors; at most min(p, q) are used.
    """
    k = min(k, *increment.shape)
    change = truncated_svd(increment, k)
    before = truncated_svd(weights, min(_COMPARED * k, *weights.shape))
    after = truncated_svd(weights + increment.to(weights.dtype), k)
    closest = (before.u.mT @ after.u).abs().amax(dim=0)
    return Subspaces(
        left=overlap(before.u[:, :k], change.u),
        right=overlap(before.vh[:k].mT, change.vh.mT),
        intruders=int((closest < _THRESHOLD).sum()),
        error=max(found.missing for found in (change, before, after)),
    )


def overlap(first: torch.Tensor, second: torch.Tensor) -> float:
    """Mean squared cosine between the spans of two matrices with k orthonormal columns each."""
    cosines = (first.mT @ second.to(first.dtype)).double()
    return min(float(cosines.square().sum()) / first.shape[1], 1.0)
