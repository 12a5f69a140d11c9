"""What the approximations of a given matrix take and refuse, and matrices of any size of entry."""

import numpy as np
import pytest
import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Budget, approximate, retained_energies
from loca_theory.expressivity.matrices import mean_retained_energies

BUDGET = Budget(9, 12, 2)


def rng():
    return np.random.default_rng(7)


def approximated(method):
    return lambda matrix: approximate(matrix, method, BUDGET, rng())


def retained(method):
    return lambda matrix: retained_energies(matrix, method, [BUDGET], rng())


def expected(method):
    return lambda matrix: mean_retained_energies(matrix, [method], [BUDGET])[method]


FUNCTIONS = {
    "approximate R": approximated("R"),
    "approximate D": approximated("D"),
    "kept S": retained("S"),
    "kept F2": retained("F2"),
    "expected S": expected("S"),
    "expected F3": expected("F3"),
}
each = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())


def matrix():
    return torch.from_numpy(np.random.default_rng(0).standard_normal((9, 12)))


def spoiled(value):
    w = matrix()
    w[2, 3] = value
    return w


BAD = {
    "NaN": (spoiled(np.nan), "must be finite: 1 of 108 entries"),
    "infinite": (spoiled(np.inf).numpy(), "must be finite: 1 of 108 entries"),
    "complex": (matrix() + 1j, "must be real and floating, not"),
    "sparse": (matrix().to_sparse(), r"must be dense, not .* pass matrix\.to_dense"),
    "float8": (matrix().to(torch.float8_e4m3fn), r"widen it with matrix\.float\(\)"),
    "list": (matrix().tolist(), "not list; convert it"),
    "transposed": (matrix().T, r"of shape \((9, 12|12, 9)\)"),
}


@each
@pytest.mark.parametrize(("bad", "message"), BAD.values(), ids=BAD.keys())
def test_bad_matrices_are_one_line(function, bad, message):
    with pytest.raises(InvalidArgumentError, match=f"matrix .*{message}"):
        function(bad)


@each
def test_an_array_is_as_good_as_a_tensor(function):
    np.testing.assert_array_equal(function(matrix().numpy()), function(matrix()))


@pytest.mark.parametrize("method", ["R", "F1", "V1", "F2", "F3", "D", "S", "DoRA", "VeRA"])
@pytest.mark.parametrize(
    ("dtype", "power"),
    [(torch.float32, 100), (torch.float32, -110), (torch.float64, 1000), (torch.float64, -900)],
)
def test_entries_whose_squares_overflow_or_vanish_are_approximated(method, dtype, power):
    w = matrix().to(dtype)
    half = 2.0 ** (power // 2)
    # Powers of two change no digit, here and inside.
    found = approximated(method)(w * half * half)
    torch.testing.assert_close(found / half / half, approximated(method)(w))
    if dtype == torch.float32:
        np.testing.assert_allclose(
            retained(method)(w * half * half), np.ldexp(retained(method)(w), 2 * power), rtol=1e-5
        )


@pytest.mark.parametrize("function", [retained("R"), retained("S"), expected("D")])
def test_energies_that_do_not_fit_are_refused(function):
    with pytest.raises(InvalidArgumentError, match=r"matrix has entries of about 2\^9\d\d, whose"):
        function(matrix() * 1e300)
