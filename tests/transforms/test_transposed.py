"""Transforms that turn rows into columns on the way."""

import pytest
import torch

from loca_theory.transforms.matrices import dct_matrix
from loca_theory.transforms.transposed import rows_to_spectra, spectra_to_columns_, spectra_to_rows


def assert_close(actual, expected):
    """As test_dct.bound for sides up to 64, with as much for the other side: 2·(4·8 + 8) eps."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    error = float((actual.cpu() - expected).norm())
    assert error <= 80 * torch.finfo(expected.dtype).eps * float(expected.norm())


@pytest.mark.parametrize(("n", "tokens"), [(1, 5), (2, 1), (7, 0), (7, 5), (64, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_they_are_products_with_the_dct_matrix(n, tokens, dtype, device):
    source = torch.Generator().manual_seed(n)
    x = torch.randn(tokens, n, dtype=dtype, generator=source)
    spectra = rows_to_spectra(x.to(device))
    assert spectra.device.type == device.type
    assert spectra.is_contiguous()
    assert_close(spectra, dct_matrix(n, dtype=dtype) @ x.T)
    columns = spectra_to_columns_(spectra.clone())
    assert columns.is_contiguous()
    assert_close(columns, x.T)
    rows = spectra_to_rows(spectra)
    assert rows.is_contiguous()
    assert_close(rows, x)


def test_a_strided_input_is_read_as_it_is_meant():
    x = torch.randn(9, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert_close(rows_to_spectra(x[::2, ::3]), dct_matrix(4) @ x[::2, ::3].T)
    assert_close(spectra_to_rows(x.T[::2]), x[:, ::2] @ dct_matrix(6))


def test_they_are_outside_the_graph():
    x = torch.randn(3, 4, requires_grad=True)
    assert not rows_to_spectra(x).requires_grad
    assert not spectra_to_rows(x.T).requires_grad
