"""Properties of budgets, exact sums, approximations and samplers over random shapes and values."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from loca_theory.expressivity import (
    METHODS,
    Accounting,
    Budget,
    approximate,
    exact_error,
    retained_energies,
)
from loca_theory.expressivity.laws.order_statistics import expected_top_sum
from loca_theory.expressivity.methods.coordinates.coordinate_method import CoordinateMethod
from loca_theory.expressivity.methods.registry import find_method

reproducible = settings(max_examples=30, deadline=None, derandomize=True, database=None)

# The precision of the exact sums; other comparisons are of a few hundred float64 operations.
PROMISED = 1e-13
ROUNDING = 1e-10

FORMULAS = [name for name in METHODS if "exact" in METHODS[name].engines(Budget(2, 2, 1))]
REDUCED = ["LoRA", *(m.name for m in METHODS.values() if isinstance(m, CoordinateMethod))]
APPROXIMATING = [*REDUCED, "DoRA", "VeRA"]

accountings = st.sampled_from(Accounting)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def budgets(draw, side=40, accounting=None):
    """A budget that fits, of any shape up to side × side."""
    chosen = draw(accountings) if accounting is None else accounting
    p, q = draw(st.integers(1, side)), draw(st.integers(1, side))
    largest = min(p, q) if chosen is Accounting.DOF else p * q // (p + q)
    assume(largest)
    r = draw(st.integers(1, largest))
    bits = draw(st.integers(1, 32))
    budget = Budget(p, q, r, chosen, bits)
    if chosen is Accounting.MAIN_TEXT:
        assume(2 * budget.numbers // 3 <= budget.half_spectrum.location_count)
    return budget


@st.composite
def matrices(draw):
    """A small matrix and a budget for it."""
    budget = draw(budgets(side=9, accounting=Accounting.PAPER))
    entries = st.floats(-100, 100, width=32, allow_subnormal=False)
    matrix = draw(arrays.arrays(np.float64, (budget.p, budget.q), elements=entries))
    return matrix, budget


@st.composite
def counts(draw, largest=10**7):
    """n, some N below it and the degrees of freedom."""
    n = int(10 ** draw(st.floats(math.log10(2), math.log10(largest))))
    return n, draw(st.integers(1, max(1, n - 1))), draw(st.sampled_from([1, 2]))


@reproducible
@given(counts())
def test_removing_one_variable_at_random(case):
    """n T(n−1, N) = (n − N − 1) T(n, N) + N T(n, N+1), for the sum T of the N largest of n.

    The one removed is among the N largest with probability N/n and then takes their mean along.
    """
    n, count, df = case
    left = n * expected_top_sum(n - 1, count, df)
    terms = (
        (n - count - 1) * expected_top_sum(n, count, df),
        count * expected_top_sum(n, count + 1, df),
    )
    assert left == pytest.approx(sum(terms), rel=4 * PROMISED)


@reproducible
@given(budgets(side=20), st.sampled_from(FORMULAS))
def test_errors_lie_between_nothing_and_everything_and_fall_with_rank(budget, method):
    assume(METHODS[method].exists(budget))
    error = exact_error(method, budget)
    lowest = -4 / (budget.p * budget.q) if method == "lower bound" else 0
    assert lowest - ROUNDING <= error <= 1
    if budget.r > 1:
        smaller = Budget(budget.p, budget.q, budget.r - 1, budget.accounting, budget.value_bits)
        if METHODS[method].exists(smaller):
            assert exact_error(method, smaller) >= error - ROUNDING
    if method != "rate-distortion":
        assert -ROUNDING <= find_method(method).limit(budget) <= 1


def has_one_best_direction(matrix, r):
    """Whether the unit columns have one best rank-r approximation; DoRA keeps any of several."""
    lengths = np.linalg.norm(matrix, axis=0)
    values = np.linalg.svd(matrix / np.where(lengths > 0, lengths, 1), compute_uv=False)
    return r == len(values) or values[r - 1] - values[r] > 1e-3 * values[0]


@reproducible
@given(matrices(), st.sampled_from(APPROXIMATING), seeds)
def test_what_is_kept_and_what_is_lost_make_up_the_whole(case, method, seed):
    matrix, budget = case
    assume(method != "DoRA" or has_one_best_direction(matrix, budget.r))
    tensor = torch.from_numpy(matrix)
    ours = approximate(tensor, method, budget, np.random.default_rng(seed)).numpy()
    retained = retained_energies(tensor, method, [budget], np.random.default_rng(seed))[0]
    total = np.sum(matrix**2)
    assert abs(retained + np.sum((matrix - ours) ** 2) - total) <= ROUNDING * max(total, 1e-290)
