"""Theorems 1 and 2: the ordering of the errors, where it holds, and what is charged to a budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from types import MappingProxyType

import numpy as np
from scipy import stats

from loca_theory.claims.checks._extremes import largest_entry, least
from loca_theory.claims.estimates import Returned, Rng, Tier
from loca_theory.expressivity import METHODS, Accounting, Budget, exact_error, retained_energies
from loca_theory.expressivity.limits import limit_crossings
from loca_theory.expressivity.methods.names import display_name
from loca_theory.expressivity.order_statistics import expected_location_sum
from loca_theory.expressivity.ordering import THEOREM_1_ORDER
from loca_theory.transforms.half_spectrum import HalfSpectrum
from loca_theory.transforms.matrices import dct_matrix

# A budget of the limit K → ∞, and the r/K from which it is followed.
_LARGE, _SMALL_RATIO = 10**6, 1e-3
_ENUMERATED = 5  # largest K at which all choices of locations are enumerated
_PAIRS = {
    "first": [("F1", "R")],
    "second": [("R", "F2")],
    "third": [("F2", "D")],
    "all": [("F1", "R"), ("R", "F2"), ("F2", "D")],
    # The figures show the line U for the method F1, and the bounds M1 and M2 for the method F2.
    "plotted": [("U", "R"), ("R", "M1"), ("M1", "M2"), ("M2", "D")],
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
    """Smallest gap between neighbours in F1 > R > F2 > D, in exact relative errors.

    D has the law of F3.

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

    Source: Theorem 1 of the paper.
    """
    pairs = tuple(
        (instead.get(worse, worse), instead.get(better, better))
        for worse, better in _PAIRS[inequality]
    )
    gaps = {}
    for p, q in [*((size, size) for size in sizes), *shapes]:
        top = (min(p, q) - 1) // 3
        wanted = sorted({r for r in ranks if r <= top} | {max(1, int(s * top)) for s in fractions})
        budgets = [Budget(p, q, r, Accounting(accounting)) for r in wanted]
        errors = {name: METHODS[name].expected_errors(budgets) for pair in pairs for name in pair}
        where = [f"K = {p}, r = {r}" if p == q else f"{p}×{q}, r = {r}" for r in wanted]
        for worse, better in pairs:
            for name, gap in zip(where, errors[worse] - errors[better], strict=True):
                gaps[f"{name} ({display_name(worse)} and {display_name(better)})"] = float(gap)
    return least(gaps, "{count} gaps; the smallest at {at}.")


def covered(sizes: Iterable[int]) -> list[Budget]:
    """The budgets of square matrices that Theorem 1 covers: every rank r < K/3."""
    return [Budget(size, size, r) for size in sizes for r in range(1, (size - 1) // 3 + 1)]


def small_sizes(
    *, tier: Tier, smallest: int = 2, better: str = "F2", rounding: str = "down"
) -> Returned:
    """Number of inequalities of Theorem 1 that fail at small K, by exact expectations.

    Args:
        tier: K up to 12, 24 or 40.
        smallest: Smallest K to use.
        better: ``F2``, or ``M1``, the bound on the error of F2 that the proof compares with R.
        rounding: Rounding of N2 = 2Kr/3: ``down``, to the ``nearest`` whole number, or ``none``,
            with the expectation interpolated between the two whole numbers around it.

    Source: Theorem 1, which bounds K only by r < K/3; the chain of inequalities in its proof.
    """
    largest = tier.scaled(12, 24, 40)
    methods = [better if method == "F2" else method for method in THEOREM_1_ORDER]
    failing = []
    for budget in covered(range(smallest, largest + 1)):
        errors = {method: exact_error(method, budget) for method in methods}
        if rounding != "down":
            # 2Kr/3 in thirds; an interpolation between its neighbours needs no rounding.
            thirds = budget.numbers
            thirds = 3 * ((2 * thirds + 3) // 6) if rounding == "nearest" else thirds
            errors["F2"] = 1 - _interpolated(budget, thirds) / budget.p**2
        failing += [
            f"K = {budget.p}, r = {budget.r}: {display_name(a)} {errors[a]:.4f}, "
            f"{display_name(b)} {errors[b]:.4f}"
            for a, b in pairwise(methods)
            if errors[a] <= errors[b]
        ]
    return len(failing), f"K up to {largest}. {'; '.join(failing[:4])}"


def _interpolated(budget: Budget, thirds: int) -> float:
    """Energy of the thirds/3 strongest locations, linear between whole numbers of locations."""
    low, above = divmod(thirds, 3)
    ends = [expected_location_sum(budget.half_spectrum, low + extra) for extra in (0, 1)]
    return ends[0] + above / 3 * (ends[1] - ends[0])


def third_inequality(*, accounting: str, sizes: Sequence[int], ranks: Sequence[int]) -> Returned:
    """Smallest exact L_F2 − L_F3, relative to K², under one accounting of N2.

    Args:
        accounting: An :class:`~loca_theory.expressivity.Accounting`.
        sizes: Values of K.
        ranks: Values of r.

    Source: "N_2 = 2/3 N_0" in the main text; 2Kr/3 in the proof.
    """
    gaps = {}
    for size in sizes:
        for r in ranks:
            budget = Budget(size, size, r, Accounting(accounting))
            gap = exact_error("F2", budget) - exact_error("D", budget)
            gaps[f"K = {size}, r = {r}"] = gap
    return least(gaps, "smallest at {at}.")


def limit_threshold(*, accounting: str = "paper") -> Returned:
    """Largest r/K up to which the ordering U > R > F2 > D holds in the limit K → ∞.

    It is the smallest r/K at which the errors of two methods meet, if the ordering holds at a small
    r/K (0.001), and 0 otherwise.

    Args:
        accounting: An :class:`~loca_theory.expressivity.Accounting`.

    Source: the bound r < K/3 of Theorem 1.
    """
    counted = Accounting(accounting)
    small = Budget(_LARGE, _LARGE, round(_SMALL_RATIO * _LARGE), counted)
    start = {method: METHODS[method].limit(small) for method in ("U", "R", "F2", "D")}
    if not all(a > b for a, b in pairwise(start.values())):
        shown = ", ".join(f"{display_name(one)} {start[one]:.6f}" for one in start)
        return 0.0, f"Errors at r/K = {_SMALL_RATIO:g}: {shown}."
    crossings = limit_crossings(counted)
    shown = ", ".join(
        f"{display_name(one.upper)} and {display_name(one.lower)} at {one.ratio:.6f}"
        for one in crossings
    )
    return crossings[0].ratio, f"Errors meet: {shown}."


def random_locations_retained(*, odd_locations: str = "printed") -> Returned:
    """Largest deviation of the printed K³r/(K²/2+2), K³r/((K²+1)/2) from the exact mean.

    A self-conjugate location has mean energy 1, a pair has 2. At K = 3 to 5 and r = 1 every choice
    of Kr locations of the half spectrum is enumerated. At K = 6 to 60 and all r < K/3, the number
    of self-conjugate locations among the chosen ones has the hypergeometric law.

    Args:
        odd_locations: Number of locations for odd K: ``printed``, (K² + 1)/2, or ``as for even K``,
            K²/2 + 2.

    Source: the displayed expectation of K² − L_F^(1) in the proof of Theorem 1.
    """
    worst, is_printed = 0.0, odd_locations == "printed"
    for size in range(3, 61):
        half = HalfSpectrum(size, size)
        own, pairs = half.self_conjugate_count, half.pair_count
        is_odd = bool(size % 2)
        locations = (size**2 + 1) / 2 if is_odd and is_printed else size**2 / 2 + 2
        for r in range(1, (size - 1) // 3 + 1) if size > _ENUMERATED else (1,):
            if size > _ENUMERATED:
                retained = 2.0 * size * r - stats.hypergeom(own + pairs, own, size * r).mean()
            else:
                energies = [1] * own + [2] * pairs
                retained = np.mean([sum(chosen) for chosen in combinations(energies, size * r)])
            printed = size**3 * r / locations
            worst = max(worst, abs(float(retained) / printed - 1))
    return worst


def random_locations_loss(*, size: int, r: int) -> Returned:
    """The exact loss K²·error of the method F1 over the printed "L_F^(1) = 2Kr".

    Source: the last paragraph of the proof of Theorem 1.
    """
    loss = size**2 * exact_error("F1", Budget(size, size, r))
    return loss / (2 * size * r), (
        f"At K = {size}, r = {r} the loss is {loss:.6g}; the retained energy is "
        f"{size**2 - loss:.6g}, close to 2Kr = {2 * size * r}."
    )


def printed_line(*, slope: float = 2.0) -> Returned:
    """Largest ``|1 − slope·r/K − error of F1|``, K = 100, 150, …, 300 and r = 8, 16, 24, 32.

    Args:
        slope: 2 as in the figures.

    Source: the line U of the figures sim_1 and sim_2.
    """
    gaps = []
    for size in range(100, 301, 50):
        for r in (8, 16, 24, 32):
            budget = Budget(size, size, r)
            gaps.append(abs(1 - slope * r / size - exact_error("F1", budget)))
    return max(gaps)


def cosine_covariance(*, first: float = 0.5) -> Returned:
    """Largest deviation of (Q⊗Q)(Q⊗Q)ᵀ from the identity, K = 2, …, 9.

    Args:
        first: Squared weight of the first row of Q before scaling, ½ for the DCT.

    Source: the proof of Theorem 2.
    """
    gaps = []
    for size in range(2, 10):
        q = dct_matrix(size).numpy().copy()
        q[0] *= np.sqrt(2 * first)
        both = np.kron(q, q)
        gaps.append(both @ both.T - np.eye(size**2))
    return largest_entry(gaps)


def first_of_the_target(*, better: str = "D") -> Returned:
    """Smallest exact gap error(M2) − error(D) over K = 4 to 60 and all r < K/3.

    Args:
        better: The method that should have the smaller error.

    Source: the first inequality of equation (finaltarget), Σψ ≥ M2.
    """
    gaps = (exact_error("M2", one) - exact_error(better, one) for one in covered(range(4, 61)))
    return min(gaps)


def rescaled(*, rng: Rng, scale: float = 1.0, shift: float = 0.0) -> Returned:
    """Largest relative change of a loss if W becomes scale·W + shift, in units of scale².

    The methods are R, F2, F3 and D, with K = 24 and r = 1, 4 and 7.

    Args:
        scale: Factor of all entries.
        shift: Mean of all entries.

    Source: the paragraph below Theorem 1.
    """
    w = rng.standard_normal((24, 24))
    budgets, changes = [Budget(24, 24, r) for r in (1, 4, 7)], {}
    for method in ("R", "F2", "F3", "D"):
        before, after = (
            np.square(one).sum() - retained_energies(one, method, budgets)
            for one in (w, scale * w + shift)
        )
        changes[method] = float(np.abs(after / (scale**2 * before) - 1).max())
    shown = ", ".join(f"{display_name(name)}: {change:.2g}" for name, change in changes.items())
    return max(changes.values()), f"{shown}."
