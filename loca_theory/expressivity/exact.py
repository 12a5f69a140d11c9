"""Exact expected errors: no simulation, no matrix, milliseconds at any size."""

from __future__ import annotations

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.curves import Engine, find_curve
from loca_theory.expressivity.low_rank_exact import LARGEST_EXACT, expected_leading_energy
from loca_theory.expressivity.order_statistics import expected_location_sum, expected_top_sum


def has_exact_value(curve: str, p: int, q: int) -> bool:
    """Whether :func:`exact_error` can evaluate the curve at this shape."""
    if curve == "R":
        return min(p, q) <= LARGEST_EXACT
    return Engine.EXACT in find_curve(curve).engines


def exact_error(curve: str, budget: Budget) -> float:
    r"""Expected relative error :math:`E\|W-\hat W\|^2 / E\|W\|^2` for i.i.d. N(0, 1) entries.

    With n = pq, N the curve's count from the budget, s self-conjugate places and m pairs of the
    DFT, what is kept is on average

    - U: N0 (the printed line; V1, N random coefficients, keeps N);
    - F1: :math:`N\,n/(s+m)`;
    - FourierFT: a place hits a self-conjugate cosine or one of a pair, so
      :math:`s N/n + m\,(1 - \tfrac{(n-N)(n-N-1)}{n(n-1)})`;
    - D, F3, S: the N largest of n independent χ²_1;
    - F2: the N strongest of s χ²_1 and m χ²_2; M1, M2: of m, and of m + s, χ²_2;
    - R: :func:`~loca_theory.expressivity.low_rank_exact.expected_leading_energy`;
    - RD: the error is :math:`2^{-2b/n}` for the b bits of LoRA's factors.

    Args:
        curve: A name in :data:`~loca_theory.expressivity.curves.CURVES`.
        budget: Shape, rank and accounting.

    Returns:
        The relative error, in [0, 1]; M2, a bracket, can fall below 0 (by s/n at most).

    Raises:
        InvalidArgumentError: the curve is unknown or has no exact value at this shape, or its
            count does not fit the matrix.

    Source: the displayed expectations of the paper's proof of Theorem 1; for RD, the
    rate-distortion function of a Gaussian source (Shannon, 1959).
    """
    if not has_exact_value(curve, budget.p, budget.q):
        msg = f"{curve} has no exact value at {budget.p}x{budget.q}"
        msg += f" (only for min(p, q) <= {LARGEST_EXACT})" if curve == "R" else ""
        msg += "; use the monte-carlo engine"
        raise InvalidArgumentError(msg)
    if curve == "RD":
        return 2.0 ** (-2 * budget.bits / (budget.p * budget.q))
    return 1.0 - _kept_energy(curve, budget) / (budget.p * budget.q)


def _kept_energy(curve: str, budget: Budget) -> float:
    n, half = budget.p * budget.q, budget.half
    match curve:
        case "R":
            return float(expected_leading_energy(budget.p, budget.q)[budget.r])
        case "U":
            return float(budget.numbers)
        case "V1":
            return float(budget.random_coefficients)
        case "F1":
            return budget.random_locations * n / half.location_count
        case "FourierFT":
            count = budget.random_coefficients
            own = half.self_conjugate_count * count / n
            return own + half.pair_count * pair_hit_probability(n, count)
        case "M1":
            return expected_top_sum(half.pair_count, budget.chosen_locations, 2)
        case "M2":
            return expected_top_sum(half.location_count, budget.chosen_locations, 2)
        case "F2":
            return expected_location_sum(half, budget.chosen_locations)
        case _:  # D, F3 and S: one law
            return expected_top_sum(n, budget.chosen_coefficients, 1)


def pair_hit_probability(n: int, count: int) -> float:
    """Probability that ``count`` random places of n, none twice, include one of a given pair."""
    return 1 - (n - count) * (n - count - 1) / (n * (n - 1)) if n > 1 else 1.0
