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
from loca_theory.expressivity.bidiagonal import sample_leading_eigenvalues
from loca_theory.expressivity.limits import (
    coefficient_fraction,
    location_fraction,
    low_rank_fraction,
)
from loca_theory.expressivity.low_rank_exact import expected_leading_energy
from loca_theory.expressivity.methods.coordinates import CoordinateMethod
from loca_theory.expressivity.methods.registry import find_method
from loca_theory.expressivity.order_statistics import expected_location_sum, expected_top_sum
from loca_theory.expressivity.random_choices import first_hits, random_indices
from loca_theory.sweeps.random import Moments
from loca_theory.transforms.half_spectrum import HalfSpectrum

reproducible = settings(max_examples=30, deadline=None, derandomize=True, database=None)

# What the exact sums promise; other comparisons are of a few hundred float64 operations.
PROMISED = 1e-13
ROUNDING = 1e-10

FORMULAS = [name for name in METHODS if "exact" in METHODS[name].engines(Budget(2, 2, 1))]
REDUCED = ["R", *(m.name for m in METHODS.values() if isinstance(m, CoordinateMethod))]
PROJECTING = ["R", "D", "F2", "F3", "S"]
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
@given(counts())
def test_sums_grow_with_each_variable_by_less_than_with_the_one_before(case):
    n, count, df = case
    sums = [expected_top_sum(n, k, df) for k in (count - 1, count, count + 1)]
    slack = 4 * PROMISED * sums[2]
    assert sums[0] < sums[1] + slack
    assert sums[1] < sums[2] + slack
    assert sums[2] - sums[1] <= sums[1] - sums[0] + slack
    assert count * df * (1 - ROUNDING) <= sums[1] <= n * df * (1 + ROUNDING)


@reproducible
@given(st.integers(1, 200), st.integers(1, 200), st.data())
def test_the_brackets_hold_for_every_shape(p, q, data):
    half = HalfSpectrum(p, q)
    s, m = half.self_conjugate_count, half.pair_count
    count = data.draw(st.integers(0, s + m + 2))
    below, kept, above = (
        expected_top_sum(m, count, 2),
        expected_location_sum(half, count),
        expected_top_sum(m + s, count, 2),
    )
    slack = 4 * PROMISED * p * q
    assert below <= kept + slack
    assert kept <= min(above, p * q) + slack
    assert expected_location_sum(HalfSpectrum(q, p), count) == kept


@reproducible
@given(budgets())
def test_counts_fit_the_matrix_and_its_transpose(budget):
    n, half = budget.p * budget.q, budget.half_spectrum
    assert 0 <= budget.random_locations <= half.location_count
    assert 0 <= budget.chosen_locations <= half.location_count
    assert 0 <= budget.random_coefficients <= n
    assert 0 <= budget.chosen_coefficients <= n
    turned = Budget(budget.q, budget.p, budget.r, budget.accounting, budget.value_bits)
    for name in ("random_locations", "random_coefficients", "chosen_locations", "bits"):
        assert getattr(turned, name) == getattr(budget, name)
    # An index never makes an item cheaper.
    assert budget.chosen_locations <= budget.random_locations or (
        budget.accounting is Accounting.MAIN_TEXT
    )
    assert budget.chosen_coefficients <= budget.random_coefficients


@reproducible
@given(budgets(side=20), st.sampled_from(FORMULAS))
def test_errors_lie_between_nothing_and_everything_and_fall_with_rank(budget, method):
    assume(METHODS[method].exists(budget))
    error = exact_error(method, budget)
    least = -4 / (budget.p * budget.q) if method == "M2" else 0
    assert least - ROUNDING <= error <= 1
    if budget.r > 1:
        smaller = Budget(budget.p, budget.q, budget.r - 1, budget.accounting, budget.value_bits)
        if METHODS[method].exists(smaller):
            assert exact_error(method, smaller) >= error - ROUNDING
    if method != "RD":
        assert -ROUNDING <= find_method(method).limit(budget) <= 1


@reproducible
@given(budgets())
def test_one_law_for_every_orthonormal_basis(budget):
    assert exact_error("D", budget) == exact_error("F3", budget) == exact_error("S", budget)


@reproducible
@given(st.integers(1, 12), st.integers(1, 60))
def test_leading_energies_are_concave_and_complete(small, large):
    energies = expected_leading_energy(small, large)
    assert energies[-1] == pytest.approx(small * large, rel=ROUNDING)
    each = np.diff(energies)
    assert (each > 0).all()
    assert (np.diff(each) < ROUNDING * small * large).all()
    # A best rank-one fit beats any single row, column or entry.
    assert energies[1] >= max(small, large) - ROUNDING


fractions = st.just(0.0) | st.floats(1e-9, 1)


@reproducible
@given(fractions, fractions, st.floats(0.001, 1))
def test_limiting_fractions_are_increasing_and_favourable(one, other, aspect):
    low, high = sorted((one, other))
    for function in (
        coefficient_fraction,
        location_fraction,
        lambda x: low_rank_fraction(x, aspect),
    ):
        assert function(low) <= function(high) + ROUNDING
        assert low - ROUNDING <= function(low) <= 1 + ROUNDING


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
    kept = retained_energies(tensor, method, [budget], np.random.default_rng(seed))[0]
    total = np.sum(matrix**2)
    assert abs(kept + np.sum((matrix - ours) ** 2) - total) <= ROUNDING * max(total, 1e-290)


