"""What these functions refuse, each bad input once, and that arrays are as good as tensors."""

import numpy as np
import pytest
import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.increments import fit_bulk
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.increments.histogram import histogram
from loca_theory.increments.ranks import stable_rank
from loca_theory.increments.spectrum import spectral_statistics, tail_exponent

OF_ENTRIES = {
    "histogram": (histogram, "entries"),
    "squared_singular_values": (squared_singular_values, "matrix"),
}
OF_EIGENVALUES = {
    "fit_bulk": lambda values: fit_bulk(values, 4, 4),
    "spectral_statistics": lambda values: spectral_statistics(values, 4, 4),
    "stable_rank": stable_rank,
    "tail_exponent": tail_exponent,
}


def entries():
    return torch.arange(1.0, 31, dtype=torch.float64).reshape(5, 6)


def spoiled(value):
    x = entries()
    x[0, 0] = x[3, 4] = value
    return x


BAD_ENTRIES = {
    "NaN": (spoiled(np.nan), "must be finite: 2 of 30 entries are NaN or infinite"),
    "infinite": (spoiled(-np.inf), "must be finite: 2 of 30 entries are NaN or infinite"),
    "complex": (entries() + 1j, r"must be real and floating, not torch\.complex128; pass its real"),
    "list": (entries().tolist(), r"not list; convert it with numpy\.asarray"),
}


@pytest.mark.parametrize(("function", "name"), OF_ENTRIES.values(), ids=OF_ENTRIES.keys())
@pytest.mark.parametrize(("bad", "message"), BAD_ENTRIES.values(), ids=BAD_ENTRIES.keys())
def test_bad_entries_are_one_line_that_names_the_argument(function, name, bad, message):
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        function(bad)
    assert caught.match(f"^{name} must ")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        pytest.param(torch.ones(3), "two dimensions that are not empty", id="vector"),
        pytest.param(torch.ones(2, 3, 3), "two dimensions that are not empty", id="batch"),
        pytest.param(torch.ones(0, 3), "two dimensions that are not empty", id="empty"),
        pytest.param(1e300 * entries(), r"entries of about 2\^\d+, whose squares", id="large"),
        pytest.param(1e-300 * entries(), r"entries of about 2\^-\d+, whose squares", id="small"),
    ],
)
def test_what_is_no_matrix_or_has_no_squares_is_refused(bad, message):
    with pytest.raises(InvalidArgumentError, match=f"matrix .*{message}"):
        squared_singular_values(bad)


BAD_EIGENVALUES = {
    "NaN": ([1.0, np.nan, 1.0, 2.0], "1 of 4 are not; take them from"),
    "infinite": ([1.0, np.inf, 1.0, 2.0], "1 of 4 are not; take them from"),
    "negative": ([1.0, -1.0, 1.0, 2.0], "1 of 4 are not; take them from"),
    "zeros": ([0.0, 0.0, 0.0, 0.0], "must not all be 0"),
    "none": ([], "must not all be 0"),
    "complex": ([1.0, 1.0j, 1.0, 2.0], "must be a vector of real numbers, not complex128"),
    "matrix": (np.ones((4, 4)), r"must be a vector of real numbers, not float64 of shape \(4, 4\)"),
    "sparse": (torch.ones(4).to_sparse(), "must be a NumPy array, not Tensor"),
}


@pytest.mark.parametrize("function", OF_EIGENVALUES.values(), ids=OF_EIGENVALUES.keys())
@pytest.mark.parametrize(("bad", "message"), BAD_EIGENVALUES.values(), ids=BAD_EIGENVALUES.keys())
def test_bad_eigenvalues_are_one_line(function, bad, message):
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        function(bad)
    assert caught.match("^eigenvalues must ")


def test_a_fit_needs_all_eigenvalues():
    with pytest.raises(InvalidArgumentError, match="must be all 4 of a 4x6 matrix, not 3"):
        fit_bulk(np.ones(3), 4, 6)
