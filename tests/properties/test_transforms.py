"""Properties of the transforms over random shapes, batches, precisions and values."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from loca_theory.transforms import dct, dct2, idct, idct2
from loca_theory.transforms.dft import dft2, idft2
from loca_theory.transforms.half_spectrum import HalfSpectrum
from loca_theory.transforms.real_spectrum import RealSpectrum

reproducible = settings(max_examples=15, deadline=None, derandomize=True, database=None)

methods = st.sampled_from(["scipy", "fft", "matmul"])
precisions = st.sampled_from([np.float32, np.float64])
lengths = st.integers(1, 24)
coefficients = st.floats(-8, 8, width=32, allow_subnormal=False)


def values(dtype):
    """Entries over many orders of magnitude, every one a normal number of both precisions."""
    return st.floats(-1e3, 1e3, width=32, allow_subnormal=False).map(dtype)


@st.composite
def tensors(draw, count=1, dims=2):
    """One or more tensors of one shape (up to two batch dimensions) and precision."""
    dtype = draw(precisions)
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    shape = (*batch, *(draw(lengths) for _ in range(dims)))
    drawn = [
        torch.from_numpy(draw(arrays.arrays(dtype, shape, elements=values(dtype))))
        for _ in range(count)
    ]
    return drawn[0] if count == 1 else drawn


def norm(x):
    return float(x.abs().double().norm())


def close(actual, expected, scale, transforms=1):
    """Equality up to the rounding of so many orthogonal transforms of something of norm scale.

    With sides up to 24 a transform takes log2 24 = 4.6 butterflies of 4 eps and two more stages a
    dimension, or a dot product of 24 terms (√24 eps, see test_dct.bound of the transforms): in all
    2·(4·6.6 + 4.9) < 64 eps relative to the norm. The last term is for underflow.
    """
    info = torch.finfo(expected.dtype)
    tolerance = 64 * transforms * info.eps * scale + info.tiny * expected.numel()
    return actual.shape == expected.shape and norm(actual - expected) <= tolerance


@reproducible
@given(tensors(), methods)
def test_inverses(x, method):
    assert close(idct2(dct2(x, method=method), method=method), x, norm(x), 2)
    assert close(dct2(idct2(x, method=method), method=method), x, norm(x), 2)
    assert close(idct(dct(x, method=method), method=method), x, norm(x), 2)
    assert close(dct(idct(x, method=method), method=method), x, norm(x), 2)


@reproducible
@given(tensors(count=2), methods)
def test_the_inverse_is_the_transpose(pair, method):
    x, y = (t.double() for t in pair)
    for transform, inverse in ((dct, idct), (dct2, idct2)):
        left = (transform(x, method=method) * y).sum()
        right = (x * inverse(y, method=method)).sum()
        # The two sums add products that are up to ‖x‖‖y‖ together.
        assert close(left, right, norm(x) * norm(y), 2 + x.numel() // 64)


@reproducible
@given(tensors(count=2), coefficients, coefficients, methods)
def test_linearity(pair, a, b, method):
    x, y = pair
    scale = abs(a) * norm(x) + abs(b) * norm(y)
    for transform in (dct, idct, dct2, idct2):
        combined = transform(a * x + b * y, method=method)
        separate = a * transform(x, method=method) + b * transform(y, method=method)
        assert close(combined, separate, scale, 3)


@reproducible
@given(tensors())
def test_the_methods_agree(x):
    for transform in (dct, idct, dct2, idct2):
        expected = transform(x, method="scipy")
        for method in ("fft", "matmul"):
            assert close(transform(x, method=method), expected, norm(x), 2)


@reproducible
@given(tensors(), methods)
def test_two_dimensions_are_one_after_the_other(x, method):
    one_by_one = dct(dct(x, method=method).mT, method=method).mT
    assert close(dct2(x, method=method), one_by_one, norm(x), 3)
    one_by_one = idct(idct(x, method=method).mT, method=method).mT
    assert close(idct2(x, method=method), one_by_one, norm(x), 3)


@reproducible
@given(tensors())
def test_dft_inverse_parseval_and_symmetry(x):
    spectrum = dft2(x)
    assert close(idft2(spectrum), x.to(spectrum.dtype), norm(x), 2)
    assert close(torch.tensor(norm(spectrum)).to(x), torch.tensor(norm(x)).to(x), norm(x))
    mirrored = spectrum.flip((-2, -1)).roll((1, 1), (-2, -1)).conj()
    assert close(mirrored, spectrum, norm(x), 2)


@reproducible
@given(tensors(count=2), coefficients, coefficients)
def test_real_spectrum_is_a_linear_isometry_with_its_inverse(pair, a, b):
    x, y = pair
    spectrum = RealSpectrum(*x.shape[-2:])
    coordinates = spectrum.forward(x)
    assert close(torch.tensor(norm(coordinates)).to(x), torch.tensor(norm(x)).to(x), norm(x))
    assert close(spectrum.inverse(coordinates), x, norm(x), 2)
    flat = y.flatten(-2)
    assert close(spectrum.forward(spectrum.inverse(flat)), flat, norm(y), 2)
    separate = a * coordinates + b * spectrum.forward(y)
    scale = abs(a) * norm(x) + abs(b) * norm(y)
    assert close(spectrum.forward(a * x + b * y), separate, scale, 3)


@reproducible
@given(tensors())
def test_keeping_locations_is_keeping_energy(x):
    """Zeroing a location's coordinates lowers ‖W‖² by that location's energy."""
    spectrum = RealSpectrum(*x.shape[-2:])
    x = x.double()
    coordinates = spectrum.forward(x)
    energies = spectrum.location_energies(coordinates)
    s, m = spectrum.half.self_conjugate_count, spectrum.half.pair_count
    last = s + m - 1
    kept = coordinates.clone()
    kept[..., last] = 0
    if m:
        kept[..., last + m] = 0
    lost = norm(x) ** 2 - norm(spectrum.inverse(kept)) ** 2
    assert abs(lost - float(energies[..., last].sum())) <= 256 * 2**-52 * norm(x) ** 2 + 1e-300


@reproducible
@given(st.integers(1, 40), st.integers(1, 40))
def test_half_spectrum_counts_every_entry_once(p, q):
    half = HalfSpectrum(p, q)
    seen = np.zeros((p, q), dtype=int)
    np.add.at(seen, tuple(half.self_conjugate.T), 1)
    np.add.at(seen, tuple(half.representatives.T), 1)
    np.add.at(seen, tuple((-half.representatives % (p, q)).T), 1)
    assert (seen == 1).all()
