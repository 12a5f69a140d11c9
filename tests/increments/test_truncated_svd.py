"""Leading singular triplets: against a dense decomposition, within the bound that they state."""

from importlib import import_module

import numpy as np
import pytest
import torch

from loca_theory.increments.truncated_svd import truncated_svd

MODULE = import_module("loca_theory.increments.truncated_svd")


@pytest.fixture(autouse=True)
def small_matrices_like_large_ones(monkeypatch):
    """Krylov spaces for small matrices, too, so that dense oracles are quick."""
    monkeypatch.setattr(MODULE, "_GRAM_UP_TO", 0)


def noise(p, q, dtype=torch.float32):
    return torch.randn(p, q, dtype=dtype, generator=torch.Generator().manual_seed(0))


def decaying(p, q, rate):
    return noise(p, q) * torch.arange(1, q + 1) ** -rate


MATRICES = {
    "noise": noise(300, 240),
    "wide noise": noise(240, 300),
    "decaying": decaying(300, 240, 1.0),
    "steep": decaying(240, 300, 3.0),
    "spikes": noise(300, 240) + 20 * noise(300, 5) @ noise(5, 240),
    "low rank": noise(300, 5) @ noise(5, 240),
    "double": noise(300, 240, torch.float64),
    "constant": torch.ones(300, 240),
}
# 12 columns in 6 blocks are less than half of 240: a Krylov space. 64 are not: the Gram matrix.
KRYLOV, GRAM = 4, 64


@pytest.mark.parametrize("k", [1, KRYLOV, GRAM, 240])
@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES.keys())
def test_it_retains_as_much_as_the_best_up_to_the_stated_bound(matrix, k):
    svd = truncated_svd(matrix, k)
    u, s, vh = svd.u.double(), svd.s.double(), svd.vh.double()
    exact = torch.linalg.svdvals(matrix.double())
    energy = float(exact.square().sum())
    # Rounding of products of 300 terms, in units of the largest singular value.
    eps = torch.finfo(matrix.dtype).eps * np.sqrt(300) * 4
    identity = torch.eye(k, dtype=torch.float64)
    assert float((u.mT @ u - identity).abs().max()) < eps
    assert float((vh @ vh.mT - identity).abs().max()) < eps
    assert (s.diff() <= 0).all()
    error = float((matrix.double() - u @ torch.diag(s) @ vh).square().sum()) / energy
    assert error == pytest.approx(1 - float(s.square().sum()) / energy, abs=eps)
    best = float(exact[k:].square().sum()) / energy
    assert -eps <= error - best <= svd.missing + eps
    # A statement that says nothing would always hold.
    assert svd.missing < 2e-2


@pytest.mark.parametrize("k", [KRYLOV, GRAM])
@pytest.mark.parametrize("exponent", [-140, -60, 60, 120])
def test_squares_beyond_the_range_of_the_type_are_no_obstacle(k, exponent):
    matrix = noise(300, 240)
    plain = truncated_svd(matrix, k)
    scaled = truncated_svd(torch.ldexp(matrix, torch.tensor(exponent)), k)
    # Entries near the smallest float32 numbers are rounded.
    assert torch.ldexp(scaled.s.double(), torch.tensor(-exponent)) == pytest.approx(
        plain.s.double(), rel=1e-6 if exponent > -100 else 1e-2
    )


def test_it_is_the_same_every_time_and_takes_arrays():
    matrix = noise(300, 240)
    of_tensor, of_array = truncated_svd(matrix, KRYLOV), truncated_svd(matrix.numpy(), KRYLOV)
    assert torch.equal(of_tensor.u, of_array.u)
    assert torch.equal(of_tensor.vh, of_array.vh)
    assert of_tensor.missing == of_array.missing


def test_small_matrices_are_decomposed_whole(monkeypatch):
    """Their bound is the rounding of double precision."""
    by_blocks = truncated_svd(noise(300, 240), KRYLOV)
    monkeypatch.undo()
    exact = truncated_svd(noise(300, 240), KRYLOV)
    assert exact.missing < 1e-12 < by_blocks.missing
    assert float(exact.s.square().sum()) >= float(by_blocks.s.square().sum()) * (1 - 1e-6)


def test_zeros_have_zeros():
    svd = truncated_svd(torch.zeros(300, 240), KRYLOV)
    assert svd.s.tolist() == [0.0] * KRYLOV
    assert svd.missing == 0
