"""Transforms that turn rows into columns on the way."""

import pytest
import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms import dct_matrix, rows_to_spectra, spectra_to_rows


@pytest.mark.parametrize("n", [1, 2, 7, 64, 65])
@pytest.mark.parametrize("tokens", [0, 1, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_they_are_products_with_the_dct_matrix(n, tokens, dtype):
    source = torch.Generator().manual_seed(n)
    x = torch.randn(tokens, n, dtype=dtype, generator=source)
    matrix = dct_matrix(n, dtype=dtype)
    spectra = rows_to_spectra(x)
    assert spectra.shape == (n, tokens)
    assert spectra.is_contiguous()
    assert spectra.dtype == dtype
    torch.testing.assert_close(spectra, matrix @ x.T)
    rows = spectra_to_rows(spectra)
    assert rows.is_contiguous()
    torch.testing.assert_close(rows, x)


def test_a_strided_input_is_read_as_it_is_meant():
    x = torch.randn(9, 12, dtype=torch.float64)
    torch.testing.assert_close(rows_to_spectra(x[::2, ::3]), dct_matrix(4) @ x[::2, ::3].T)
    torch.testing.assert_close(spectra_to_rows(x.T[::2]), x[:, ::2] @ dct_matrix(6))


def test_they_are_outside_the_graph():
    x = torch.randn(3, 4, requires_grad=True)
    assert not rows_to_spectra(x).requires_grad
    assert not spectra_to_rows(x.T).requires_grad


@pytest.mark.cuda
def test_on_cuda_they_are_the_same():
    x = torch.randn(6, 30, dtype=torch.float64)
    spectra = rows_to_spectra(x.cuda())
    torch.testing.assert_close(spectra.cpu(), rows_to_spectra(x))
    torch.testing.assert_close(spectra_to_rows(spectra).cpu(), x)


def test_no_features_are_an_error():
    with pytest.raises(InvalidArgumentError, match="non-empty"):
        rows_to_spectra(torch.empty(3, 0))
