"""What these functions refuse, each bad input once, and that arrays are as good as tensors."""

import numpy as np
import pytest
import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.increments import MarchenkoPastur, PrintedTest, calibrated_test, fit_bulk
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.increments.histogram import histogram
from loca_theory.increments.ranks import energy_ranks, stable_rank
from loca_theory.increments.spectrum import spectral_statistics, tail_exponent
from loca_theory.increments.truncated_svd import truncated_svd


def entries():
    return torch.arange(1.0, 31, dtype=torch.float64).reshape(5, 6)


def spoiled(value):
    x = entries()
    x[0, 0] = x[3, 4] = value
    return x


RNG, COUNTED = np.random.default_rng(0), histogram(entries())
ONE_LINE = [
    (spoiled(np.nan), "must be finite: 2 of 30 entries are NaN or infinite"),
    (spoiled(-np.inf), "must be finite: 2 of 30 entries are NaN or infinite"),
    (entries() + 1j, r"must be real and floating, not torch\.complex128; pass its real"),
    (entries().tolist(), r"must be .*, not list; convert it with numpy\.asarray"),
]
BAD_MATRICES = [
    *ONE_LINE,
    *((torch.ones(shape), "must have two dimensions that are") for shape in (3, (2, 3, 3), (0, 3))),
    (1e300 * entries(), r"has entries of about 2\^\d+, whose squares"),
    (1e-300 * entries(), r"has entries of about 2\^-\d+, whose squares"),
]
BAD_EIGENVALUES = [
    *(
        ([1.0, bad, 1.0, 2.0], "1 of 4 are not; take them from squared_sing")
        for bad in (np.nan, np.inf, -1.0)
    ),
    ([0.0, 0.0, 0.0, 0.0], "must not all be 0"),
    ([1.0, 1.0j, 1.0, 2.0], "must be a vector of real numbers, not complex128"),
    (np.ones((4, 4)), r"must be a vector of real numbers, not float64 of shape \(4, 4\)"),
    (torch.ones(4).to_sparse(), "must be a vector of numbers, not Tensor"),
]
OF_EIGENVALUES = [
    lambda values: fit_bulk(values, 4, 4),
    lambda values: spectral_statistics(values, 4, 4),
    stable_rank,
    tail_exponent,
]
CALLS = [
    *((histogram, bad, f"^entries {message}") for bad, message in ONE_LINE),
    *((squared_singular_values, bad, f"^matrix {message}") for bad, message in BAD_MATRICES),
    *(
        (function, bad, f"^eigenvalues must .*{message.removeprefix('must ')}")
        for function in OF_EIGENVALUES
        for bad, message in BAD_EIGENVALUES
    ),
    *((bad, [], "^eigenvalues must not all be 0") for bad in OF_EIGENVALUES[1:]),
    (OF_EIGENVALUES[0], [], "^eigenvalues must be all 4 of a 4x4 matrix, zeros included, not 0"),
    (lambda values: fit_bulk(values, 4, 6), np.ones(3), "all 4 of a 4x6 matrix, zeros included"),
    *(
        (lambda bad: energy_ranks([1.0], [bad]), bad, "fractions must be above 0 and at most 1")
        for bad in (0.0, 1.5, -1.0, np.nan)
    ),
    *(
        (lambda bad: MarchenkoPastur(*bad), bad, "ratio and sigma must be positive")
        for bad in ((0, 1), (-1, 1), (1, 0), (np.inf, 1), (np.nan, 1))
    ),
    (MarchenkoPastur(1.0).isf, 1.5, "between 0 and 1"),
    *(
        (
            lambda bad: truncated_svd(entries(), bad),
            bad,
            rf"k must be from 1 .* not {bad} for \(5, 6",
        )
        for bad in (0, 6, -1)
    ),
    *((histogram, bad, "entries must not all be equal") for bad in (np.full(9, 0.1), np.ones(0))),
    *(
        (lambda bad: calibrated_test(COUNTED, RNG, **bad), bad, "needs 0 <= epsilon < 1")
        for bad in ({"epsilon": -0.1}, {"epsilon": 1.0}, {"replicates": 0})
    ),
    (lambda bad: PrintedTest(bins_per_sigma=bad).p_value(COUNTED, RNG), 5, "must divide 64"),
    (
        lambda bad: PrintedTest(samples=5000).p_value(COUNTED, RNG, bad),
        np.zeros(3),
        "reference must have the test's 5000 samples",
    ),
]


@pytest.mark.parametrize(("function", "bad", "message"), CALLS)
def test_it_is_refused_and_says_why(function, bad, message):
    with pytest.raises(InvalidArgumentError, match=message):
        function(bad)
