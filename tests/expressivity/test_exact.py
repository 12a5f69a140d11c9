"""Exact expectations: enumerations on tiny matrices, the paper's printed formulas, Theorem 2."""

import json
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest

from loca_theory.expressivity import METHODS, Accounting, Budget, exact_error

# Sums of some hundred terms of order one; the functions behind promise a relative 1e-13.
ROUNDING = 1e-12

FITTING = [(2, 2, 1), (3, 3, 1), (4, 4, 1), (4, 4, 2), (5, 5, 2), (2, 3, 1), (3, 4, 1), (7, 4, 2)]
FITTING += [(6, 9, 2), (16, 16, 3), (31, 20, 4), (300, 300, 32), (768, 3072, 8)]
fitting = pytest.mark.parametrize(
    ("p", "q", "r"), FITTING, ids=[f"{p}x{q} r{r}" for p, q, r in FITTING]
)


def cosines(p, q):
    """Re of the inverse DFT of a unit at every location, as the rows of a pq×pq matrix."""
    units = np.eye(p * q).reshape(p * q, p, q)
    return np.fft.ifft2(units, axes=(1, 2)).real.reshape(p * q, p * q)


@pytest.mark.parametrize(
    ("p", "q", "r"),
    [(2, 2, 1), (2, 3, 1), (3, 2, 1), (3, 3, 1), (2, 4, 1), (3, 4, 1), (2, 6, 1)],
    ids=lambda value: str(value),
)
def test_fourierft_is_the_mean_over_every_choice_of_locations(p, q, r):
    """A least-squares fit keeps, of white noise, the dimension of its span."""
    budget = Budget(p, q, r)
    atoms = cosines(p, q)
    choices = [list(c) for c in combinations(range(p * q), (p + q) * r)]
    dimensions = np.linalg.matrix_rank(atoms[np.array(choices)], tol=1e-9)
    expected = 1 - dimensions.mean() / (p * q)
    assert exact_error("FourierFT", budget) == pytest.approx(expected, rel=ROUNDING, abs=ROUNDING)


@pytest.mark.parametrize("K", [2, 3, 4, 5, 10, 301, 768, 4095], ids=lambda K: f"K = {K}")
def test_f1_is_the_printed_formula(K):
    locations = (K**2 + 1) / 2 if K % 2 else K**2 / 2 + 2
    for r in {1, K // 4 or 1, K // 2}:
        printed = 1 - K * r / locations
        assert exact_error("F1", Budget(K, K, r)) == pytest.approx(printed, rel=ROUNDING)


def test_rate_distortion_by_hand():
    """64x64, r = 2, 16 bits: 4096 bits for 4096 entries, one each: 2⁻²."""
    assert exact_error("RD", Budget(64, 64, 2, value_bits=16)) == 0.25
    assert exact_error("RD", Budget(64, 64, 2, value_bits=8)) == 0.5


@pytest.mark.parametrize("accounting", [*Accounting], ids=[a.value for a in Accounting])
def test_theorem_2_d_f3_and_s_have_one_expectation(accounting):
    budget = Budget(7, 4, 2, accounting)
    assert exact_error("D", budget) == exact_error("F3", budget) == exact_error("S", budget)


@fitting
def test_brackets_choices_and_order(p, q, r):
    budget = Budget(p, q, r)
    errors = {
        name: exact_error(name, budget)
        for name, method in METHODS.items()
        if "exact" in method.engines(budget) and method.exists(budget)
    }
    assert {type(error) for error in errors.values()} == {float}
    # M2 counts s variables as χ²_2 that are χ²_1, and may so keep pq + s.
    least = {"M2": -budget.half_spectrum.self_conjugate_count / (p * q)}
    for method, error in errors.items():
        assert least.get(method, 0) - ROUNDING <= error <= 1
    assert errors["M2"] <= errors["F2"] + ROUNDING
    assert errors["F2"] <= errors["M1"] + ROUNDING
    # As many numbers, but some fall on a cosine that is there already.
    assert errors["FourierFT"] >= errors["V1"] - ROUNDING


WITHOUT_TORCH = """
import json, sys
from loca_theory.expressivity.methods.method import Engine
from loca_theory.expressivity.methods.registry import find_methods
from loca_theory.expressivity.simulation import Simulation
from loca_theory.sweeps import Runner
theorem = find_methods(["R", "U", "F1", "V1", "FourierFT", "M1", "F2", "M2", "F3", "D", "S", "RD"])
exact = Simulation(((12, 12),), (1, 2), theorem, (Engine.EXACT, Engine.ASYMPTOTIC)).run()
methods = find_methods(["R", "D"])
simulation = Simulation(((12, 12),), (1, 2), methods, (Engine.MONTE_CARLO,), draws=3)
drawn = simulation.run(Runner(jobs=1))
print(json.dumps([len(exact.rows), len(drawn.rows), "torch" in sys.modules]))
"""


def test_methods_that_need_no_matrix_need_no_torch():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_TORCH],
        check=True,
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout) == [2 * (12 + 12), 2 * 2, False]
