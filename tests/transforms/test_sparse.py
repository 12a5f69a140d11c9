"""The inverse DCT of few locations: both methods against the sum of the definition."""

import math

import numpy as np
import pytest
import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms import dct2, sparse
from loca_theory.transforms.sparse import idct2_sparse

METHODS = ["scatter", "outer"]
by_method = pytest.mark.parametrize("method", METHODS)
SHAPES = [(1, 1), (1, 5), (6, 1), (7, 4)]
by_shape = pytest.mark.parametrize("shape", SHAPES, ids=[f"{p}x{q}" for p, q in SHAPES])


def normal(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def indices(count, shape, seed=1, dtype=torch.int64):
    generator = torch.Generator().manual_seed(seed)
    return torch.stack(
        [torch.randint(0, n, (count,), generator=generator) for n in shape], dim=-1
    ).to(dtype)


def definition(values, locations, shape):
    """Sum of outer products of cosines, one location at a time."""
    p, q = shape
    i, j = np.arange(p)[:, None], np.arange(q)[None, :]
    out = np.zeros(shape)
    for a, (u, v) in zip(values.tolist(), locations.tolist(), strict=True):
        weight = math.sqrt((1 if u == 0 else 2) / p) * math.sqrt((1 if v == 0 else 2) / q)
        rows, columns = (
            np.cos(np.pi * (2 * i + 1) * u / (2 * p)),
            np.cos(np.pi * (2 * j + 1) * v / (2 * q)),
        )
        out += a * weight * rows * columns
    return out


def bound(values, shape, dtype=None):
    """Error of either method relative to the coefficients.

    The spectrum's norm is at most Σ|a|, duplicates included. A transform of it costs 7u a
    butterfly, the outer products one sum of B terms, B·u in the worst case; the definition's
    phases reach πn with 1.5 eps (see test_dct.bound), which float64 shows and float32 hides.
    """
    stages = sum(4 * (math.log2(n) + 2) for n in shape) + values.shape[-1]
    phases = np.finfo(np.float64).eps * sum(5 * math.pi * n for n in shape)
    total = float(values.double().abs().sum())
    return (torch.finfo(dtype or values.dtype).eps * stages + phases) * total


def distance(a, b):
    return float((torch.as_tensor(a).double() - torch.as_tensor(b).double()).norm())


@by_method
@by_shape
@pytest.mark.parametrize("count", [0, 1, 50], ids=lambda c: f"{c} locations")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_it_is_the_sum_of_the_definition(method, shape, count, dtype, device):
    values, locations = normal(count, dtype=dtype), indices(count, shape)
    actual = idct2_sparse(values.to(device), locations.to(device), shape, method=method)
    assert (actual.dtype, actual.device.type) == (dtype, device.type)
    assert actual.shape == shape
    expected = definition(values.double(), locations, shape)
    assert distance(actual.cpu(), expected) <= bound(values, shape)


@by_method
@pytest.mark.parametrize("batch", [(2, 1, 3), (2, 0)], ids=str)
def test_leading_dimensions_of_the_values_are_a_batch(method, batch):
    values, locations = normal(*batch, 6), indices(6, (5, 4))
    actual = idct2_sparse(values, locations, (5, 4), method=method)
    assert actual.shape == (*batch, 5, 4)
    for index in np.ndindex(*batch):
        expected = definition(values[index], locations, (5, 4))
        assert distance(actual[index], expected) <= bound(values[index], (5, 4))


@by_method
def test_memory_layout_does_not_matter(method):
    values, locations = normal(6, 4).T[:, ::2], indices(6, (5, 7)).T.contiguous().T[::2]
    assert not values.is_contiguous()
    assert not locations.is_contiguous()
    actual = idct2_sparse(values, locations, (5, 7), method=method)
    expected = idct2_sparse(values.contiguous(), locations.contiguous(), (5, 7), method=method)
    assert distance(actual, expected) <= 2 * bound(values, (5, 7))


@by_method
def test_32_bit_locations(method):
    values, locations = normal(6), indices(6, (5, 7), dtype=torch.int32)
    actual = idct2_sparse(values, locations, (5, 7), method=method)
    assert torch.equal(actual, idct2_sparse(values, locations.long(), (5, 7), method=method))


def test_auto_takes_the_outer_products_up_to_the_measured_number():
    limit = sparse._OUTER_UP_TO
    for count, method in ((limit, "outer"), (limit + 1, "scatter")):
        values, locations = normal(count, dtype=torch.float32), indices(count, (24, 24))
        names = ["auto", *METHODS]
        results = {name: idct2_sparse(values, locations, (24, 24), method=name) for name in names}
        assert torch.equal(results["auto"], results[method])
        # Otherwise the line above would hold for any choice.
        assert not torch.equal(results["scatter"], results["outer"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@by_method
def test_half_precision_is_the_float32_result_cast(method, dtype):
    # 20 components on 4 locations: added up in half precision, they would differ.
    values, locations = normal(2, 20).to(dtype), indices(20, (2, 2))
    actual = idct2_sparse(values, locations, (2, 2), method=method)
    assert actual.dtype == dtype
    expected = idct2_sparse(values.float(), locations, (2, 2), method=method)
    assert torch.equal(actual, expected.to(dtype))


@by_method
def test_autocast_does_not_thin_the_result_out(method, device):
    values, locations = normal(20, dtype=torch.float32), indices(20, (32, 32))
    expected = idct2_sparse(values, locations, (32, 32), method=method)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        actual = idct2_sparse(values.to(device), locations.to(device), (32, 32), method=method)
    assert actual.dtype == torch.float32
    assert distance(actual.cpu(), expected) <= 2 * bound(values, (32, 32))


@by_method
def test_gradient_is_the_transform_read_at_the_locations(method, device):
    shape = (6, 5)
    values, locations = normal(2, 9).requires_grad_(), indices(9, shape)
    weights = normal(2, *shape, seed=2)
    found = idct2_sparse(values.to(device), locations.to(device), shape, method=method)
    found.backward(weights.to(device))
    expected = dct2(weights)[:, locations[:, 0], locations[:, 1]]
    # Each entry is one coefficient of a transform of the weights.
    assert distance(values.grad, expected) <= 64 * 2**-52 * 9 * float(weights.norm())


@by_method
def test_derivatives_match_differences(method):
    values, locations = normal(2, 5).requires_grad_(), indices(5, (4, 3))

    def run(t):
        return idct2_sparse(t, locations, (4, 3), method=method)

    assert torch.autograd.gradcheck(run, values)
    assert torch.autograd.gradgradcheck(lambda t: run(t).square(), values)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@by_method
def test_forward_mode_matches_differences(method):
    values, locations = normal(5).requires_grad_(), indices(5, (4, 3))
    assert torch.autograd.gradcheck(
        lambda t: idct2_sparse(t, locations, (4, 3), method=method),
        values,
        check_forward_ad=True,
        check_backward_ad=False,
    )


@by_method
def test_vmap_over_the_values_equals_a_batch(method):
    values, locations = normal(3, 6), indices(6, (5, 4))
    mapped = torch.func.vmap(
        lambda t: idct2_sparse(t, locations, (5, 4), method=method), in_dims=0
    )(values)
    expected = idct2_sparse(values, locations, (5, 4), method=method)
    assert distance(mapped, expected) <= 2 * bound(values, (5, 4))


def test_an_unknown_method_is_refused_with_the_known_ones():
    with pytest.raises(InvalidArgumentError, match="'dense'; choose one of auto, scatter, outer"):
        idct2_sparse(torch.ones(1), torch.zeros(1, 2, dtype=torch.int64), (2, 2), method="dense")


@pytest.mark.parametrize(
    ("values", "locations"),
    [
        pytest.param(torch.ones(3), torch.zeros(2, 2, dtype=torch.int64), id="too few"),
        pytest.param(torch.ones(3), torch.zeros(3, 3, dtype=torch.int64), id="three indices"),
        pytest.param(torch.ones(3), torch.zeros(2, 3, dtype=torch.int64), id="transposed"),
        pytest.param(torch.ones(3), torch.zeros(3, 2), id="floating locations"),
        pytest.param(torch.ones(3), torch.zeros(3, 2, dtype=torch.uint8), id="bytes"),
        pytest.param(torch.ones(3, 3), torch.zeros(1, 3, 2, dtype=torch.int64), id="batched"),
        pytest.param(torch.ones(()), torch.zeros(2, dtype=torch.int64), id="scalar value"),
    ],
)
def test_locations_that_do_not_fit_the_values_are_refused(values, locations):
    with pytest.raises(InvalidArgumentError, match=r"integer tensor of shape \(B, 2\)"):
        idct2_sparse(values, locations, (4, 4))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (-1, 2)], ids=str)
def test_a_shape_without_entries_is_refused(shape):
    with pytest.raises(InvalidArgumentError, match=f"at least 1x1, not {shape[0]}x{shape[1]}"):
        idct2_sparse(torch.ones(0), torch.zeros(0, 2, dtype=torch.int64), shape)


@by_method
@pytest.mark.parametrize(
    "location", [(-1, 0), (0, -1), (3, 0), (0, 4)], ids=lambda index: f"{index}"
)
def test_a_location_outside_is_refused(method, location):
    locations = torch.tensor([[0, 0], location])
    with pytest.raises(InvalidArgumentError, match="outside the 3x4 spectrum; they are 0-based"):
        idct2_sparse(torch.ones(2), locations, (3, 4), method=method)


@by_method
def test_values_and_locations_of_two_devices_are_refused(method):
    with pytest.raises(
        InvalidArgumentError, match=r"on cpu, .*on meta; pass locations\.to\(values\.device\)$"
    ):
        idct2_sparse(torch.ones(2, device="meta"), indices(2, (3, 4)), (3, 4), method=method)
