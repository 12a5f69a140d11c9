"""Exact expectations: enumerations on tiny matrices, the paper's printed formulas, Theorem 2."""

import json
import subprocess
import sys
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import METHODS, Accounting, Budget, exact_error
from loca_theory.expressivity.low_rank_exact import LARGEST_EXACT_RANK
from loca_theory.expressivity.methods.names import display_name
from loca_theory.transforms import dct2
from loca_theory.transforms.real_spectrum import RealSpectrum

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


def sines(p, q):
    units = np.eye(p * q).reshape(p * q, p, q)
    return np.fft.ifft2(units, axes=(1, 2)).imag.reshape(p * q, p * q)


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


@pytest.mark.deep
def test_fourierft_is_the_mean_over_every_choice_of_locations_at_4x4():
    choices = np.array(list(combinations(range(16), 8)))
    dimensions = np.linalg.matrix_rank(cosines(4, 4)[choices], tol=1e-9)
    expected = 1 - dimensions.mean() / 16
    assert exact_error("FourierFT", Budget(4, 4, 1)) == pytest.approx(expected, rel=ROUNDING)


def independent_places(p, q):
    """One location of each conjugate pair, found by brute force."""
    found = {min((i, j), (-i % p, -j % q)) for i in range(p) for j in range(q)}
    return sorted(i * q + j for i, j in found)


