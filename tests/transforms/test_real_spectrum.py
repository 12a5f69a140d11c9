"""The real Fourier coordinates: an isometry of every shape, and what its parts are."""

import math

import numpy as np
import pytest
import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms.real_spectrum import RealSpectrum

SIDES = [1, 2, 3, 4, 7, 12]
each_with_every_width = pytest.mark.parametrize("p", SIDES, ids=lambda p: f"{p} rows")
SOME = [(1, 1), (2, 2), (3, 5), (4, 6), (1, 7), (6, 1), (5, 8)]
some_shapes = pytest.mark.parametrize(("p", "q"), SOME, ids=[f"{p}x{q}" for p, q in SOME])
EPS = torch.finfo(torch.float64).eps

# One transform of up to 12x12: 7u a butterfly, two more for the factor √2 and the concatenation,
# 2·4·(log2 12 + 2) eps = 45 eps relative to the norm; the phases of the oracle's matrices reach
# 2π·11²/12, with 1.5 eps of it in each of two factors, 190 eps.
RELATIVE = 256 * EPS


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def brute_force_coordinates(matrix):
    """Coordinates from the full spectrum H W H, pair by pair.

    Of each pair the member that comes first, columns before rows, stands for both.
    """
    p, q = matrix.shape
    h_p, h_q = (
        np.exp(-2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n) / math.sqrt(n)
        for n in (p, q)
    )
    spectrum = h_p @ matrix @ h_q
    own, pairs = [], []
    for i in range(p):
        for j in range(q):
            partner = (-i % p, -j % q)
            if partner == (i, j):
                own.append(spectrum[i, j])
            elif (j, i) < (partner[1], partner[0]):
                pairs.append(spectrum[i, j])
    own, pairs = np.array(own), np.array(pairs, dtype=complex)
    assert np.abs(own.imag).max() <= RELATIVE * np.linalg.norm(matrix)
    return np.concatenate([own.real, math.sqrt(2) * pairs.real, math.sqrt(2) * pairs.imag])


def matrix_of_the_map(p, q):
    """Column k holds the coordinates of the k-th unit matrix."""
    units = torch.eye(p * q, dtype=torch.float64).unflatten(-1, (p, q))
    return RealSpectrum(p, q).forward(units).T


@each_with_every_width
def test_the_map_is_orthogonal(p):
    for q in SIDES:
        matrix = matrix_of_the_map(p, q)
        assert matrix.shape == (p * q, p * q)
        identity = torch.eye(p * q, dtype=torch.float64)
        # Entries of QᵀQ are inner products of two columns, each off by RELATIVE at most.
        assert float((matrix.T @ matrix - identity).abs().max()) <= 2 * RELATIVE
        assert float((matrix @ matrix.T - identity).abs().max()) <= 2 * math.sqrt(p * q) * RELATIVE


@each_with_every_width
def test_coordinates_are_those_of_the_full_spectrum(p, device):
    for q in SIDES:
        x = normal(p, q)
        actual = RealSpectrum(p, q).forward(x.to(device)).cpu().numpy()
        assert np.linalg.norm(actual - brute_force_coordinates(x.numpy())) <= RELATIVE * float(
            x.norm()
        )


@each_with_every_width
def test_inverse_undoes_forward_and_forward_undoes_inverse(p, device):
    for q in SIDES:
        spectrum = RealSpectrum(p, q)
        x, coordinates = normal(p, q).to(device), normal(p * q, seed=1).to(device)
        back, again = (
            spectrum.inverse(spectrum.forward(x)),
            spectrum.forward(spectrum.inverse(coordinates)),
        )
        assert float((back - x).norm()) <= RELATIVE * float(x.norm())
        assert float((again - coordinates).norm()) <= RELATIVE * float(coordinates.norm())


