"""Separable structures: predictions against simulation of the same structure, and limits."""

import numpy as np
import pytest

from loca_theory.dependence import ar1, blocks
from loca_theory.dependence.closed_forms import cosine_variances, selection_loss_of_separable
from loca_theory.dependence.draws import Blocks, DrawCell, evaluate
from loca_theory.dependence.predictions import Prediction
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.expressivity import Budget, exact_error
from loca_theory.transforms.matrices import dct_matrix

# Two-sided normal quantile for a family-wise 1e-4 over at most 40 comparisons.
Z = 4.8
SEPARABLE = [name for name, structure in STRUCTURES.items() if structure.factors(4, 4, 0.0)]


def gaps(structure, value, p, q, r, draws):
    """Simulated minus predicted loss of D and S, and the standard errors."""
    simulated = Blocks([evaluate(DrawCell(structure, value, p, q, (r,), 3, (0, draws)))])
    prediction = Prediction(Budget(p, q, r), 1.0, 1.0)
    for method in ("LoCA", "entries"):
        mean, error = simulated.losses(method)
        yield method, mean[0] - prediction.error(structure, method, value), error[0]


# The structure, its value, and the methods whose coordinates are independent.
CASES = [
    (STRUCTURES["row-equicorrelated"], 0.5, "LoCA"),
    (blocks(24), 0.5, "LoCA"),
    (blocks(4), 0.5, ""),
    (STRUCTURES["scaled"], 0.7, "entries"),
    (ar1(-0.3), 0.8, ""),
]


@pytest.mark.parametrize(("structure", "value", "exact"), CASES)
def test_predictions_are_the_means_of_the_draws(structure, value, exact):
    p, q = 24, 24
    for method, gap, error in gaps(structure, value, p, q, 2, 200):
        # Where coordinates are correlated, the prediction is low by the number of those that
        # fluctuate together over pq: here less than 4 of the 576.
        slack = 0.0 if method in exact else 4 / (p * q)
        assert -Z * error < gap < Z * error + slack, method


@pytest.mark.parametrize("name", SEPARABLE)
def test_independence_is_the_special_case(name):
    budget = Budget(30, 18, 2)
    for method in ("LoCA", "entries"):
        got = Prediction(budget, 1.0, 1.0).error(STRUCTURES[name], method, 0.0)
        assert got == pytest.approx(exact_error(method, budget), rel=1e-12)


@pytest.mark.parametrize("structure", [ar1(0.2), blocks(3)], ids=["ar1", "blocks"])
def test_cosine_variances_are_those_of_the_definition_and_not_negative(structure):
    c = dct_matrix(9).numpy()
    for factor in structure.factors(9, 9, 0.7):
        expected = np.diag(c @ factor @ c.T)
        np.testing.assert_allclose(cosine_variances(factor), expected, rtol=0, atol=1e-13)
    assert cosine_variances(blocks(8).factors(8, 8, 1.0)[0]).min() >= 0
    assert selection_loss_of_separable(np.zeros(3), np.ones(3), 1) == 0.0
