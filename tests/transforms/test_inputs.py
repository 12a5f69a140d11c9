"""What the transforms take besides tensors, and how they refuse the rest."""

import math

import numpy as np
import pytest
import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms import dct, dct2, idct, idct2
from loca_theory.transforms.dft import dft2, idft2
from loca_theory.transforms.inputs import balanced, squared_units, times_power_of_two
from loca_theory.transforms.real_spectrum import RealSpectrum
from loca_theory.transforms.transposed import rows_to_spectra, spectra_to_rows

P, Q = 3, 4


# Each takes a (3, 4) tensor, and is named with its argument.
REAL = {
    ("dct", "x"): dct,
    ("idct", "x"): idct,
    ("dct2", "x"): dct2,
    ("idct2", "x"): idct2,
    ("rows_to_spectra", "x"): rows_to_spectra,
    ("spectra_to_rows", "spectra"): spectra_to_rows,
    ("forward", "matrix"): RealSpectrum(P, Q).forward,
    ("coordinate_energies", "matrix"): RealSpectrum(P, Q).coordinate_energies,
    ("inverse", "coordinates"): RealSpectrum(1, Q).inverse,
    ("location_energies", "coordinates"): RealSpectrum(1, Q).location_energies,
}
COMPLEX = {("dft2", "x"): dft2, ("idft2", "spectrum"): idft2}
each = pytest.mark.parametrize(
    ("name", "function"),
    [pytest.param(key[1], function, id=key[0]) for key, function in {**REAL, **COMPLEX}.items()],
)
each_real = pytest.mark.parametrize(
    ("name", "function"),
    [pytest.param(key[1], function, id=key[0]) for key, function in REAL.items()],
)


def numbers():
    return torch.arange(1.0, 13, dtype=torch.float64).reshape(P, Q)


UNFIT = {
    "sparse": (lambda x: x.to_sparse(), r"be dense, not torch\.sparse_coo; pass \w+\.to_dense"),
    "float8": (lambda x: x.to(torch.float8_e4m3fn), r"not torch\.float8_e4m3fn; widen it with"),
    "list": (lambda x: x.tolist(), r"not list; convert it with numpy\.asarray"),
    "objects": (lambda x: x.numpy().astype(object), "not object; convert it"),
}
UNREAL = {
    "complex": (lambda x: x + 1j, r"not torch\.complex128; pass its real part"),
    "complex array": (lambda x: x.numpy() + 1j, r"not torch\.complex128; pass its real part"),
    "integers": (lambda x: x.long(), r"not torch\.int64; convert it to float64"),
    "booleans": (lambda x: x > 2, r"not torch\.bool; convert it to float64"),
}


@each
@pytest.mark.parametrize(("spoil", "message"), UNFIT.values(), ids=UNFIT.keys())
def test_what_is_no_dense_tensor_of_numbers_is_refused_by_name(name, function, spoil, message):
    with pytest.raises(InvalidArgumentError, match=rf"^{name} must .*({message})"):
        function(spoil(numbers()))


@each_real
@pytest.mark.parametrize(("spoil", "message"), UNREAL.values(), ids=UNREAL.keys())
def test_what_is_not_real_and_floating_is_refused_by_name(name, function, spoil, message):
    with pytest.raises(InvalidArgumentError, match=rf"^{name} must be real.*{message}"):
        function(spoil(numbers()))


ARRAYS = {
    "plain": lambda a: a,
    "backwards": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "read only": lambda a: np.broadcast_to(a, a.shape),
    "other byte order": lambda a: a.astype(">f8"),
    "by columns": np.asfortranarray,
}


@each
@pytest.mark.parametrize("layout", ARRAYS.values(), ids=ARRAYS.keys())
def test_a_numpy_array_stands_for_a_tensor(name, function, layout):
    del name
    array = layout(numbers().numpy())
    found = function(array)
    assert isinstance(found, torch.Tensor)
    # Another order of the entries may be another order of additions.
    torch.testing.assert_close(found, function(numbers()), rtol=1e-14, atol=1e-13)
    np.testing.assert_array_equal(array, numbers())


@each_real
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_narrow_floats_are_computed_in_single_precision(name, function, dtype):
    del name
    narrow = numbers().to(dtype)
    found = function(narrow)
    assert found.dtype == dtype
    expected = function(narrow.double())
    # One rounding to the narrow type, of the value and in squares of the coordinate.
    bound = 4 * torch.finfo(dtype).eps * float(expected.abs().max())
    assert float((found.double() - expected).abs().max()) <= bound


def test_the_fourier_transform_computes_integers_in_double_precision():
    assert dft2(numbers().long()).dtype == torch.complex128
    assert dft2(numbers().half()).dtype == torch.complex64


@each_real
def test_no_entry_is_read(name, function):
    """As a check of entries would, which on an accelerator makes training wait."""
    with torch.device("meta"):
        x = torch.ones(P, Q)
    assert function(x).is_meta


# --- powers of two ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        (torch.float32, 1e38),
        (torch.float32, 1e-44),
        (torch.float64, 1e308),
        (torch.float64, 5e-324),
    ],
)
def test_balancing_is_exact_and_squares_fit(dtype, scale):
    x = torch.tensor([[1.0, -0.5, 0.0]], dtype=torch.float64).mul(scale).to(dtype)
    found, exponent = balanced(x, "x")
    assert 0.5 <= float(found.abs().max()) < 1
    assert torch.equal(times_power_of_two(found, exponent), x)


@pytest.mark.parametrize("scale", [0.0, 2.0**-32, 1.0, 2.0**32])
def test_moderate_entries_are_passed_on_as_they_are(scale):
    x = torch.tensor([scale, -scale / 2])
    found, exponent = balanced(x, "x")
    assert found is x
    assert exponent == 0


NOT_FINITE = torch.tensor([1.0, math.nan, -math.inf])
REFUSED = [
    (
        lambda: balanced(NOT_FINITE, "x"),
        r"^x must be finite: 2 of 3 entries",
    ),
    (
        lambda: balanced(torch.ones(2, device="meta"), "x"),
        "^x has no entries in memory",
    ),
    (
        lambda: squared_units(np.ones(2), -481, "x"),
        r"^x has entries of about 2\^-481",
    ),
    (lambda: squared_units(np.ones(2), 481, "x"), r"^x has entries of about 2\^481, whose"),
    (lambda: dft2(torch.zeros(3)), r"not empty, not shape \(3,\)"),
    (
        lambda: idft2(torch.zeros(0, 3)),
        r"not empty, not shape \(0, 3\)",
    ),
    (
        lambda: rows_to_spectra(torch.zeros(3)),
        "x must be a matrix with non-empty",
    ),
    (lambda: rows_to_spectra(torch.zeros(3, 0)), "non-empty"),
    (lambda: spectra_to_rows(torch.zeros(3)), "spectra must be a matrix with non-empty"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_other_values_that_cannot_be_used_are_refused(call, message):
    with pytest.raises(InvalidArgumentError, match=message):
        call()


def test_energies_are_scaled_back_as_far_as_float64_reaches():
    np.testing.assert_array_equal(squared_units(np.ones(2), 480, "x"), 2.0**960)
