"""The closed forms against simulation of their definitions and against the figures in the notes."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, optimize, special

from loca_theory.dependence.closed_forms import (
    limit_boundary,
    low_rank_loss_with_shared_mean,
    selection_loss_with_shared_mean,
    selection_loss_with_spike,
)
from loca_theory.dependence.design import Protocol
from loca_theory.dependence.draws import Blocks, DrawCell, evaluate
from loca_theory.dependence.predictions import Prediction, predictions
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.expressivity import Budget, exact_error
from loca_theory.expressivity.limits import low_rank_fraction

# Two-sided normal quantile for a family-wise 1e-4 over the comparisons below, at most 20.
Z = 4.6


@pytest.mark.parametrize("aspect", [1.0, 0.25], ids="aspect {}".format)
def test_boundary_solves_its_equation_and_rises(aspect):
    """At the paper's budget (p + q)r/2 of the pq coefficients."""
    ratios = [0.01, 0.05, 0.1, 0.2, 0.3]
    fractions = [limit_boundary(ratio, aspect) for ratio in ratios]
    assert fractions == sorted(fractions)
    for ratio, fraction in zip(ratios, fractions, strict=True):
        loss = selection_loss_with_spike(fraction / (1 - fraction), ratio * (1 + aspect) / 2)
        assert loss == pytest.approx(1 - low_rank_fraction(ratio, aspect), abs=1e-10)


SHARED = [("shared-mean", 60, 60, 0.3), ("equicorrelated", 80, 40, 0.15)]


@pytest.mark.parametrize(("structure", "p", "q", "rho"), SHARED)
def test_losses_with_a_shared_mean_match_their_simulation(structure, p, q, rho):
    r, draws = 6, (0, 200)
    simulated = Blocks([evaluate(DrawCell(STRUCTURES[structure], rho, p, q, (r,), 3, draws))])
    (prediction,) = predictions([Budget(p, q, r)])
    for method, slack in (("LoCA", 0.0), ("LoRA", 5 / (p * q))):
        mean, error = simulated.losses(method)
        # D is exact; R lacks terms of the next order in the spiked model.
        gap = mean[0] - prediction.error(STRUCTURES[structure], method, rho)
        assert abs(gap) < Z * error[0] + slack


def test_predictions_start_from_exact_losses_at_independence():
    smallest, three = predictions([Budget(30, 20, 1), Budget(30, 20, 3)])
    assert smallest.loss == pytest.approx(exact_error("LoRA", Budget(30, 20, 1)), abs=1e-13)
    assert smallest.loss_without == 1.0
    assert three.loss == pytest.approx(exact_error("LoRA", Budget(30, 20, 3)), abs=1e-13)
    assert three.loss_without == pytest.approx(exact_error("LoRA", Budget(29, 19, 2)), abs=1e-13)
    for name in ("shared-mean", "equicorrelated"):
        assert three.error(STRUCTURES[name], "LoRA", 0.0) == pytest.approx(three.loss, abs=1e-13)


def test_a_shared_mean_of_no_variance_is_independence():
    budget = Budget(40, 30, 3)
    assert low_rank_loss_with_shared_mean(40, 30, 0.0, 0.7, 0.8) == 0.7
    loss = selection_loss_with_shared_mean(budget, 1.0, 1.0)
    assert loss / 1200 == pytest.approx(exact_error("LoCA", budget), rel=1e-12)
    assert selection_loss_with_shared_mean(budget, 0.0, 5.0) == 0.0


def test_predicted_crossings_are_roots_and_none_under_the_same_draw():
    """11ᵀ is one coefficient of the DCT and a whole rank of LoRA's."""
    prediction = Prediction(Budget(300, 300, 8), 0.90291, 0.91405)
    for structure in map(STRUCTURES.get, ("shared-mean", "equicorrelated")):
        assert prediction.crossing(structure, Protocol.SAME_DRAW, 0.0, 0.4) is None
        root = prediction.crossing(structure, Protocol.IID_REFERENCE, 0.0, 0.4)
        assert root is not None
        at_root = prediction.error(structure, "LoRA", root)
        assert at_root == pytest.approx(exact_error("LoCA", prediction.budget), abs=1e-10)
    spiked = STRUCTURES["spiked"]
    fraction = prediction.crossing(spiked, Protocol.SAME_DRAW, 0.0, 0.4)
    assert fraction is not None
    low_rank, selected = (prediction.error(spiked, method, fraction) for method in ("LoRA", "LoCA"))
    assert low_rank == pytest.approx(selected, abs=1e-10)
    assert prediction.crossing(STRUCTURES["ar1"], Protocol.SAME_DRAW, 0.0, 0.4) is None


@pytest.mark.parametrize("t", [1e-6, 0.3, 10.0, 1e3, 1e6])
@pytest.mark.parametrize("retained", [0.01, 0.2, 0.8])
def test_the_mixture_is_integrated_at_any_strength(t, retained):
    edges = [0.0, *(10.0**k for k in range(-6, 1)), 3.0, 12.0]

    def mean(f):
        def density(g):
            return f(1 + t * g * g) * np.exp(-g * g / 2) * np.sqrt(2 / np.pi)

        pieces = (
            integrate.quad(density, *ends, epsabs=0, epsrel=1e-11) for ends in pairwise(edges)
        )
        return sum(value for value, _ in pieces)

    def excess(c):
        return mean(lambda v: special.erfc(c / np.sqrt(2 * v))) - retained

    c = optimize.brentq(excess, 1e-9, 40 * np.sqrt(1 + t))
    loss = mean(lambda v: v * special.gammainc(1.5, c * c / (2 * v)))
    assert selection_loss_with_spike(t, retained) == pytest.approx(loss, rel=1e-8)
