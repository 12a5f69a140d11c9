"""Theorems 1 and 2: the ordering of the errors, where it holds, and how budgets are counted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import torch

from loca_theory.claims.measurement import Measurement, Part, Setting
from loca_theory.expressivity import (
    THEOREM_1_ORDER,
    Accounting,
    Budget,
    MonteCarlo,
    Sampler,
    Series,
    exact_error,
    kept_energies,
    limit_crossings,
    theorem_1_violations,
)
from loca_theory.transforms import HalfSpectrum, dct_matrix

_PAIRS = {"first": ("F1", "R"), "second": ("R", "F2"), "third": ("F2", "D")}


def order(
    setting: Setting,
    *,
    sizes: Sequence[int],
    ranks: Sequence[int] = (),
    shares: Sequence[float] = (),
    inequality: str = "all",
) -> Measurement:
    """The smallest gap between neighbours of F1 > R > F2 > D, in relative error.

    F1, F2 and D (the law of F3) are exact; R is simulated through the bidiagonal model. A part a
    size and rank: the smaller of the gaps in which R stands; and one exact part for F2 − D.

    Args:
        setting: How much work.
        sizes: K.
        ranks: r, the same at every size; those with r ≥ K/3 are left out.
        shares: Ranks as shares of (K−1)/3, the largest that the theorem covers; rounded down, at
            least 1.
        inequality: ``first`` (F1 > R), ``second`` (R > F2), ``third`` (F2 > D) or ``all``.

    Source: Theorem 1 of the paper.
    """
    draws = setting.scaled(25, 100, 400)
    pairs = list(_PAIRS.values()) if inequality == "all" else [_PAIRS[inequality]]
    parts, third = [], []
    for size in sizes:
        top = (size - 1) // 3
        wanted = sorted({r for r in ranks if r <= top} | {max(1, int(s * top)) for s in shares})
        budgets = [Budget(size, size, r) for r in wanted]
        third += [exact_error("F2", one) - exact_error("D", one) for one in budgets]
        if pairs == [_PAIRS["third"]]:
            continue
        settings = MonteCarlo(draws, seed=setting.seed(), jobs=1)
        series = Series("R", size, size, tuple(wanted), Sampler.REDUCED)
        for budget, found in zip(budgets, settings.run([series])[0], strict=True):
            gaps = [
                _error(worse, budget, found.error) - _error(better, budget, found.error)
                for worse, better in pairs
                if "R" in (worse, better)
            ]
            name = f"K = {size}, r = {budget.r}"
            parts.append(Part(name, min(gaps), found.standard_error or 0.0, found.draws))
    if _PAIRS["third"] in pairs:
        parts.append(Part("F2 - D", min(third)))
    return Measurement.of(parts)


def _error(curve: str, budget: Budget, low_rank: float) -> float:
    return low_rank if curve == "R" else exact_error(curve, budget)


def small_sizes(setting: Setting, *, smallest: int = 2, better: str = "F2") -> Measurement:
    """Inequalities of Theorem 1 that fail at small K, all of them by exact expectations.

    Args:
        setting: How much work: K up to 12, 24 or 40.
        smallest: Smallest K that counts.
        better: ``F2``, or ``M1``, the bracket that the proof compares with R.

    Source: Theorem 1, which bounds K by r < K/3 alone; the chain of inequalities in its proof.
    """
    largest = setting.scaled(12, 24, 40)
    curves = tuple(better if curve == "F2" else curve for curve in THEOREM_1_ORDER)
    failing = [one for one in theorem_1_violations(largest, curves) if smallest <= one.K]
    shown = "; ".join(
        f"K = {one.K}, r = {one.r}: {one.worse} {one.worse_error:.4f}, "
        f"{one.better} {one.better_error:.4f}"
        for one in failing[:4]
    )
    return Measurement.exact(len(failing), f"K up to {largest}. {shown}")


def third_inequality(
    setting: Setting, *, accounting: str, sizes: Sequence[int], ranks: Sequence[int]
) -> Measurement:
    """The smallest exact L_F2 − L_F3, relative, when N2 is counted in one way or another.

    Args:
        setting: Not used.
        accounting: An :class:`~loca_theory.expressivity.Accounting`.
        sizes: K.
        ranks: r.

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
    """The smallest r/K at which two curves meet in the limit K → ∞.

    Source: the bound r < K/3 of Theorem 1.
    """
    del setting
    crossings = limit_crossings()
    shown = ", ".join(f"{one.upper} and {one.lower} at {one.ratio:.6f}" for one in crossings)
    return Measurement.exact(crossings[0].ratio, f"Curves meet: {shown}.")


def random_locations_kept(setting: Setting) -> Measurement:
    """Largest deviation of the printed K³r/(K²/2+2), K³r/((K²+1)/2) from counting all choices.

    Every choice of Kr of the half spectrum's locations is gone through at K = 3 and 4; a
    self-conjugate location carries energy 1 in the mean, a pair 2.

    Source: the displayed expectation of K² − L_F^(1) in the proof of Theorem 1.
    """
    del setting
    worst = 0.0
    for size, r in ((3, 1), (4, 1)):
        half = HalfSpectrum(size, size)
        energies = [1.0] * half.self_conjugate_count + [2.0] * half.pair_count
        kept = np.mean([sum(chosen) for chosen in combinations(energies, size * r)])
        places = size**2 / 2 + 2 if size % 2 == 0 else (size**2 + 1) / 2
        worst = max(worst, abs(float(kept) - size**3 * r / places))
    return Measurement.exact(worst)


def random_locations_loss(setting: Setting, *, size: int, r: int) -> Measurement:
    """The exact loss K²·error of F1 over the printed "L_F^(1) = 2Kr".

    Source: the last paragraph of the proof of Theorem 1.
    """
    del setting
    loss = size**2 * exact_error("F1", Budget(size, size, r))
    return Measurement.exact(
        loss / (2 * size * r),
        f"At K = {size}, r = {r} the loss is {loss:.6g}; what is kept is "
        f"{size**2 - loss:.6g}, next to 2Kr = {2 * size * r}.",
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


def dense_difference(
    setting: Setting, *, curves: Sequence[str], sizes: Sequence[int], r: int
) -> Measurement:
    """Mean difference of two curves' relative errors on the same dense draws, a part a size.

    Source: Theorem 2.
    """
    draws = setting.scaled(400, 2000, 20_000)
    parts = []
    for size in sizes:
        budget = [Budget(size, size, r)]
        gaps = []
        for _ in range(draws):
            matrix = torch.from_numpy(setting.rng.standard_normal((size, size)))
            a, b = (kept_energies(matrix, curve, budget)[0] for curve in curves)
            gaps.append((b - a) / size**2)
        parts.append(Part.mean(gaps, f"K = {size}"))
    return Measurement.of(parts)


def dense_value(setting: Setting, *, curve: str, sizes: Sequence[int], r: int) -> Measurement:
    """Mean relative error on dense draws less the exact expectation, a part a size.

    Source: the expectations of order statistics in the proof of Theorem 1.
    """
    draws = setting.scaled(400, 2000, 20_000)
    parts = []
    for size in sizes:
        settings = MonteCarlo(draws, seed=setting.seed(), jobs=1)
        found = settings.run([Series(curve, size, size, (r,), Sampler.DENSE)])[0][0]
        gap = found.error - exact_error(curve, Budget(size, size, r))
        parts.append(Part(f"K = {size}", gap, found.standard_error or 0.0, draws))
    return Measurement.of(parts)


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
