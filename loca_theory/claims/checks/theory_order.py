"""Theory beyond the paper: a proof of Theorem 1 for large matrices, and its small cases."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from loca_theory.claims.checks._extremes import least
from loca_theory.claims.estimates import Returned, Tier
from loca_theory.expressivity import Budget, exact_error
from loca_theory.expressivity.low_rank_exact import expected_leading_energy
from loca_theory.expressivity.ordering_proof import (
    LOWER_FROM,
    UPPER_FROM,
    failed_conditions,
    proven_gaps,
)


def proof(*, sizes: Sequence[int]) -> Returned:
    """The conditions of the proof that fail, and its smallest bound on a gap at some sizes.

    Args:
        sizes: Values of K; all ranks r < K/3 up to K = 300, and at larger K some 300 of them.

    Returns:
        The number of conditions that fail, and K times the smallest proven gap between neighbours
        in F1 > R > F2 > D, relative to K².
    """
    failed = failed_conditions()
    gaps = {}
    for size in sizes:
        top = (size - 1) // 3
        for r in range(1, top + 1, max(1, top // 300)):
            gaps[f"K = {size}, r = {r}"] = size * min(proven_gaps(size, r))
    gap, note = least(gaps, "Smallest bound at {at}.")
    found = {"conditions that fail": len(failed), "K times the smallest proven gap": gap}
    return found, f"{'; '.join(failed) or 'All conditions hold'}. {note}"


def small_sizes(*, tier: Tier, smallest: int = 5) -> Returned:
    """Smallest gap at the sizes that the proof leaves to computation, by exact expectations.

    Up to K = 29 these are all inequalities at all ranks. From 30 to 99 only F1 > R is left, and
    only at the largest rank, because S(r)/r falls with r.

    Args:
        tier: all K up to 12 at the quick tier, and up to 99 at the others.
        smallest: The smallest K.
    """
    largest = tier.scaled(12, LOWER_FROM - 1, LOWER_FROM - 1)
    gaps = {}
    for size in range(smallest, largest + 1):
        top = (size - 1) // 3
        low_rank = 1 - expected_leading_energy(size, size, top) / size**2
        for r in range(1, top + 1) if size < UPPER_FROM else (top,):
            budget = Budget(size, size, r)
            errors = [exact_error("F1", budget), float(low_rank[r])]
            if size < UPPER_FROM:
                errors += [exact_error("F2", budget), exact_error("D", budget)]
            gaps[f"K = {size}, r = {r}"] = min(a - b for a, b in pairwise(errors))
    return least(gaps, "{count} pairs; the smallest gap at {at}.")
