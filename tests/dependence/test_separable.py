"""Separable structures: predictions against simulation of the same structure, and limits."""

import numpy as np
import pytest

from loca_theory.dependence import ar1, blocks, correlate
from loca_theory.dependence.draws import Blocks, DrawCell, evaluate
from loca_theory.dependence.predictions import Prediction
from loca_theory.dependence.separable import cosine_variances, selection_loss_of_separable
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Budget, exact_error
from loca_theory.sweeps import Runner
from loca_theory.transforms.matrices import dct_matrix

# Two-sided normal quantile for a family-wise 1e-4 over at most 40 comparisons.
Z = 4.8
SEPARABLE = [name for name, structure in STRUCTURES.items() if structure.factors]


def gaps(structure, value, p, q, r, draws):
    """Simulated minus predicted loss of D and S, and the standard errors."""
    simulated = Blocks([evaluate(DrawCell(structure, value, p, q, (r,), 3, (0, draws)))])
    prediction = Prediction(Budget(p, q, r), 1.0, 1.0)
    for method in "DS":
        mean, error = simulated.losses(method)
        yield method, mean[0] - prediction.error(structure, method, value), error[0]


# The structure, its value, and the methods whose coordinates are independent.
CASES = [
    pytest.param(STRUCTURES["row-equicorrelated"], 0.5, "D", id="equicorrelated rows"),
    pytest.param(blocks(24), 0.5, "D", id="one block"),
    pytest.param(blocks(4), 0.5, "", id="blocks"),
    pytest.param(STRUCTURES["scaled"], 0.7, "S", id="scaled"),
    pytest.param(ar1(), 0.5, "", id="AR(1)"),
    pytest.param(ar1(-0.3), 0.8, "", id="AR(1) of two correlations"),
]


@pytest.mark.parametrize(("structure", "value", "exact"), CASES)
def test_predictions_are_the_means_of_the_draws(structure, value, exact):
    p, q = 24, 24
    for method, gap, error in gaps(structure, value, p, q, 2, 200):
        # Where coordinates are correlated, the prediction is low by the number of those that
        # fluctuate together over pq: here less than 4 of the 576.
        slack = 0.0 if method in exact else 4 / (p * q)
        assert -Z * error < gap < Z * error + slack, method


@pytest.mark.deep
@pytest.mark.parametrize("rho", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("option", [None, 0.5])
def test_cosine_coefficients_of_an_autoregression_are_nearly_independent(option, rho):
    (_, gap, error), _ = gaps(ar1(option), rho, 32, 48, 3, 2000)
    assert abs(gap) < Z * error + 4 / (32 * 48)


def test_strong_correlation_makes_the_prediction_of_entries_too_low():
    """Correlated coordinates retain less than independent ones of the same variances."""
    _, (_, gap, error) = gaps(ar1(), 0.95, 16, 16, 2, 400)
    assert gap > Z * error


@pytest.mark.parametrize("name", SEPARABLE)
@pytest.mark.parametrize(("p", "q"), [(24, 24), (30, 18)], ids=["24x24", "30x18"])
def test_independence_is_the_special_case(name, p, q):
    budget = Budget(p, q, 2)
    for method in "DS":
        got = Prediction(budget, 1.0, 1.0).error(STRUCTURES[name], method, 0.0)
        assert got == pytest.approx(exact_error(method, budget), rel=1e-12)


def test_the_unit_does_not_matter():
    a = cosine_variances(STRUCTURES["ar1"].factors(20, 20, 0.6)[0])
    expected = selection_loss_of_separable(a, a, 40)
    assert selection_loss_of_separable(1e4 * a, 1e-9 * a, 40) == pytest.approx(expected, rel=1e-10)


def test_no_basis_retains_less_than_the_entries_of_equal_variances():
    for rho in (0.2, 0.5, 0.8):
        variances = [cosine_variances(one) for one in STRUCTURES["ar1"].factors(20, 30, rho)]
        entries = selection_loss_of_separable(np.ones(20), np.ones(30), 60)
        assert selection_loss_of_separable(*variances, 60) < entries


@pytest.mark.parametrize(
    "structure", [ar1(), ar1(0.2), blocks(3)], ids=["ar1", "ar1 of two sides", "blocks"]
)
def test_cosine_variances_are_those_of_the_definition(structure):
    c = dct_matrix(9).numpy()
    for factor in structure.factors(9, 9, 0.7):
        np.testing.assert_allclose(
            cosine_variances(factor), np.diag(c @ factor @ c.T), rtol=0, atol=1e-13
        )


def test_a_variance_of_zero_is_not_negative():
    factor = blocks(8).factors(8, 8, 1.0)[0]
    assert cosine_variances(factor).min() >= 0
    assert selection_loss_of_separable(np.zeros(3), np.ones(3), 1) == 0.0


def test_prediction_and_simulation_stand_side_by_side():
    result = correlate(
        shape=(12, 18), ranks=2, structures=(ar1(0.1), "blocks:3"), rho=(0.0, 0.4),
        protocols="same-draw", draws=4, null_draws=400, runner=Runner(jobs=1),
    )  # fmt: skip
    predicted = {
        (row.structure, row.method): row.closed_form for row in result.rows if row.value == 0.4
    }
    assert predicted["ar1", "R"] is None
    for structure in (ar1(0.1), blocks(3)):
        a, b = structure.factors(12, 18, 0.4)
        loss = selection_loss_of_separable(cosine_variances(a), cosine_variances(b), 30)
        assert predicted[structure.name, "D"] == loss
        assert predicted[structure.name, "S"] == pytest.approx(exact_error("S", Budget(12, 18, 2)))
    assert result.manifest["grid"]["options"] == {"ar1": 0.1, "blocks": 3}


def test_two_correlations_are_the_same_whichever_side_has_which():
    """W and its transpose have the same singular values and, up to order, coefficients."""
    one, other = ar1(0.2).factors(9, 9, 0.7), ar1(0.7).factors(9, 9, 0.2)
    np.testing.assert_array_equal(one[0], other[1])
    np.testing.assert_array_equal(one[1], other[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(
            lambda: selection_loss_of_separable(np.ones((2, 2)), np.ones(2), 1),
            r"vectors, not of shapes \(2, 2\) and \(2,\)",
            id="matrix",
        ),
        pytest.param(
            lambda: selection_loss_of_separable([-1.0, 2.0], [1.0], 1),
            "not negative",
            id="negative",
        ),
    ],
)
def test_refusals(call, message):
    with pytest.raises(InvalidArgumentError, match=message):
        call()
