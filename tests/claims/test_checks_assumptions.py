"""Checks of single assumptions and interpretations, against exact values."""

from inspect import signature
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from loca_theory.claims.checks import assumptions, convergence, theorems, variants
from loca_theory.claims.estimates import Tier
from loca_theory.convergence.interpretations import Interpretation
from loca_theory.convergence.problems import Family, draw
from loca_theory.convergence.searches import SEARCHES
from loca_theory.convergence.simulation import ToyCell, evaluate_trace
from loca_theory.convergence.state import Rates
from loca_theory.convergence.study import DEFAULT_STEPS


def quick(check, **arguments):
    """What a check measures at the quick tier, with what it asks for of tier and rng."""
    given = {"tier": Tier.QUICK, "rng": np.random.default_rng(0)}
    return check(**{name: given[name] for name in signature(check).parameters if name in given},
                 **arguments)  # fmt: skip


def total_variation(law):
    """From the normal law of the same variance."""
    x = np.linspace(-30, 30, 200_001)
    gap = np.abs(law.pdf(x) - stats.norm.pdf(x, scale=law.std()))
    return float(np.trapezoid(gap, x)) / 2


# An estimate from 8000 or 16,000 entries is biased by up to 0.007 where the distance is near 0, and
# bins of a quarter of a standard deviation hide a part of it that is smaller.
BIAS = 0.007


def test_least_squares_errors_have_the_distance_of_students_law():
    """Normal errors of the outputs make an entry Student's with n − 7 degrees of freedom."""
    part = quick(assumptions.errors_alone, estimator="least-squares", law="normal", samples=14)
    expected = total_variation(stats.t(7))
    assert expected > 0.04
    assert part.value == pytest.approx(expected, abs=5 * part.standard_error + BIAS)


def test_for_many_samples_the_prior_decides_the_law():
    part = quick(assumptions.prior_distance, prior="laplace", samples=10**6)
    expected = total_variation(stats.laplace())
    assert part.value == pytest.approx(expected, abs=5 * part.standard_error + BIAS)


@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_correlations_are_those_of_the_inverse_covariance_and_the_prior(spread):
    """The errors have the covariance Σ⁻¹/(n − 9), the prior adds a multiple of I."""
    n, own = 200, np.arange(8)
    covariance = np.linalg.inv(0.5 ** np.abs(np.subtract.outer(own, own))) / (n - 9)
    covariance += spread**2 * np.eye(8)
    expected = np.diag(covariance, 1).mean() / np.diag(covariance).mean()
    part = quick(assumptions.prior_correlation, ar=0.5, samples=n, spread=spread)
    assert part.value == pytest.approx(expected, abs=5 * part.standard_error)


def test_normal_errors_exceed_three_standard_deviations_as_often_as_students_law():
    n = 16
    (part,) = quick(assumptions.pre_training, law="normal", samples=[n]).values()
    # √(n − 7) w is Student's with n − 7 degrees of freedom.
    expected = 2 * stats.t(n - 7).sf(3 * np.sqrt((n - 7) / n))
    assert part.value == pytest.approx(expected, abs=5 * np.sqrt(expected / part.n))


def test_noise_in_the_place_of_vera_retains_what_noise_retains():
    found, _ = quick(variants.vera_like_noise, size=32, ranks=[8, 32], method="noise")
    for part in found.values():
        assert abs(part.value) < 5 * part.standard_error


def test_without_rounding_the_ordering_fails_at_four_alone():
    found, note = quick(theorems.small_sizes, rounding="none")
    assert found == 1
    assert "K = 4, r = 1: LoRA 0.3668, Fourier pairs 0.3695" in note


@pytest.mark.parametrize(
    ("accounting", "expected"), [("paper", 0.413), ("dof", 0.32675), ("main-text", 0.0)]
)
def test_the_ordering_in_the_limit_ends_where_errors_meet(accounting, expected):
    found, _ = quick(theorems.limit_threshold, accounting=accounting)
    assert found == pytest.approx(expected, abs=5e-4)


def test_a_visited_state_is_that_of_the_trace():
    step = 1020  # the trace has every 20th step
    chosen: Any = SimpleNamespace(choice=lambda _, n: np.full(n, step))
    problems = draw(Family(), Interpretation(), 3, range(1))
    ((indices, coefficients),) = convergence._visited(chosen, problems)
    cell = ToyCell(
        Family(),
        Interpretation(),
        SEARCHES["central"],
        Rates(),
        DEFAULT_STEPS,
        3,
        (0, 1),
        is_traced=True,
    )
    trace = evaluate_trace(cell)
    expected = trace["components"][trace["steps"].index(step)]
    assert [[*divmod(int(i), 6)] for i in indices] == [one[:2] for one in expected]
    np.testing.assert_allclose(coefficients, [one[2] for one in expected])


def test_no_component_moves_in_the_first_phase_and_some_stay_to_the_end():
    def fraction(after):
        return quick(convergence.first_move, interpretation="default", after=after)[0].value

    assert fraction(10) == 1.0
    assert 0 <= fraction(DEFAULT_STEPS // 2) < fraction(11) < 1.0
