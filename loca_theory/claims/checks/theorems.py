"""Theorems 1 and 2: the ordering of the errors, where it holds, and its proof."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from sympy import Rational

from loca_theory.claims.estimates import Returned, Tier, extreme
from loca_theory.expressivity import METHODS, Accounting, Budget, exact_error
from loca_theory.expressivity.laws.order_statistics import expected_location_sum
from loca_theory.expressivity.limits import limit_crossings
from loca_theory.expressivity.methods.names import known_name
from loca_theory.expressivity.methods.registry import find_method
from loca_theory.expressivity.theorem1.bounds import LOWER_FROM, UPPER, UPPER_FROM, proven_gaps
from loca_theory.expressivity.theorem1.conditions import failed_conditions
from loca_theory.expressivity.theorem1.ordering import THEOREM_1_ORDER

# A budget of the limit K → ∞, and the r/K from which it is followed.
_LARGE, _SMALL_RATIO = 10**6, 1e-3
_PAIRS = {
    "first": [("random Fourier", "LoRA")],
    "second": [("LoRA", "Fourier pairs")],
    "third": [("Fourier pairs", "LoCA")],
    "all": [("random Fourier", "LoRA"), ("LoRA", "Fourier pairs"), ("Fourier pairs", "LoCA")],
    # The figures show the line U for the method F1, and the bounds M1 and M2 for the method F2.
    "plotted": [
        ("printed line", "LoRA"),
        ("LoRA", "upper bound"),
        ("upper bound", "lower bound"),
        ("lower bound", "LoCA"),
    ],
}


def order(
    *,
    sizes: Sequence[int] = (),
    shapes: Sequence[Sequence[int]] = (),
    ranks: Sequence[int] = (),
    fractions: Sequence[float] = (),
    inequality: str = "all",
    accounting: str = "paper",
    instead: Mapping[str, str] = MappingProxyType({}),
) -> Returned:
    """Smallest gap between neighbours in the ordering of Theorem 1, in exact relative errors.

    The ordering is F1 > R > F2 > D, and D has the law of F3.

    Args:
        sizes: Values of K.
        shapes: Rows and columns of matrices that are not square.
        ranks: Values of r, the same at every size; those with r ≥ K/3 are skipped.
        fractions: Ranks as fractions of (K−1)/3, the largest rank that the theorem covers; rounded
            down, but at least 1.
        inequality: ``first`` (F1 > R), ``second`` (R > F2), ``third`` (F2 > D), ``all``, or
            ``plotted`` (U > R > M1 > M2 > D, the methods of the figures).
        accounting: An :class:`~loca_theory.expressivity.Accounting`.
        instead: Methods that take the place of others.
    """
    replaced = {known_name(name): known_name(other) for name, other in instead.items()}
    pairs = tuple(
        (replaced.get(worse, worse), replaced.get(better, better))
        for worse, better in _PAIRS[inequality]
    )
    gaps = {}
    for p, q in [*((size, size) for size in sizes), *shapes]:
        top = (min(p, q) - 1) // 3
        used = sorted({r for r in ranks if r <= top} | {max(1, int(s * top)) for s in fractions})
        budgets = [Budget(p, q, r, Accounting(accounting)) for r in used]
        where = [f"K = {p}, r = {r}" if p == q else f"{p}×{q}, r = {r}" for r in used]
        for (worse, better), of_pair in zip(pairs, exact_gaps(pairs, budgets), strict=True):
            for name, gap in zip(where, of_pair, strict=True):
                gaps[f"{name} ({worse} and {better})"] = float(gap)
    return extreme(min, gaps, "{count} gaps; the smallest at {at}.")


def exact_gaps(pairs: Sequence[tuple[str, str]], budgets: Sequence[Budget]) -> NDArray[np.float64]:
    """The exact error of the first of two methods less that of the second, (pairs, budgets)."""
    errors = {name: find_method(name).expected_errors(budgets) for pair in pairs for name in pair}
    return np.array([errors[worse] - errors[better] for worse, better in pairs])


def covered(sizes: Iterable[int]) -> list[Budget]:
    """The budgets of square matrices that Theorem 1 covers: every rank r < K/3."""
    return [Budget(size, size, r) for size in sizes for r in range(1, (size - 1) // 3 + 1)]


def small_sizes(
    *, tier: Tier, smallest: int = 2, better: str = "Fourier pairs", rounding: str = "down"
) -> Returned:
    """Number of inequalities of Theorem 1 that fail at small K, by exact expectations.

    Args:
        tier: K up to 12, 24 or 40.
        smallest: Smallest K to use.
        better: ``Fourier pairs``, or ``upper bound``, the bound on their error that the proof
            compares with LoRA.
        rounding: Rounding of N2 = 2Kr/3: ``down``, to the ``nearest`` whole number, or ``none``,
            with the expectation interpolated between the two whole numbers around it.
    """
    largest = tier.scaled(12, 24, 40)
    methods = [
        known_name(better) if method == "Fourier pairs" else method for method in THEOREM_1_ORDER
    ]
    failing = []
    for budget in covered(range(smallest, largest + 1)):
        errors = {method: exact_error(method, budget) for method in methods}
        if rounding != "down":
            # 2Kr/3 in thirds; an interpolation between its neighbours needs no rounding.
            thirds = budget.numbers
            thirds = 3 * ((2 * thirds + 3) // 6) if rounding == "nearest" else thirds
            low, above = divmod(thirds, 3)
            ends = [expected_location_sum(budget.half_spectrum, low + extra) for extra in (0, 1)]
            errors["Fourier pairs"] = 1 - (ends[0] + above / 3 * (ends[1] - ends[0])) / budget.p**2
        failing += [
            f"K = {budget.p}, r = {budget.r}: {a} {errors[a]:.4f}, {b} {errors[b]:.4f}"
            for a, b in pairwise(methods)
            if errors[a] <= errors[b]
        ]
    return len(failing), f"K up to {largest}. {'; '.join(failing[:4])}"


def third_inequality(*, accounting: str, sizes: Sequence[int], ranks: Sequence[int]) -> Returned:
    """Smallest exact error of Fourier pairs less that of Fourier, under one accounting of N2.

    Args:
        accounting: An :class:`~loca_theory.expressivity.Accounting`.
        sizes: Values of K.
        ranks: Values of r.
    """
    return order(sizes=sizes, ranks=ranks, inequality="third", accounting=accounting)


def limit_threshold(*, accounting: str = "paper") -> Returned:
    """Largest r/K up to which the ordering of Theorem 1 holds in the limit K → ∞.

    The ordering is that of the errors, U > R > F2 > D.

    It is the smallest r/K at which the errors of two methods meet, if the ordering holds at a small
    r/K (0.001), and 0 otherwise.

    Args:
        accounting: An :class:`~loca_theory.expressivity.Accounting`.
    """
    counted = Accounting(accounting)
    small = Budget(_LARGE, _LARGE, round(_SMALL_RATIO * _LARGE), counted)
    start = {
        method: METHODS[method].limit(small)
        for method in ("printed line", "LoRA", "Fourier pairs", "LoCA")
    }
    if not all(a > b for a, b in pairwise(start.values())):
        shown = ", ".join(f"{name} {start[name]:.6f}" for name in start)
        return 0.0, f"Errors at r/K = {_SMALL_RATIO:g}: {shown}."
    crossings = limit_crossings(counted)
    met = [f"{point.upper} and {point.lower} at {point.ratio:.6f}" for point in crossings]
    return crossings[0].ratio, f"Errors meet: {', '.join(met)}."


def first_of_the_target(*, better: str = "LoCA") -> Returned:
    """Smallest exact error of the lower bound less that of LoCA, K = 4 to 60 and all r < K/3.

    Args:
        better: The method that should have the smaller error.
    """
    return min(
        exact_gaps([("lower bound", better)], covered([size])).min() for size in range(4, 61)
    )


def proof(*, sizes: Sequence[int], constant: int = 0) -> Returned:
    """Failed conditions of the proof, and its smallest bound on a gap over K, for some K.

    Args:
        constant: Added to the constant term of the polynomial P, in units of 10⁻⁵.
        sizes: Values of K; all ranks r < K/3 up to K = 300, and at larger K some 300 of them.

    Returns:
        The number of conditions that fail, and K times the smallest proven gap between neighbours
        in F1 > R > F2 > D, relative to K².
    """
    failed = failed_conditions(UPPER + Rational(constant, 100_000))
    gaps = {}
    for size in sizes:
        top = (size - 1) // 3
        for r in range(1, top + 1, max(1, top // 300)):
            gaps[f"K = {size}, r = {r}"] = size * min(proven_gaps(size, r))
    gap, note = extreme(min, gaps, "Smallest bound at {at}.")
    values = {"conditions that fail": len(failed), "K times the smallest proven gap": gap}
    return values, f"{'; '.join(failed) or 'All conditions hold'}. {note}"


def small_cases(*, tier: Tier, smallest: int = 5) -> Returned:
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
        are_all = size < UPPER_FROM
        budgets = covered([size]) if are_all else covered([size])[-1:]
        of_budgets = exact_gaps(_PAIRS["all" if are_all else "first"], budgets)
        for budget, gap in zip(budgets, of_budgets.min(axis=0), strict=True):
            gaps[f"K = {size}, r = {budget.r}"] = float(gap)
    return extreme(min, gaps, "{count} pairs; the smallest gap at {at}.")
