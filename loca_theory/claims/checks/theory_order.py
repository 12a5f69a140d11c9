"""Theory beyond the paper: a proof of Theorem 1 for large matrices, and its small cases."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from loca_theory.claims.measurement import Estimate, Measurement, Setting
from loca_theory.expressivity import Budget, exact_error
from loca_theory.expressivity.low_rank_exact import expected_leading_energy
from loca_theory.expressivity.ordering_proof import (
    LOWER_FROM,
    UPPER_FROM,
    failed_conditions,
    proven_gaps,
)


def proof(setting: Setting, *, sizes: Sequence[int]) -> Measurement:
    """The conditions of the proof that fail, and its smallest bound on a gap at some sizes.

    Args:
        setting: Not used.
        sizes: Values of K; all ranks r < K/3 up to K = 300, and at larger K some 300 of them.

    Returns:
        The number of conditions that fail, and K times the smallest proven gap between neighbours
        in F1 > R > F2 > D, relative to K².
    """
    del setting
    failed = failed_conditions()
    gaps = {}
    for size in sizes:
        top = (size - 1) // 3
        for r in range(1, top + 1, max(1, top // 300)):
            gaps[size, r] = size * min(proven_gaps(size, r))
    size, r = min(gaps, key=lambda key: gaps[key])
    note = f"{'; '.join(failed) or 'All conditions hold'}. Smallest bound at K = {size}, r = {r}."
    return Measurement.of(
        [
            Estimate("conditions that fail", float(len(failed))),
            Estimate("K times the smallest proven gap", gaps[size, r]),
        ],
        note,
    )


def small_sizes(setting: Setting, *, smallest: int = 5) -> Measurement:
    """Smallest gap at the sizes that the proof leaves to computation, by exact expectations.

    Up to K = 29 these are all inequalities at all ranks. From 30 to 99 only F1 > R is left, and
    only at the largest rank, because S(r)/r falls with r.

    Args:
        setting: Tier: all K up to 12 at the quick tier, and up to 99 at the others.
        smallest: The smallest K.
    """
    largest = setting.scaled(12, LOWER_FROM - 1, LOWER_FROM - 1)
    gaps = {}
    for size in range(smallest, largest + 1):
        top = (size - 1) // 3
        low_rank = 1 - expected_leading_energy(size, size, top) / size**2
        for r in range(1, top + 1) if size < UPPER_FROM else (top,):
            budget = Budget(size, size, r)
            errors = [exact_error("F1", budget), float(low_rank[r])]
            if size < UPPER_FROM:
                errors += [exact_error("F2", budget), exact_error("D", budget)]
            gaps[size, r] = min(a - b for a, b in pairwise(errors))
    size, r = min(gaps, key=lambda key: gaps[key])
    return Measurement.exact(
        gaps[size, r], f"{len(gaps)} pairs; the smallest gap at K = {size}, r = {r}."
    )
