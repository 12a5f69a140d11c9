"""Inputs of the transforms besides tensors, and those that they refuse."""

import math

import numpy as np
import pytest
import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms import dct, dct2, idct, idct2
from loca_theory.transforms.inputs import balanced, squared_units, times_power_of_two

P, Q = 3, 4


each_transform = pytest.mark.parametrize("function", [dct, idct, dct2, idct2])


def numbers():
    return torch.arange(1.0, 13, dtype=torch.float64).reshape(P, Q)


UNFIT = {
    "sparse": (lambda x: x.to_sparse(), r"be dense, not torch\.sparse_coo; pass \w+\.to_dense"),
    "float8": (lambda x: x.to(torch.float8_e4m3fn), r"not torch\.float8_e4m3fn; widen it with"),
    "list": (lambda x: x.tolist(), r"not list; convert it with numpy\.asarray"),
    "objects": (lambda x: x.numpy().astype(object), "not object; convert it"),
    "complex": (lambda x: x + 1j, r"not torch\.complex128; pass its real part"),
    "complex array": (lambda x: x.numpy() + 1j, r"not torch\.complex128; pass its real part"),
    "integers": (lambda x: x.long(), r"not torch\.int64; convert it to float64"),
    "booleans": (lambda x: x > 2, r"not torch\.bool; convert it to float64"),
}


@each_transform
@pytest.mark.parametrize(("spoil", "message"), UNFIT.values(), ids=UNFIT.keys())
def test_what_is_no_dense_real_tensor_is_refused_by_name(function, spoil, message):
    with pytest.raises(InvalidArgumentError, match=rf"^x must .*({message})"):
        function(spoil(numbers()))


ARRAYS = {
    "plain": lambda a: a,
    "backwards": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "read only": lambda a: np.broadcast_to(a, a.shape),
    "other byte order": lambda a: a.astype(">f8"),
    "by columns": np.asfortranarray,
}


@each_transform
@pytest.mark.parametrize("layout", ARRAYS.values(), ids=ARRAYS.keys())
def test_a_numpy_array_stands_for_a_tensor(function, layout):
    array = layout(numbers().numpy())
    transformed = function(array)
    assert isinstance(transformed, torch.Tensor)
    # Another order of the entries may be another order of additions.
    torch.testing.assert_close(transformed, function(numbers()), rtol=1e-14, atol=1e-13)
    np.testing.assert_array_equal(array, numbers())


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
    mantissa, exponent = balanced(x, "x")
    assert 0.5 <= float(mantissa.abs().max()) < 1
    assert torch.equal(times_power_of_two(mantissa, exponent), x)


@pytest.mark.parametrize("scale", [0.0, 2.0**-32, 1.0, 2.0**32])
def test_moderate_entries_are_passed_on_as_they_are(scale):
    x = torch.tensor([scale, -scale / 2])
    mantissa, exponent = balanced(x, "x")
    assert mantissa is x
    assert exponent == 0


NOT_FINITE = torch.tensor([1.0, math.nan, -math.inf])
REFUSED = [
    (lambda: balanced(NOT_FINITE, "x"), r"^x must be finite: 2 of 3 entries"),
    (lambda: balanced(torch.ones(2, device="meta"), "x"), "^x has no entries in memory"),
    (lambda: squared_units(np.ones(2), -481, "x"), r"^x has entries of about 2\^-481"),
    (lambda: squared_units(np.ones(2), 481, "x"), r"^x has entries of about 2\^481, whose"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_other_values_that_cannot_be_used_are_refused(call, message):
    with pytest.raises(InvalidArgumentError, match=message):
        call()


def test_energies_are_scaled_back_as_far_as_float64_reaches():
    np.testing.assert_array_equal(squared_units(np.ones(2), 480, "x"), 2.0**960)
