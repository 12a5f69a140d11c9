"""The dense DCT matrix: its entries, and the sharing of its copies."""

import itertools
import math

import mpmath
import pytest
import torch

from loca_theory.transforms.matrices import dct_matrix

EPS = torch.finfo(torch.float64).eps


@pytest.fixture
def fresh_cache():
    """An empty cache before and after: the copies live as long as the process."""
    dct_matrix.cache_clear()
    yield
    dct_matrix.cache_clear()


# Largest error of √(n/2) times an entry. A phase π·(integer)/2n below 2π carries the rounding of
# π, of a product and of a quotient, 2.4 of U = eps/2 together: its cosine is off by 2π·2.4 U, less
# than 15 U, by 4 U more where the cosine is good to four units in the last place (numpy promises no
# better), and by 2.5 U by √(2/n) and the product with it. Phases that are not reduced modulo 2π
# reach πn and would be off by 2.4·πn U.
U = EPS / 2
ENTRY = 22 * U


@pytest.mark.parametrize("n", [1, 2, 3, 8, 25, 768, 2000])
def test_entries_are_the_definition(n, fresh_cache):
    matrix = dct_matrix(n)
    assert matrix.shape == (n, n)
    if n <= 25:
        indices = itertools.product(range(n), repeat=2)
    else:
        sample = torch.randint(0, n, (300, 2), generator=torch.Generator().manual_seed(n))
        indices = [*sample.tolist(), (n - 1, n - 1), (n - 1, 0), (0, n - 1)]
    with mpmath.workdps(40):
        for i, j in indices:
            weight = mpmath.sqrt(mpmath.mpf(2 if i else 1) / n)
            entry = weight * mpmath.cospi(mpmath.mpf((2 * j + 1) * i) / (2 * n))
            assert abs(matrix[i, j].item() - entry) <= ENTRY * math.sqrt(2 / n)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16], ids=["float32", "float16", "bfloat16"]
)
def test_other_dtypes_are_the_float64_matrix_cast(dtype):
    matrix = dct_matrix(300, dtype=dtype)
    assert matrix.dtype == dtype
    assert torch.equal(matrix, dct_matrix(300).to(dtype))


def test_one_copy_a_size_and_dtype_until_the_cache_is_cleared(fresh_cache):
    assert dct_matrix(9) is dct_matrix(9)
    assert dct_matrix(9) is dct_matrix(9, dtype=torch.float64, device="cpu")
    assert dct_matrix(9) is dct_matrix(9, device=torch.device("cpu"))
    assert dct_matrix(9) is not dct_matrix(9, dtype=torch.float32)
    assert dct_matrix(9) is not dct_matrix(10)
    before = dct_matrix(9)
    dct_matrix.cache_clear()
    assert dct_matrix(9) is not before


@pytest.mark.cuda
def test_the_current_device_has_one_matrix_under_both_of_its_names():
    current = torch.cuda.current_device()
    assert dct_matrix(6, device="cuda") is dct_matrix(6, device=f"cuda:{current}")
