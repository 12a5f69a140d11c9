"""Properties of the transforms over random shapes, batches, precisions and values."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from loca_theory.transforms import dct, dct2, idct, idct2
from loca_theory.transforms.half_spectrum import HalfSpectrum
from loca_theory.transforms.real_spectrum import RealSpectrum

reproducible = settings(max_examples=15, deadline=None, derandomize=True, database=None)

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
@given(tensors())
def test_the_methods_agree(x):
    for transform in (dct, idct, dct2, idct2):
        expected = transform(x, method="scipy")
        for method in ("fft", "matmul"):
            assert close(transform(x, method=method), expected, norm(x), 2)


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
@given(st.integers(1, 40), st.integers(1, 40))
def test_half_spectrum_counts_every_entry_once(p, q):
    half = HalfSpectrum(p, q)
    seen = np.zeros((p, q), dtype=int)
    np.add.at(seen, tuple(half.self_conjugate.T), 1)
    np.add.at(seen, tuple(half.representatives.T), 1)
    np.add.at(seen, tuple((-half.representatives % (p, q)).T), 1)
    assert (seen == 1).all()
