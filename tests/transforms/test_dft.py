"""The unitary DFT, against the product H W H."""

import math

import numpy as np
import pytest
import torch

from loca_theory.transforms.dft import dft2, idft2

SHAPES = [(1, 1), (1, 6), (5, 1), (3, 4), (12, 9)]
by_shape = pytest.mark.parametrize("shape", SHAPES, ids=[f"{p}x{q}" for p, q in SHAPES])
EPS = torch.finfo(torch.float64).eps


def normal(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def bound(x):
    """Error of one transform and of one oracle, for sides up to 12.

    4 eps a butterfly and √n eps a dot product, as in test_dct.bound, give 2·(4·6 + 4) eps; the
    oracle's phases reach 2π·11²/12, with 1.5 eps of it in each of two factors: 200 eps.
    """
    return 256 * EPS * float(x.abs().double().norm())


def hermitian_matrix(n):
    """The paper's H, symmetric and unitary."""
    u = np.arange(n)
    return np.exp(-2j * np.pi * np.outer(u, u) / n) / math.sqrt(n)


@by_shape
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=["real", "complex"])
def test_it_is_the_product_with_both_matrices(shape, dtype):
    x = normal(2, *shape, dtype=dtype)
    left, right = map(hermitian_matrix, shape)
    assert np.linalg.norm(dft2(x).numpy() - left @ x.numpy() @ right) <= bound(x)
    expected = left.conj() @ x.numpy() @ right.conj()
    assert np.linalg.norm(idft2(x).numpy() - expected) <= bound(x)


def test_float32_stays_single():
    assert dft2(normal(3, 4, dtype=torch.float32)).dtype == torch.complex64
    assert idft2(normal(3, 4, dtype=torch.complex64)).dtype == torch.complex64


@pytest.mark.parametrize("transform", [dft2, idft2])
def test_gradients(transform):
    x = normal(3, 4, dtype=torch.complex128).requires_grad_()
    assert torch.autograd.gradcheck(transform, x)
    assert torch.autograd.gradgradcheck(lambda t: transform(t).abs().square(), x)
