"""Values, shapes, dtypes and refusals of dct, idct, dct2 and idct2, on each path."""

import math

import numpy as np
import pytest
import scipy.fft
import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms import dct, dct2, idct, idct2

METHODS = ["scipy", "fft", "matmul"]
ONE_DIMENSION = [pytest.param(dct, id="dct"), pytest.param(idct, id="idct")]
TWO_DIMENSIONS = [pytest.param(dct2, id="dct2"), pytest.param(idct2, id="idct2")]
ALL = ONE_DIMENSION + TWO_DIMENSIONS

LENGTHS = [1, 2, 5, 8, 31]
SHAPES = [(1, 1), (1, 9), (8, 1), (2, 3), (4, 3), (13, 6)]

by_method = pytest.mark.parametrize("method", METHODS)
# ``auto`` is scipy on the CPU and fft elsewhere.
by_path = pytest.mark.parametrize("method", ["auto", "fft", "matmul"])
by_shape = pytest.mark.parametrize("shape", SHAPES, ids=[f"{p}x{q}" for p, q in SHAPES])


def normal(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def textbook_dct2(x):
    """The double sum of the definition, entry by entry, in float64."""
    p, q = x.shape
    out = np.empty((p, q))
    i, j = np.arange(p)[:, None], np.arange(q)[None, :]
    for u in range(p):
        for v in range(q):
            waves = np.cos(np.pi * (2 * i + 1) * u / (2 * p)) * np.cos(
                np.pi * (2 * j + 1) * v / (2 * q)
            )
            weight = (math.sqrt(1 / 2) if u == 0 else 1.0) * (math.sqrt(1 / 2) if v == 0 else 1.0)
            out[u, v] = 2 / math.sqrt(p * q) * weight * np.sum(x * waves)
    return out


def textbook_idct2(spectrum):
    """The double sum of the inverse, entry by entry, in float64."""
    p, q = spectrum.shape
    out = np.empty((p, q))
    u, v = np.arange(p)[:, None], np.arange(q)[None, :]
    weights = np.where(u == 0, math.sqrt(1 / 2), 1.0) * np.where(v == 0, math.sqrt(1 / 2), 1.0)
    for i in range(p):
        for j in range(q):
            waves = np.cos(np.pi * (2 * i + 1) * u / (2 * p)) * np.cos(
                np.pi * (2 * j + 1) * v / (2 * q)
            )
            out[i, j] = 2 / math.sqrt(p * q) * np.sum(weights * spectrum * waves)
    return out


def textbook_dct(x):
    n = len(x)
    terms = [
        [x[j] * math.cos(math.pi * (2 * j + 1) * k / (2 * n)) for j in range(n)] for k in range(n)
    ]
    weights = [math.sqrt((1 if k == 0 else 2) / n) for k in range(n)]
    return np.array([w * math.fsum(row) for w, row in zip(weights, terms, strict=True)])


def textbook_idct(x):
    n = len(x)
    weights = [math.sqrt((1 if k == 0 else 2) / n) for k in range(n)]
    return np.array(
        [
            math.fsum(
                weights[k] * x[k] * math.cos(math.pi * (2 * j + 1) * k / (2 * n)) for k in range(n)
            )
            for j in range(n)
        ]
    )


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


def bound_with_textbook(x, sizes):
    """As bound, plus the textbook sums' own error.

    Their phases reach πn and carry a relative error of 3u, so that each cosine is off by up to
    1.5·eps·πn; a matrix of such errors, scaled by √(2/n), has a norm of about 3 of them.
    """
    phases = sum(5 * math.pi * n for n in sizes)
    return bound(x, sizes) + np.finfo(np.float64).eps * phases * float(x.double().norm())


def distance(a, b):
    return float((torch.as_tensor(a).double() - torch.as_tensor(b).double()).norm())


@by_shape
@by_path
@pytest.mark.parametrize(
    ("transform", "textbook"),
    [(dct2, textbook_dct2), (idct2, textbook_idct2)],
    ids=["dct2", "idct2"],
)
def test_two_dimensional_transform_is_the_textbook_double_sum(
    transform, textbook, method, shape, device
):
    x = normal(*shape)
    actual, expected = transform(x.to(device), method=method), textbook(x.numpy())
    assert actual.device.type == device.type
    assert distance(actual.cpu(), expected) <= bound_with_textbook(x, shape)


@pytest.mark.parametrize("n", LENGTHS)
@by_path
@pytest.mark.parametrize(
    ("transform", "textbook"), [(dct, textbook_dct), (idct, textbook_idct)], ids=["dct", "idct"]
)
def test_one_dimensional_transform_is_the_textbook_sum(transform, textbook, method, n, device):
    x = normal(n)
    actual, expected = transform(x.to(device), method=method), textbook(x.numpy())
    assert distance(actual.cpu(), expected) <= bound_with_textbook(x, (n,))


@pytest.mark.parametrize("shape", [(300, 300), (257, 96)], ids=["300x300", "257x96"])
@pytest.mark.parametrize("method", ["fft", "matmul"])
@pytest.mark.parametrize(
    ("transform", "reference"),
    [(dct2, scipy.fft.dctn), (idct2, scipy.fft.idctn)],
    ids=["dct2", "idct2"],
)
def test_torch_paths_agree_with_scipy_at_larger_sizes(transform, reference, method, shape, device):
    x = normal(*shape)
    actual, expected = transform(x.to(device), method=method), reference(x, type=2, norm="ortho")
    assert distance(actual.cpu(), expected) <= 2 * bound(x, shape)


@pytest.mark.parametrize("transform", ALL)
def test_auto_takes_the_scipy_path_on_the_cpu(transform):
    x = normal(5, 30, 30, dtype=torch.float32)
    assert torch.equal(transform(x), transform(x, method="scipy"))
    # Otherwise the line above would hold for any choice.
    assert not torch.equal(transform(x), transform(x, method="fft"))


@by_method
@pytest.mark.parametrize("transform", ALL)
def test_leading_dimensions_are_a_batch(transform, method):
    x = normal(2, 1, 3, 6, 5)
    y = transform(x, method=method)
    assert y.shape == x.shape
    for index in np.ndindex(2, 1, 3):
        alone = transform(x[index], method=method)
        assert distance(y[index], alone) <= 2 * bound(x[index], (6, 5))


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


@pytest.mark.parametrize("shape", [(300, 300), (768, 768), *PRIMES], ids=str)
@pytest.mark.parametrize("method", ["auto", "fft"])
@pytest.mark.parametrize("transform", TWO_DIMENSIONS)
def test_float32_meets_the_accuracy_requirement(transform, method, shape, device):
    assert largest_error(transform, method, shape, device) < REQUIRED


@pytest.mark.deep
@pytest.mark.parametrize("method", ["scipy", "fft"])
@pytest.mark.parametrize("transform", TWO_DIMENSIONS)
def test_float32_meets_the_accuracy_requirement_at_4096(transform, method):
    assert largest_error(transform, method, (4096, 4096)) < REQUIRED


def largest_error_of_products(n):
    """Twice six standard deviations of two n-term products, each of √n/2·u at most, see bound.

    How far below this they stay depends on the blocks in which the machine's BLAS adds up. The
    requirement above is out of reach for them.
    """
    return 6 * math.sqrt(2 * n) * 2**-24


@pytest.mark.parametrize("n", [300, 768])
@pytest.mark.parametrize("transform", TWO_DIMENSIONS)
def test_float32_accuracy_of_the_matrix_products(transform, n):
    assert largest_error(transform, "matmul", (n, n)) < largest_error_of_products(n)


@pytest.mark.deep
@pytest.mark.parametrize("transform", TWO_DIMENSIONS)
def test_float32_accuracy_of_the_matrix_products_at_4096(transform):
    assert largest_error(transform, "matmul", (4096, 4096)) < largest_error_of_products(4096)


@pytest.mark.parametrize(
    ("transform", "shape"),
    [
        pytest.param(dct, (), id="dct of a scalar"),
        pytest.param(idct, (), id="idct of a scalar"),
        pytest.param(dct, (3, 0), id="dct of length 0"),
        pytest.param(idct, (0,), id="idct of length 0"),
        pytest.param(dct2, (3,), id="dct2 of a vector"),
        pytest.param(idct2, (3,), id="idct2 of a vector"),
        pytest.param(dct2, (0, 3), id="dct2 without rows"),
        pytest.param(idct2, (2, 3, 0), id="idct2 without columns"),
    ],
)
def test_missing_or_empty_dimensions_are_refused(transform, shape):
    with pytest.raises(InvalidArgumentError, match=r"non-empty last dimension.*, not shape"):
        transform(torch.zeros(shape))


@pytest.mark.parametrize("transform", ALL)
def test_an_unknown_method_is_refused_with_the_known_ones(transform):
    with pytest.raises(
        InvalidArgumentError, match="unknown DCT method 'fast'; choose one of auto, scipy, fft"
    ):
        transform(torch.ones(3, 3), method="fast")


@pytest.mark.parametrize("transform", ALL)
def test_the_scipy_path_is_refused_off_the_cpu(transform):
    with pytest.raises(InvalidArgumentError, match="runs on the CPU, not on meta"):
        transform(torch.ones(3, 3, device="meta"), method="scipy")


@pytest.mark.parametrize("transform", ALL)
def test_auto_off_the_cpu_stays_on_the_device(transform):
    y = transform(torch.ones(2, 3, 4, device="meta"))
    assert y.device.type == "meta"
    assert y.shape == (2, 3, 4)
