"""Values, shapes, dtypes and refusals of dct, idct, dct2 and idct2, on each path."""

import math

import numpy as np
import pytest
import scipy.fft
import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms import dct, dct2, idct, idct2

METHODS = ["scipy", "fft", "matmul"]
TWO_DIMENSIONS = [pytest.param(dct2, id="dct2"), pytest.param(idct2, id="idct2")]
ALL = [pytest.param(dct, id="dct"), pytest.param(idct, id="idct"), *TWO_DIMENSIONS]

SHAPES = [(1, 1), (1, 9), (8, 1), (2, 3), (4, 3), (13, 6), (5, 31)]

by_method = pytest.mark.parametrize("method", METHODS)
# ``auto`` is scipy on the CPU and fft elsewhere.
by_path = pytest.mark.parametrize("method", ["auto", "fft", "matmul"])
by_shape = pytest.mark.parametrize("shape", SHAPES, ids=[f"{p}x{q}" for p, q in SHAPES])


def normal(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def definition(n):
    """The matrix C of the definition, in float64."""
    k, j = np.arange(n)[:, None], np.arange(n)
    weights = np.sqrt(np.where(k == 0, 1, 2) / n)
    return weights * np.cos(np.pi * (2 * j + 1) * k / (2 * n))


def by_definition(transform, x):
    """C x Dᵀ or Cᵀ x D, or the factor on the right alone."""
    left, right = (definition(n) for n in x.shape[-2:])
    return {
        dct: lambda: x @ right.T,
        idct: lambda: x @ right,
        dct2: lambda: left @ x @ right.T,
        idct2: lambda: left.T @ x @ right,
    }[transform]()


def bound(x, sizes, dtype=None):
    """Bound on the Frobenius error of one orthogonal transform of x.

    A value passes through log2 n butterflies of an FFT, each with a relative error below 7u
    (Higham, Accuracy and Stability of Numerical Algorithms, theorem 24.2), u = eps/2, with two
    more for the reordering's twiddles and scale; or through one n-term dot product. The transform
    being orthogonal, these relative errors are relative to ‖x‖. Both are granted, since the bound
    serves every path.

    Of butterflies this is the worst case, and a tenth of it is usual; a length with a large prime
    factor needs two FFTs of twice the length, which that covers. Of a dot product with random x it
    is not: partial sums grow like a random walk, and each is rounded. That gives √n/2·u at one
    standard deviation where a machine adds one by one (at most: u²/3 times the mean of the partial
    variances, 0.5 n to 0.7 n), and less where it adds in blocks. The √n eps granted are four such
    standard deviations of every single entry, and the norm over n of them stays far closer to one.
    """
    stages = sum(4 * (math.log2(n) + 2) + math.sqrt(n) for n in sizes)
    return torch.finfo(dtype or x.dtype).eps * stages * float(x.double().norm())


def bound_with_definition(x, sizes):
    """As bound, plus the definition's own error.

    Its phases reach πn and carry a relative error of 3u, so that each cosine is off by up to
    1.5·eps·πn; a matrix of such errors, scaled by √(2/n), has a norm of about 3 of them.
    """
    phases = sum(5 * math.pi * n for n in sizes)
    return bound(x, sizes) + np.finfo(np.float64).eps * phases * float(x.double().norm())


def distance(a, b):
    return float((torch.as_tensor(a).double() - torch.as_tensor(b).double()).norm())


@by_shape
@by_path
@pytest.mark.parametrize("transform", ALL)
def test_the_transform_is_that_of_the_definition(transform, method, shape, device):
    x = normal(2, *shape)
    actual = transform(x.to(device), method=method)
    assert actual.device.type == device.type
    expected = by_definition(transform, x.numpy())
    assert distance(actual.cpu(), expected) <= bound_with_definition(x, shape)


@pytest.mark.parametrize("transform", ALL)
def test_auto_takes_the_scipy_path_on_the_cpu(transform):
    x = normal(5, 30, 30, dtype=torch.float32)
    assert torch.equal(transform(x), transform(x, method="scipy"))
    # Otherwise the line above would hold for any choice.
    assert not torch.equal(transform(x), transform(x, method="fft"))


@by_method
@pytest.mark.parametrize("transform", ALL)
def test_an_empty_batch_gives_an_empty_result_in_the_graph(transform, method):
    x = torch.empty(2, 0, 6, 5, dtype=torch.float64, requires_grad=True)
    y = transform(x, method=method)
    assert y.shape == x.shape
    assert y.dtype == x.dtype
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape


def strided_views():
    base = normal(12, 12, 12)
    return [
        pytest.param(base.permute(2, 1, 0), id="permuted"),
        pytest.param(base[..., ::2], id="every second column"),
        pytest.param(base[:, 1:7, 3:], id="window"),
        pytest.param(normal(5).expand(4, 6, 5), id="expanded"),
        pytest.param(torch.complex(base, -base).conj().imag, id="lazily negated"),
        pytest.param(torch.complex(base, base).real, id="real part"),
    ]


@by_method
@pytest.mark.parametrize("transform", TWO_DIMENSIONS)
@pytest.mark.parametrize("view", strided_views())
def test_any_memory_layout_gives_the_same_result(transform, method, view):
    compact = view.resolve_neg().contiguous().clone()
    sizes = view.shape[-2:]
    assert distance(transform(view, method=method), transform(compact, method=method)) <= (
        2 * bound(compact, sizes)
    )


@by_method
@pytest.mark.parametrize("transform", ALL)
@pytest.mark.parametrize("n", [1, 6], ids=["length 1", "length 6"])
def test_the_input_is_left_alone_and_not_aliased(transform, method, n):
    x = normal(n, n)
    before = x.clone()
    y = transform(x, method=method)
    y.add_(1.0)
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@by_path
@pytest.mark.parametrize("transform", ALL)
def test_half_precision_is_the_float32_result_cast(transform, method, dtype, device):
    x = normal(3, 40, 24).to(device, dtype)
    y = transform(x, method=method)
    assert y.dtype == dtype
    assert torch.equal(y, transform(x.float(), method=method).to(dtype))


@by_path
@pytest.mark.parametrize("transform", ALL)
def test_autocast_does_not_thin_the_result_out(transform, method, device):
    x = normal(64, 64, dtype=torch.float32).to(device)
    expected = transform(x, method=method)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        y = transform(x, method=method)
    assert y.dtype == torch.float32
    # bfloat16 products would be off by 2**-9 of ‖x‖, thousands of times this.
    assert distance(y.cpu(), expected.cpu()) <= 2 * bound(x.cpu(), (64, 64))


def largest_error(transform, method, shape, device="cpu"):
    """Largest float32 error on N(0, 1) entries, against scipy in float64."""
    x = normal(*shape, dtype=torch.float32)
    reference = {dct2: scipy.fft.dctn, idct2: scipy.fft.idctn}[transform]
    expected = reference(x.double().numpy(), type=2, norm="ortho", workers=2)
    actual = transform(x.to(device), method=method).cpu().double()
    return float((actual - torch.from_numpy(expected)).abs().max())


# The project's accuracy requirement on N(0, 1) entries. A transformed entry is N(0, 1) again, its
# error behaves as a random sum of one rounding, u = 6e-8, a stage (log2 n² of them and a few
# more), and the largest of n² errors is at most 6 standard deviations: 6·6e-8·√28 = 1.9e-6 at n =
# 4096. An FFT's stage has three roundings, of a twiddle, a product and a sum, each of 0.4 u at one
# standard deviation: 0.7 u, not u. A large prime takes two FFTs of twice its length or more, and
# three products: 26 + 3 stages at 4099, 18 + 3 at 257, which gives 6·6e-8·√50 = 2.5e-6.
REQUIRED = 3e-6
PRIMES = [(257, 4099), (4099, 257)]
LARGEST = pytest.param((4096, 4096), marks=pytest.mark.deep)


@pytest.mark.parametrize("shape", [(300, 300), (768, 768), *PRIMES, LARGEST], ids=str)
@pytest.mark.parametrize("method", ["auto", "fft"])
@pytest.mark.parametrize("transform", TWO_DIMENSIONS)
def test_float32_meets_the_accuracy_requirement(transform, method, shape, device):
    assert largest_error(transform, method, shape, device) < REQUIRED


@pytest.mark.parametrize("transform", TWO_DIMENSIONS)
def test_float32_products_are_as_accurate_as_sums_that_add_one_by_one(transform):
    x = normal(768, 768, dtype=torch.float32)
    expected = by_definition(transform, x.double().numpy())
    assert distance(transform(x, method="matmul"), expected) <= bound(x, x.shape)


REFUSED = [
    (lambda: dct(torch.zeros(())), r"needs 1 non-empty last dimension\(s\), not shape \(\)"),
    (lambda: idct(torch.zeros(3, 0)), r"non-empty last dimension\(s\), not shape \(3, 0\)"),
    (lambda: dct2(torch.zeros(3)), r"needs 2 non-empty last dimension\(s\), not shape \(3,\)"),
    (lambda: idct2(torch.zeros(2, 0, 3)), r"dimension\(s\), not shape \(2, 0, 3\)"),
    (lambda: dct(torch.ones(3, 3), method="fast"), "unknown DCT method 'fast'; choose one of auto"),
    (
        lambda: idct2(torch.ones(3, 3, device="meta"), method="scipy"),
        "runs on the CPU, not on meta",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_cannot_be_transformed_is_refused(call, message):
    with pytest.raises(InvalidArgumentError, match=message):
        call()


@pytest.mark.parametrize("transform", ALL)
def test_auto_off_the_cpu_stays_on_the_device(transform):
    """And reads no entry, as a check of entries would, which makes training wait."""
    y = transform(torch.ones(2, 3, 4, device="meta"))
    assert y.device.type == "meta"
    assert y.shape == (2, 3, 4)
