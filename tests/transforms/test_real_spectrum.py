"""The real Fourier coordinates: an isometry of every shape, and what its parts are."""

import math

import numpy as np
import pytest
import torch

from loca_theory.transforms.real_spectrum import RealSpectrum

SIDES = [1, 2, 3, 4, 7, 12]
each_with_every_width = pytest.mark.parametrize("p", SIDES, ids=lambda p: f"{p} rows")
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
    real, pairs = [], []
    for i in range(p):
        for j in range(q):
            partner = (-i % p, -j % q)
            if partner == (i, j):
                real.append(spectrum[i, j])
            elif (j, i) < (partner[1], partner[0]):
                pairs.append(spectrum[i, j])
    real, pairs = np.array(real), np.array(pairs, dtype=complex)
    assert np.abs(real.imag).max() <= RELATIVE * np.linalg.norm(matrix)
    return np.concatenate([real.real, math.sqrt(2) * pairs.real, math.sqrt(2) * pairs.imag])


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
        back, there_and_back = (
            spectrum.inverse(spectrum.forward(x)),
            spectrum.forward(spectrum.inverse(coordinates)),
        )
        assert float((back - x).norm()) <= RELATIVE * float(x.norm())
        assert float((there_and_back - coordinates).norm()) <= RELATIVE * float(coordinates.norm())


@each_with_every_width
def test_energies_are_those_of_the_coordinates_and_of_the_spectrum(p, device):
    for q in SIDES:
        x, spectrum = normal(p, q).to(device), RealSpectrum(p, q)
        s, m = spectrum.half.self_conjugate_count, spectrum.half.pair_count
        coordinates = spectrum.forward(x)
        full = torch.fft.fft2(x, norm="ortho").abs().square().cpu().numpy()
        of_pairs = 2 * full[tuple(spectrum.half.representatives.T)]
        of_locations = np.concatenate([full[tuple(spectrum.half.self_conjugate.T)], of_pairs])
        energies, expected = spectrum.coordinate_energies(x), coordinates.square()
        tolerance = 2 * RELATIVE * float(x.norm()) ** 2
        parts = [slice(0, s), slice(s, s + m), slice(s + m, s + 2 * m)]
        pairs = [(energies[part], expected[part]) for part in parts]
        # Real and imaginary parts of a location stand at the same location of their parts.
        pairs += [(spectrum.merge_pairs(energies), spectrum.merge_pairs(expected))]
        located = spectrum.merge_pairs(expected).cpu().numpy()
        assert np.abs(located - of_locations).max() <= tolerance
        for ours, theirs in pairs:
            difference = ours.sort().values - theirs.sort().values
            assert float(difference.norm()) <= tolerance
