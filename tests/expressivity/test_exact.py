"""Exact expectations: enumerations on tiny matrices, the paper's printed formulas, Theorem 2."""

import subprocess
import sys

import pytest

from loca_theory.expressivity import Accounting, Budget, exact_error

# Sums of some hundred terms of order one; the functions behind promise a relative 1e-13.
ROUNDING = 1e-12


@pytest.mark.parametrize("K", [2, 3, 4, 5, 10, 301, 768, 4095], ids=lambda K: f"K = {K}")
def test_f1_is_the_printed_formula(K):
    locations = (K**2 + 1) / 2 if K % 2 else K**2 / 2 + 2
    for r in {1, K // 4 or 1, K // 2}:
        printed = 1 - K * r / locations
        assert exact_error("F1", Budget(K, K, r)) == pytest.approx(printed, rel=ROUNDING)


@pytest.mark.parametrize("accounting", [*Accounting], ids=[a.value for a in Accounting])
def test_theorem_2_d_f3_and_s_have_one_expectation(accounting):
    budget = Budget(7, 4, 2, accounting)
    assert exact_error("D", budget) == exact_error("F3", budget) == exact_error("S", budget)


WITHOUT_TORCH = """
import sys
from loca_theory.expressivity import simulate
from loca_theory.sweeps import Runner
methods = ["R", "U", "F1", "V1", "FourierFT", "M1", "F2", "M2", "F3", "D", "S", "RD", "C3A", "LoKr"]
simulate(12, ranks=1, methods=methods, engine="all", draws=3, runner=Runner(jobs=1))
assert "torch" not in sys.modules
"""


def test_methods_that_need_no_matrix_need_no_torch():
    subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT_TORCH], check=True)