@pytest.mark.parametrize(
    ("p", "q", "r"),
    [(2, 3, 1), (3, 3, 1), (3, 4, 1), (4, 4, 1), (4, 3, 1), (5, 5, 1)],
    ids=lambda value: str(value),
)
def test_f1_is_the_mean_over_every_choice_of_locations(p, q, r):
    budget = Budget(p, q, r)
    indices = independent_places(p, q)
    choices = np.array(list(combinations(indices, (p + q) * r // 2)))
    atoms = np.concatenate([cosines(p, q)[choices], sines(p, q)[choices]], axis=1)
    dimensions = np.linalg.matrix_rank(atoms, tol=1e-9)
    expected = 1 - dimensions.mean() / (p * q)
    assert exact_error("F1", budget) == pytest.approx(expected, rel=ROUNDING)


@pytest.mark.parametrize("K", [2, 4, 10, 300, 768, 4096], ids=lambda K: f"K = {K}")
def test_f1_and_the_printed_formula_for_even_sizes(K):
    for r in {1, K // 4 or 1, K // 2}:
        printed = 1 - K * r / (K**2 / 2 + 2)
        assert exact_error("F1", Budget(K, K, r)) == pytest.approx(printed, rel=ROUNDING)


@pytest.mark.parametrize("K", [3, 5, 11, 301, 4095], ids=lambda K: f"K = {K}")
def test_f1_and_the_printed_formula_for_odd_sizes(K):
    for r in {1, K // 4 or 1, (K - 1) // 2}:
        printed = 1 - K * r / ((K**2 + 1) / 2)
        assert exact_error("F1", Budget(K, K, r)) == pytest.approx(printed, rel=ROUNDING)


@pytest.mark.parametrize("K", [2, 5, 300, 768], ids=lambda K: f"K = {K}")
def test_u_is_the_printed_line_and_v1_keeps_as_many_numbers(K):
    for r in {1, K // 3 or 1, K // 2}:
        budget = Budget(K, K, r)
        assert exact_error("U", budget) == pytest.approx(1 - 2 * r / K, abs=ROUNDING)
        assert exact_error("V1", budget) == exact_error("U", budget)


def test_rate_distortion_by_hand():
    """64x64, r = 2, 16 bits: 4096 bits for 4096 entries, one each: 2⁻²."""
    assert exact_error("RD", Budget(64, 64, 2, value_bits=16)) == 0.25
    assert exact_error("RD", Budget(64, 64, 2, value_bits=8)) == 0.5


@pytest.mark.parametrize("value_bits", [8, 32], ids=lambda bits: f"{bits} bits")
@fitting
def test_nothing_stored_in_bits_passes_the_rate_distortion_bound(p, q, r, value_bits):
    """But for complete matrices: the rounding of a kept value to its bits counts for no method."""
    budget = Budget(p, q, r, Accounting.BITS, value_bits)
    bound = exact_error("RD", budget)
    for method in ("F1", "V1", "FourierFT", "F2", "F3", "D", "S"):
        error = exact_error(method, budget)
        assert bound <= error or error == pytest.approx(0, abs=ROUNDING)


@pytest.mark.parametrize(("p", "q"), [(2, 2), (3, 3), (4, 4), (5, 7), (6, 5), (1, 8), (9, 1)])
def test_theorem_2_both_coordinate_maps_are_orthogonal(p, q):
    """The matrices of the DCT and of the real Fourier coordinates, column by column."""
    units = torch.eye(p * q, dtype=torch.float64).reshape(p * q, p, q)
    for coordinates in (dct2(units).flatten(1), RealSpectrum(p, q).forward(units)):
        torch.testing.assert_close(
            coordinates @ coordinates.T,
            torch.eye(p * q, dtype=torch.float64),
            atol=1e-13,
            rtol=0,
        )


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


@pytest.mark.parametrize(
    "method", [m.name for m in METHODS.values() if "exact" in m.engines(Budget(8, 8, 2))]
)
def test_more_rank_never_costs(method):
    for p, q in ((14, 14), (15, 15), (20, 11), (11, 100)):
        budgets = [Budget(p, q, r) for r in range(1, p * q // (p + q) + 1)]
        errors = [exact_error(method, one) for one in budgets if METHODS[method].exists(one)]
        assert all(b <= a + ROUNDING for a, b in pairwise(errors))


def test_theorem_1_holds_at_the_papers_size():
    for r in range(8, 33):
        budget = Budget(768, 768, r)
        u, f1, f2, d = (exact_error(method, budget) for method in ("U", "F1", "F2", "D"))
        assert d < f2 < min(u, f1)


def test_theorem_1_fails_at_its_smallest_sizes():
    """K = 4, r = 1: R keeps 10.13 of 16 and F2 8.53. K = 5 breaks the bracket M1 alone."""
    retained = {method: 16 * (1 - exact_error(method, Budget(4, 4, 1))) for method in ("R", "F2")}
    assert (round(retained["R"], 2), round(retained["F2"], 2)) == (10.13, 8.53)
    five = Budget(5, 5, 1)
    assert exact_error("M1", five) > exact_error("R", five) > exact_error("F2", five)


@pytest.mark.parametrize("method", ["DoRA", "VeRA"])
def test_methods_without_exact_values(method):
    assert "exact" not in METHODS[method].engines(Budget(8, 8, 2))
    with pytest.raises(
        InvalidArgumentError,
        match=f"{display_name(method)} has no exact value at 8x8, rank 2; use engine=.mo",
    ):
        exact_error(method, Budget(8, 8, 2))


def test_r_is_exact_up_to_a_large_rank():
    largest = Budget(600, 900, LARGEST_EXACT_RANK)
    beyond = Budget(600, 900, LARGEST_EXACT_RANK + 1)
    assert "exact" in METHODS["R"].engines(largest)
    assert METHODS["R"].engines(beyond) == {"asymptotic", "monte-carlo"}
    message = (
        r"LoRA has no exact value at 600x900, rank 257; use engine=.monte-carlo. or engine=.asym"
    )
    with pytest.raises(InvalidArgumentError, match=message):
        exact_error("R", beyond)


def test_an_unknown_method_is_refused():
    with pytest.raises(
        InvalidArgumentError, match=r"unknown method 'X'; choose from LoRA, printed line"
    ):
        exact_error("X", Budget(8, 8, 1))


def test_a_count_beyond_the_matrix_is_refused():
    with pytest.raises(InvalidArgumentError, match="42 locations, but the half spectrum of 8x8"):
        exact_error("F2", Budget(8, 8, 4, Accounting.MAIN_TEXT))


WITHOUT_TORCH = """
import json, sys
from loca_theory.expressivity.methods.method import Engine
from loca_theory.expressivity.methods.registry import DEFAULT_METHODS, find_methods
from loca_theory.expressivity.simulation import Simulation
from loca_theory.sweeps import Runner
exact = Simulation(((12, 12),), (1, 2), DEFAULT_METHODS, (Engine.EXACT, Engine.ASYMPTOTIC)).run()
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
