"""Theorems 1 and 2: the ordering of the errors, where it holds, and what is charged to a budget."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np

from loca_theory.claims.measurement import Measurement, Setting
from loca_theory.expressivity import (
    METHODS,
    THEOREM_1_ORDER,
    Accounting,
    Budget,
    exact_error,
    expected_location_sum,
    limit_crossings,
)
from loca_theory.transforms import HalfSpectrum, dct_matrix

_PAIRS = {"first": ("F1", "R"), "second": ("R", "F2"), "third": ("F2", "D")}
# The figures show the line U for the method F1, and the bounds M1 and M2 for the method F2.
_PLOTTED = (("U", "R"), ("R", "M1"), ("M1", "M2"), ("M2", "D"))


def order(
    setting: Setting,
    *,
    sizes: Sequence[int] = (),
    shapes: Sequence[Sequence[int]] = (),
    ranks: Sequence[int] = (),
    fractions: Sequence[float] = (),
    inequality: str = "all",
) -> Measurement:
    """Smallest gap between neighbours in F1 > R > F2 > D, in exact relative errors.

    D has the law of F3.

    Args:
        setting: Not used.
        sizes: Values of K.
        shapes: Rows and columns of matrices that are not square.
        ranks: Values of r, the same at every size; those with r ≥ K/3 are skipped.
        fractions: Ranks as fractions of (K−1)/3, the largest rank that the theorem covers; rounded
            down, but at least 1.
        inequality: ``first`` (F1 > R), ``second`` (R > F2), ``third`` (F2 > D), ``all``, or
            ``plotted`` (U > R > M1 > M2 > D, the methods of the figures).

    Source: Theorem 1 of the paper.
    """
    del setting
    several = {"all": tuple(_PAIRS.values()), "plotted": _PLOTTED}
    pairs = several.get(inequality) or (_PAIRS[inequality],)
    gaps = {}
    for p, q in [*((size, size) for size in sizes), *shapes]:
        top = (min(p, q) - 1) // 3
        wanted = sorted({r for r in ranks if r <= top} | {max(1, int(s * top)) for s in fractions})
        budgets = [Budget(p, q, r) for r in wanted]
        errors = {name: METHODS[name].expected_errors(budgets) for pair in pairs for name in pair}
        where = [f"K = {p}, r = {r}" if p == q else f"{p}×{q}, r = {r}" for r in wanted]
        for worse, better in pairs:
            for name, gap in zip(where, errors[worse] - errors[better], strict=True):
                gaps[f"{name} ({worse} and {better})"] = float(gap)
    least = min(gaps, key=lambda name: gaps[name])
    return Measurement.exact(gaps[least], f"{len(gaps)} gaps; the smallest at {least}.")


def small_sizes(
    setting: Setting, *, smallest: int = 2, better: str = "F2", rounding: str = "down"
) -> Measurement:
    """Number of inequalities of Theorem 1 that fail at small K, by exact expectations.

    Args:
        setting: Tier: K up to 12, 24 or 40.
        smallest: Smallest K to use.
        better: ``F2``, or ``M1``, the bound on the error of F2 that the proof compares with R.
        rounding: Rounding of N2 = 2Kr/3: ``down``, or to the ``nearest`` whole number.

    Source: Theorem 1, which bounds K only by r < K/3; the chain of inequalities in its proof.
    """
    largest = setting.scaled(12, 24, 40)
    methods = [better if method == "F2" else method for method in THEOREM_1_ORDER]
    failing = []
    for size in range(smallest, largest + 1):
        for r in range(1, (size - 1) // 3 + 1):
            budget = Budget(size, size, r)
            errors = {method: exact_error(method, budget) for method in methods}
            if rounding == "nearest":
                retained = expected_location_sum(
                    budget.half_spectrum, (2 * budget.numbers + 3) // 6
                )
                errors["F2"] = 1 - retained / size**2
            failing += [
                f"K = {size}, r = {r}: {a} {errors[a]:.4f}, {b} {errors[b]:.4f}"
                for a, b in pairwise(methods)
                if errors[a] <= errors[b]
            ]
    return Measurement.exact(len(failing), f"K up to {largest}. {'; '.join(failing[:4])}")


def third_inequality(
    setting: Setting, *, accounting: str, sizes: Sequence[int], ranks: Sequence[int]
) -> Measurement:
    """Smallest exact L_F2 − L_F3, relative to K², under one accounting of N2.

    Args:
        setting: Not used.
        accounting: An :class:`~loca_theory.expressivity.Accounting`.
        sizes: Values of K.
        ranks: Values of r.

    Source: "N_2 = 2/3 N_0" in the main text; 2Kr/3 in the proof.
    """
    del setting
    gaps = {}
    for size in sizes:
        for r in ranks:
            budget = Budget(size, size, r, Accounting(accounting))
            gaps[size, r] = exact_error("F2", budget) - exact_error("D", budget)
    size, r = min(gaps, key=lambda key: gaps[key])
    return Measurement.exact(gaps[size, r], f"smallest at K = {size}, r = {r}.")


def limit_threshold(setting: Setting) -> Measurement:
    """Smallest r/K at which the errors of two methods meet in the limit K → ∞.

    Source: the bound r < K/3 of Theorem 1.
    """
    del setting
    crossings = limit_crossings()
    shown = ", ".join(f"{one.upper} and {one.lower} at {one.ratio:.6f}" for one in crossings)
    return Measurement.exact(crossings[0].ratio, f"Errors meet: {shown}.")


def random_locations_retained(setting: Setting) -> Measurement:
    """Largest deviation of the printed K³r/(K²/2+2), K³r/((K²+1)/2) from a full enumeration.

    At K = 3 and 4, every choice of Kr locations of the half spectrum is enumerated. A
    self-conjugate location has mean energy 1, a pair has 2.

    Source: the displayed expectation of K² − L_F^(1) in the proof of Theorem 1.
    """
    del setting
    worst = 0.0
    for size, r in ((3, 1), (4, 1)):
        half = HalfSpectrum(size, size)
        energies = [1.0] * half.self_conjugate_count + [2.0] * half.pair_count
        retained = np.mean([sum(chosen) for chosen in combinations(energies, size * r)])
        locations = size**2 / 2 + 2 if size % 2 == 0 else (size**2 + 1) / 2
        worst = max(worst, abs(float(retained) - size**3 * r / locations))
    return Measurement.exact(worst)


def random_locations_loss(setting: Setting, *, size: int, r: int) -> Measurement:
    """The exact loss K²·error of the method F1 over the printed "L_F^(1) = 2Kr".

    Source: the last paragraph of the proof of Theorem 1.
    """
    del setting
    loss = size**2 * exact_error("F1", Budget(size, size, r))
    return Measurement.exact(
        loss / (2 * size * r),
        f"At K = {size}, r = {r} the loss is {loss:.6g}; the retained energy is "
        f"{size**2 - loss:.6g}, close to 2Kr = {2 * size * r}.",
    )


def printed_line(setting: Setting) -> Measurement:
    """Largest ``|1 − 2r/K − error of F1|``, K = 100, 150, …, 300 and r = 8, 16, 24, 32.

    Source: the line U of the figures sim_1 and sim_2.
    """
    del setting
    gaps = []
    for size in range(100, 301, 50):
        for r in (8, 16, 24, 32):
            budget = Budget(size, size, r)
            gaps.append(abs(exact_error("U", budget) - exact_error("F1", budget)))
    return Measurement.exact(max(gaps))


def cosine_covariance(setting: Setting) -> Measurement:
    """Largest deviation of (Q⊗Q)(Q⊗Q)ᵀ from the identity, K = 2, …, 9.

    Source: the proof of Theorem 2.
    """
    del setting
    worst = 0.0
    for size in range(2, 10):
        q = dct_matrix(size).numpy()
        both = np.kron(q, q)
        worst = max(worst, float(np.abs(both @ both.T - np.eye(size**2)).max()))
    return Measurement.exact(worst)


def first_of_the_target(setting: Setting) -> Measurement:
    """Smallest exact gap error(M2) − error(D) over K = 4 to 60 and all r < K/3.

    Source: the first inequality of equation (finaltarget), Σψ ≥ M2.
    """
    del setting
    budgets = [Budget(k, k, r) for k in range(4, 61) for r in range(1, (k - 1) // 3 + 1)]
    return Measurement.exact(min(exact_error("M2", b) - exact_error("D", b) for b in budgets))
