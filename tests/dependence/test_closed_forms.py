"""The closed forms against simulation of their definitions and against the figures in the notes."""

import numpy as np
import pytest

from loca_theory.dependence.closed_forms import (
    energy_retained_with_spike,
    limit_boundary,
    low_rank_loss_with_shared_mean,
    low_rank_loss_with_spike,
    selection_loss_with_shared_mean,
    selection_loss_with_spike,
)
from loca_theory.dependence.draws import Blocks, DrawCell, evaluate
from loca_theory.dependence.predictions import Prediction, predictions
from loca_theory.dependence.protocols import Protocol
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Budget, exact_error, spectral_error
from loca_theory.expressivity.limits import coefficient_fraction, low_rank_fraction
from loca_theory.sweeps.random import Moments

# Two-sided normal quantile for a family-wise 1e-4 over the comparisons below, at most 20.
Z = 4.6


@pytest.mark.parametrize("retained", [0.01, 0.1, 0.5])
def test_without_a_spike_selection_loses_what_d_loses(retained):
    assert selection_loss_with_spike(0.0, retained) == pytest.approx(
        1 - coefficient_fraction(retained), abs=1e-12
    )


@pytest.mark.parametrize(("t", "retained"), [(0.1, 0.05), (0.5, 0.1), (2.0, 0.02)])
def test_selection_loss_is_that_of_the_mixture(t, retained):
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(200):
        x = np.sqrt(t) * rng.standard_normal(20000) * rng.standard_normal(20000)
        energies = np.sort((x + rng.standard_normal(20000)) ** 2)
        losses.append(energies[: round((1 - retained) * len(energies))].mean() * (1 - retained))
    mean, error = np.mean(losses), np.std(losses, ddof=1) / np.sqrt(len(losses))
    # The finite sample's own bias is of order 1/n, here 5e-5 of the loss at most.
    assert abs(mean - selection_loss_with_spike(t, retained)) < Z * error + 1e-4


def test_low_rank_loss_matches_dense_matrices_with_a_spike():
    p, q, r, t = 120, 90, 5, 0.5
    rng = np.random.default_rng(1)
    losses, without = [], []
    for _ in range(150):
        u, v = rng.standard_normal(p), rng.standard_normal(q)
        z = rng.standard_normal((p, q))
        spike = np.outer(u / np.linalg.norm(u), v / np.linalg.norm(v)) * np.sqrt(t * p * q)
        energies = np.linalg.svd(z + spike, compute_uv=False) ** 2
        losses.append(energies[r:].sum() / (p * q))
        rest = np.linalg.svd(z[1:, 1:], compute_uv=False) ** 2
        without.append(rest[r - 1 :].sum() / ((p - 1) * (q - 1)))
    formula = low_rank_loss_with_spike(p, q, t, float(np.mean(without)))
    error = np.hypot(np.std(losses, ddof=1), np.std(without, ddof=1)) / np.sqrt(len(losses))
    # Exact to leading order; the next is smaller by 1/(pq).
    assert abs(np.mean(losses) - formula) < Z * error + 5 / (p * q)


def test_simulated_methods_meet_at_the_crossing():
    size, r, draws = 120, 12, 150
    (prediction,) = predictions([Budget(size, size, r)])
    fraction = prediction.crossing(STRUCTURES["spiked"], Protocol.SAME_DRAW, 0.0, 0.9)
    assert fraction is not None
    given = DrawCell(STRUCTURES["spiked"], fraction, size, size, (r,), 0, (0, draws))
    gap = Moments.from_json(evaluate(given)["gap"])
    # What the formula leaves out is of order 1/K².
    assert gap.standard_error is not None
    assert abs(gap.mean[0]) < Z * gap.standard_error[0] + 5 / size**2


@pytest.mark.parametrize("aspect", [1.0, 0.25], ids="aspect {}".format)
def test_boundary_solves_its_equation_and_rises(aspect):
    """At the paper's budget (p + q)r/2 of the pq coefficients."""
    ratios = [0.01, 0.05, 0.1, 0.2, 0.3]
    fractions = [limit_boundary(ratio, aspect) for ratio in ratios]
    assert fractions == sorted(fractions)
    for ratio, fraction in zip(ratios, fractions, strict=True):
        loss = selection_loss_with_spike(fraction / (1 - fraction), ratio * (1 + aspect) / 2)
        assert loss == pytest.approx(1 - low_rank_fraction(ratio, aspect), abs=1e-10)


def test_energy_retained_with_a_spike_is_that_of_its_singular_values():
    """The term of finite sizes is of order 1/size."""
    size, r = 8192, 512
    for fraction in (0.0, 0.1, 0.6):
        values = np.sqrt(np.append(fraction, np.full(size - 1, (1 - fraction) / (size - 1))))
        expected = 1 - spectral_error(values, "D", Budget(size, size, r))
        assert energy_retained_with_spike(fraction, r / size) == pytest.approx(expected, abs=2e-4)