@some_shapes
@pytest.mark.parametrize("batch", [(3,), (2, 1, 3), (0,), (2, 0)], ids=str)
def test_leading_dimensions_are_a_batch(p, q, batch):
    spectrum = RealSpectrum(p, q)
    x = normal(*batch, p, q)
    coordinates = spectrum.forward(x)
    back = spectrum.inverse(coordinates)
    assert coordinates.shape == (*batch, p * q)
    assert back.shape == x.shape
    assert spectrum.location_energies(coordinates).shape == (*batch, spectrum.half.location_count)
    for index in np.ndindex(*batch):
        alone = spectrum.forward(x[index])
        tolerance = RELATIVE * float(x[index].norm())
        assert float((coordinates[index] - alone).norm()) <= tolerance
        assert float((back[index] - x[index]).norm()) <= tolerance


def test_an_empty_batch_stays_in_the_graph():
    spectrum = RealSpectrum(3, 4)
    x = torch.empty(0, 3, 4, requires_grad=True)
    spectrum.inverse(spectrum.forward(x)).sum().backward()
    assert x.grad is not None


def test_float32_stays_float32():
    spectrum = RealSpectrum(12, 11)
    x = normal(12, 11, dtype=torch.float32)
    coordinates = spectrum.forward(x)
    assert coordinates.dtype == spectrum.inverse(coordinates).dtype == torch.float32
    expected = brute_force_coordinates(x.double().numpy())
    error = np.linalg.norm(coordinates.numpy() - expected)
    assert error <= 45 * torch.finfo(torch.float32).eps * float(x.norm())


@pytest.mark.parametrize(("p", "q"), [(3, 4), (4, 3)], ids=["3x4", "4x3"])
def test_gradients_match_differences(p, q):
    spectrum = RealSpectrum(p, q)
    x, coordinates = normal(2, p, q).requires_grad_(), normal(2, p * q).requires_grad_()
    assert torch.autograd.gradcheck(spectrum.forward, x)
    assert torch.autograd.gradcheck(spectrum.inverse, coordinates)
    assert torch.autograd.gradgradcheck(lambda t: spectrum.forward(t).square(), x)
    assert torch.autograd.gradgradcheck(spectrum.location_energies, coordinates)


@each_with_every_width
def test_energies_are_those_of_the_coordinates_and_of_the_spectrum(p, device):
    for q in SIDES:
        x, spectrum = normal(p, q).to(device), RealSpectrum(p, q)
        s, m = spectrum.half.self_conjugate_count, spectrum.half.pair_count
        coordinates = spectrum.forward(x)
        full = torch.fft.fft2(x, norm="ortho").abs().square().cpu().numpy()
        of_pairs = 2 * full[tuple(spectrum.half.representatives.T)]
        of_locations = np.concatenate([full[tuple(spectrum.half.self_conjugate.T)], of_pairs])
        found, expected = spectrum.coordinate_energies(x), coordinates.square()
        tolerance = 2 * RELATIVE * float(x.norm()) ** 2
        parts = [slice(0, s), slice(s, s + m), slice(s + m, s + 2 * m)]
        pairs = [(found[part], expected[part]) for part in parts]
        # Real and imaginary parts of a location stand at the same location of their parts.
        pairs += [(spectrum.merge_pairs(found), spectrum.location_energies(coordinates))]
        located = spectrum.location_energies(coordinates).cpu().numpy()
        assert np.abs(located - of_locations).max() <= tolerance
        for mine, theirs in pairs:
            difference = mine.sort().values - theirs.sort().values
            assert float(difference.norm()) <= tolerance


REFUSED = [
    (lambda one: one.forward(torch.zeros(4, 3)), r"of shape \(\.\.\., 3, 4\), not \(4, 3\)"),
    (lambda one: one.forward(torch.zeros(4)), r"of shape \(\.\.\., 3, 4\), not \(4,\)"),
    (lambda one: one.inverse(torch.zeros(3, 4)), r"of shape \(\.\.\., 12\), not \(3, 4\)"),
    (lambda one: one.location_energies(torch.zeros(())), r"of shape \(\.\.\., 12\), not \(\)"),
    (lambda one: one.coordinate_energies(torch.ones(1, 3, 4)), r"\(3, 4\), not \(1, 3, 4\)"),
    (lambda _: RealSpectrum(0, 3), "at least one row and one column"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(InvalidArgumentError, match=message):
        call(RealSpectrum(3, 4))
