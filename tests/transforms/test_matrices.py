"""The dense DCT matrix: its entries, its orthogonality, and the sharing of its copies."""

import math

import numpy as np
import pytest
import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms import dct, dct_matrix, idct

EPS = torch.finfo(torch.float64).eps


@pytest.fixture
def fresh_cache():
    """An empty cache before and after: the copies live as long as the process."""
    dct_matrix.cache_clear()
    yield
    dct_matrix.cache_clear()


@pytest.mark.parametrize("n", [1, 2, 3, 8, 25])
def test_entries_are_the_definition(n):
    matrix = dct_matrix(n)
    assert matrix.shape == (n, n)
    for i in range(n):
        weight = math.sqrt(2 / n) * (1 / math.sqrt(2) if i == 0 else 1)
        for j in range(n):
            entry = weight * math.cos(math.pi * (2 * j + 1) * i / (2 * n))
            # The phase here reaches πn, with a relative error of 1.5 eps.
            assert abs(matrix[i, j].item() - entry) <= 2 * math.pi * n * EPS * math.sqrt(2 / n)


def test_two_by_two_by_hand():
    r = math.sqrt(0.5)
    expected = torch.tensor([[r, r], [r, -r]], dtype=torch.float64)
    assert float((dct_matrix(2) - expected).abs().max()) <= 2 * EPS


def largest_departure_from_orthogonality(n):
    matrix = dct_matrix(n)
    return float((matrix @ matrix.T - torch.eye(n, dtype=torch.float64)).abs().max())


def orthogonality_bound(n):
    """Largest departure of an entry of C Cᵀ from the identity.

    A phase below 2π carries three roundings, so that a cosine is off by at most 2π·1.5 eps < 10
    eps and a row by 10·√2 eps in norm; an inner product of two rows takes that twice, and adds
    its own rounding, √n·eps in the probabilistic model. Phases not reduced modulo 2π would be off
    by πn·1.5 eps: far outside at the larger orders.
    """
    return (2 * 10 * math.sqrt(2) + math.sqrt(n)) * EPS


@pytest.mark.parametrize("n", [1, 2, 3, 16, 17, 255, 256, 768, 1000])
def test_the_matrix_is_orthogonal(n):
    assert largest_departure_from_orthogonality(n) <= orthogonality_bound(n)


@pytest.mark.deep
def test_the_matrix_is_orthogonal_at_4096(fresh_cache):
    assert largest_departure_from_orthogonality(4096) <= orthogonality_bound(4096)


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float16, torch.bfloat16],
    ids=["float32", "float16", "bfloat16"],
)
def test_other_dtypes_are_the_float64_matrix_cast(dtype):
    matrix = dct_matrix(300, dtype=dtype)
    assert matrix.dtype == dtype
    assert torch.equal(matrix, dct_matrix(300).to(dtype))


def test_float32_orthogonality_is_that_of_rounded_entries():
    # Each entry is off by at most √(2/n)·u: a row by √2·u, an inner product by 2√2·u. Built in
    # float32, phases near πn would leave errors a thousand times larger.
    n = 1000
    matrix = dct_matrix(n, dtype=torch.float32).double()
    departure = (matrix @ matrix.T - torch.eye(n, dtype=torch.float64)).abs().max()
    assert float(departure) <= 2 * math.sqrt(2) * 2**-24


@pytest.mark.parametrize("n", [1, 6, 7])
def test_it_is_the_matrix_of_the_transforms(n):
    x = torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    tolerance = 32 * EPS * float(x.norm())
    assert float((dct_matrix(n) @ x - dct(x)).norm()) <= tolerance
    assert float((dct_matrix(n).T @ x - idct(x)).norm()) <= tolerance


def test_one_copy_a_size_and_dtype():
    assert dct_matrix(9) is dct_matrix(9)
    assert dct_matrix(9) is dct_matrix(9, dtype=torch.float64, device="cpu")
    assert dct_matrix(9) is dct_matrix(9, device=torch.device("cpu"))
    assert dct_matrix(9) is not dct_matrix(9, dtype=torch.float32)
    assert dct_matrix(9) is not dct_matrix(10)


def test_clearing_the_cache_frees_the_copies(fresh_cache):
    before = dct_matrix(9)
    dct_matrix.cache_clear()
    assert dct_matrix(9) is not before
    assert torch.equal(dct_matrix(9), before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_a_copy_first_made_in_inference_mode_serves_a_graph_later(fresh_cache, dtype):
    with torch.inference_mode():
        dct_matrix(5, dtype=dtype)
    matrix = dct_matrix(5, dtype=dtype)
    assert not matrix.is_inference()
    x = torch.ones(5, dtype=dtype, requires_grad=True)
    # The product saves the matrix for its backward pass, which an inference tensor forbids.
    (matrix @ x).square().sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("n", [0, -1])
def test_an_order_below_one_is_refused(n):
    with pytest.raises(InvalidArgumentError, match=f"order of at least 1, not {n}"):
        dct_matrix(n)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64], ids=["int64", "complex64"])
def test_a_dtype_that_is_not_floating_is_refused(dtype):
    with pytest.raises(InvalidArgumentError, match=f"floating dtype, not {dtype}"):
        dct_matrix(4, dtype=dtype)


def test_rows_are_sampled_cosines_of_growing_frequency():
    """Row i changes sign i times: the order of the frequencies, not only their set."""
    signs = np.sign(dct_matrix(32).numpy())
    assert [int((row[1:] != row[:-1]).sum()) for row in signs] == list(range(32))