def test_finite_crossing_tends_to_the_boundary():
    # The rank is too large for exact losses, so their limits stand for them.
    (prediction,) = predictions([Budget(20000, 20000, 2000)])
    assert prediction.loss_without == 1 - low_rank_fraction(1999 / 19999)
    fraction = prediction.crossing(STRUCTURES["spiked"], Protocol.SAME_DRAW, 0.0, 0.9)
    assert fraction == pytest.approx(limit_boundary(0.1), abs=1e-3)


@pytest.mark.parametrize(
    ("structure", "p", "q", "rho"),
    [
        ("shared-mean", 60, 60, 0.3),
        ("equicorrelated", 60, 60, 0.05),
        ("equicorrelated", 80, 40, 0.15),
    ],
)
def test_losses_with_a_shared_mean_match_their_simulation(structure, p, q, rho):
    r, draws = 6, (0, 200)
    simulated = Blocks([evaluate(DrawCell(STRUCTURES[structure], rho, p, q, (r,), 3, draws))])
    (prediction,) = predictions([Budget(p, q, r)])
    for method, slack in (("D", 0.0), ("R", 5 / (p * q))):
        mean, error = simulated.losses(method)
        # D is exact; what the spiked model leaves out of R is of the next order.
        gap = mean[0] - prediction.error(STRUCTURES[structure], method, rho)
        assert abs(gap) < Z * error[0] + slack


def test_predictions_start_from_exact_losses_at_independence():
    one, three = predictions([Budget(30, 20, 1), Budget(30, 20, 3)])
    assert one.loss == pytest.approx(exact_error("R", Budget(30, 20, 1)), abs=1e-13)
    assert one.loss_without == 1.0
    assert three.loss == pytest.approx(exact_error("R", Budget(30, 20, 3)), abs=1e-13)
    assert three.loss_without == pytest.approx(exact_error("R", Budget(29, 19, 2)), abs=1e-13)
    for name in ("shared-mean", "equicorrelated"):
        assert three.error(STRUCTURES[name], "R", 0.0) == pytest.approx(three.loss, abs=1e-13)


def test_a_shared_mean_of_no_variance_is_independence():
    budget = Budget(40, 30, 3)
    assert low_rank_loss_with_shared_mean(40, 30, 0.0, 0.7, 0.8) == 0.7
    loss = selection_loss_with_shared_mean(budget, 1.0, 1.0)
    assert loss / 1200 == pytest.approx(exact_error("D", budget), rel=1e-12)
    assert selection_loss_with_shared_mean(budget, 0.0, 5.0) == 0.0


def test_predicted_crossings_are_roots_and_none_under_the_same_draw():
    """11ᵀ is one coefficient of the DCT and a whole rank of LoRA's."""
    prediction = Prediction(Budget(300, 300, 8), 0.90291, 0.91405)
    for structure in map(STRUCTURES.get, ("shared-mean", "equicorrelated")):
        assert prediction.crossing(structure, Protocol.SAME_DRAW, 0.0, 0.4) is None
        root = prediction.crossing(structure, Protocol.IID_REFERENCE, 0.0, 0.4)
        assert root is not None
        at_root = prediction.error(structure, "R", root)
        assert at_root == pytest.approx(exact_error("D", prediction.budget), abs=1e-10)
    spiked = STRUCTURES["spiked"]
    fraction = prediction.crossing(spiked, Protocol.SAME_DRAW, 0.0, 0.4)
    assert fraction is not None
    low_rank, selected = (prediction.error(spiked, method, fraction) for method in "RD")
    assert low_rank == pytest.approx(selected, abs=1e-10)
    assert prediction.crossing(STRUCTURES["ar1"], Protocol.SAME_DRAW, 0.0, 0.4) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(
            lambda: selection_loss_with_spike(-1.0, 0.1), "t must not be", id="negative spike"
        ),
        pytest.param(
            lambda: selection_loss_with_spike(0.1, 1.0),
            "retained must lie strictly between 0 and 1",
            id="keeps all",
        ),
        pytest.param(
            lambda: energy_retained_with_spike(1.0, 0.1), "fraction must be", id="all in the spike"
        ),
        pytest.param(lambda: low_rank_loss_with_spike(10, 10, 0.01, 0.5), "hidden", id="hidden"),
        pytest.param(
            lambda: low_rank_loss_with_shared_mean(9, 9, -1.0, 0.5, 0.6), "spread must", id="mean"
        ),
        pytest.param(lambda: limit_boundary(0.5), "between 0 and 1/2", id="half"),
        pytest.param(lambda: limit_boundary(0.1, 2.0), r"aspect in \(0, 1\]", id="aspect above 1"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(InvalidArgumentError, match=message):
        call()