@reproducible
@given(matrices(), st.sampled_from(PROJECTING))
def test_approximating_an_approximation_changes_nothing(case, method):
    matrix, budget = case
    once = approximate(torch.from_numpy(matrix), method, budget)
    twice = approximate(once, method, budget)
    scale = max(float(torch.linalg.vector_norm(once)), 1e-290)
    assert float(torch.linalg.vector_norm(twice - once)) <= ROUNDING * scale


@reproducible
@given(matrices(), seeds)
def test_choosing_beats_chance_and_freedom_beats_form(case, seed):
    """With locations free: as many chosen coefficients as random ones, as many locations.

    Single coefficients are freer than locations, and no other matrix of rank r beats LoRA's.
    """
    matrix, paper = case
    tensor, total = torch.from_numpy(matrix), np.sum(matrix**2)
    budget = Budget(paper.p, paper.q, paper.r, Accounting.TRAINABLE)
    kept = {
        method: retained_energies(tensor, method, [budget], np.random.default_rng(seed))[0]
        for method in APPROXIMATING
    }
    slack = ROUNDING * max(total, 1e-290)
    assert all(-slack <= value <= total + slack for value in kept.values())
    for better, worse in [("D", "V1"), ("F2", "F1"), ("F3", "F2"), ("R", "DoRA"), ("R", "VeRA")]:
        assert kept[better] >= kept[worse] - slack


@reproducible
@given(matrices(), st.sampled_from(PROJECTING))
def test_transposing_changes_no_energy(case, method):
    matrix, budget = case
    turned = Budget(budget.q, budget.p, budget.r)
    kept = retained_energies(torch.from_numpy(matrix), method, [budget])[0]
    other = retained_energies(torch.from_numpy(matrix.T.copy()), method, [turned])[0]
    assert other == pytest.approx(kept, rel=ROUNDING, abs=1e-290)


@reproducible
@given(budgets(side=14), st.sampled_from(REDUCED), seeds, st.data())
def test_a_reduced_draw_of_a_smaller_budget_is_a_prefix(budget, method, seed, data):
    r = data.draw(st.integers(1, budget.r))
    smaller = Budget(budget.p, budget.q, r, budget.accounting, budget.value_bits)
    both = METHODS[method].sample([budget, smaller], np.random.default_rng(seed))
    alone = METHODS[method].sample([smaller], np.random.default_rng(seed))
    assert alone[0] == pytest.approx(both[1], abs=ROUNDING)
    assert both[0] <= both[1] + ROUNDING
    assert both[1] <= 1


@reproducible
@given(st.integers(1, 80), st.integers(1, 80), seeds, st.data())
def test_the_bidiagonal_model_is_cut_without_a_trace(p, q, seed, data):
    small = min(p, q)
    r = data.draw(st.integers(1, small))
    some, total = sample_leading_eigenvalues(p, q, r, np.random.default_rng(seed))
    every, same = sample_leading_eigenvalues(p, q, small, np.random.default_rng(seed))
    assert total == same
    # LAPACK's backward error is a modest multiple of small·eps·‖T‖, and ten of them are allowed.
    atol = 10 * small * np.finfo(float).eps * every[0]
    np.testing.assert_allclose(some, every[:r], rtol=0, atol=atol)
    assert every.sum() == pytest.approx(total, rel=ROUNDING)


@reproducible
@given(st.integers(1, 200), seeds, st.data())
def test_locations_are_different_and_start_alike(n, seed, data):
    count = data.draw(st.integers(0, n))
    indices = random_indices(n, count, np.random.default_rng(seed))
    assert len(set(indices.tolist())) == count
    whole = random_indices(n, n, np.random.default_rng(seed))
    assert sorted(whole.tolist()) == list(range(n))
    np.testing.assert_array_equal(indices, whole[:count])


@reproducible
@given(st.integers(1, 12), st.integers(1, 12), seeds, st.data())
def test_first_hits_are_those_of_a_loop(p, q, seed, data):
    count = data.draw(st.integers(0, p * q))
    indices = np.random.default_rng(seed).permutation(p * q)[:count]
    met, expected = set(), []
    for i, j in (divmod(set_indices, q) for set_indices in indices.tolist()):
        pair = frozenset([(i, j), (-i % p, -j % q)])
        expected.append(pair not in met)
        met.add(pair)
    np.testing.assert_array_equal(first_hits(indices, p, q), np.array(expected, dtype=bool))


@reproducible
@given(
    arrays.arrays(
        np.float64, st.tuples(st.integers(2, 30), st.integers(1, 3)), elements=st.floats(-1e6, 1e6)
    ),
    st.data(),
)
def test_moments_of_blocks_are_those_of_the_whole(values, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, len(values) - 1), max_size=4)))
    merged = Moments.merge([Moments.of(block) for block in np.split(values, cuts)])
    whole = Moments.of(values)
    scale = np.abs(values).max() or 1.0
    assert merged.count == whole.count
    np.testing.assert_allclose(merged.mean, whole.mean, rtol=0, atol=1e-13 * scale)
    np.testing.assert_allclose(merged.squares, whole.squares, rtol=0, atol=1e-11 * scale**2)
