"""Approximations of given matrices, against least squares and brute force in dense algebra."""

import math

import numpy as np
import pytest
import torch

from loca_theory.expressivity import METHODS, Budget, approximate, retained_energies
from loca_theory.expressivity.random_choices import random_indices
from loca_theory.transforms.half_spectrum import HalfSpectrum

from .dense import ROUNDING, approximated, gaussian, projected

APPROXIMATING = [
    "LoRA",
    "random Fourier",
    "random DCT",
    "FourierFT",
    "Fourier pairs",
    "Fourier",
    "LoCA",
    "entries",
    "DoRA",
    "VeRA",
]

# Entries that are their own conjugates alone; even, odd, wide and tall.
SHAPES = [(2, 2, 1), (8, 8, 2), (9, 9, 3), (9, 6, 2), (5, 12, 3)]
shapes = pytest.mark.parametrize(("p", "q", "r"), SHAPES)


def fourier_atoms(p, q, indices):
    """Re and Im of the inverse DFT of a unit at each flat location of the full spectrum."""
    units = np.zeros((len(indices), p * q))
    units[np.arange(len(indices)), indices] = 1
    images = np.fft.ifft2(units.reshape(-1, p, q), axes=(1, 2)).reshape(len(indices), p * q)
    return images.real, images.imag


def cosine_atoms(p, q):
    """DCT-II basis matrices from their definition, as rows."""

    def basis(n):
        k, x = np.arange(n)[:, None], np.arange(n)[None]
        scale = np.where(k == 0, math.sqrt(1 / n), math.sqrt(2 / n))
        return scale * np.cos(math.pi * (2 * x + 1) * k / (2 * n))

    return np.kron(basis(p), basis(q))


@shapes
def test_r_is_the_truncated_decomposition(p, q, r):
    matrix, budget = gaussian(p, q), Budget(p, q, r)
    u, s, vh = np.linalg.svd(matrix, full_matrices=False)
    expected = u[:, :r] @ np.diag(s[:r]) @ vh[:r]
    np.testing.assert_allclose(approximated(matrix, "LoRA", budget), expected, atol=ROUNDING)


@shapes
@pytest.mark.parametrize("method", ["LoCA", "Fourier pairs", "Fourier", "entries"])
def test_a_selection_keeps_the_largest_energies_of_its_dense_basis(p, q, r, method):
    matrix, budget = gaussian(p, q), Budget(p, q, r)
    flat = matrix.ravel()
    match method:
        case "LoCA":
            energies = (cosine_atoms(p, q) @ flat) ** 2
        case "entries":
            energies = flat**2
        case _:
            spectrum = np.fft.fft2(matrix, norm="ortho")
            half = HalfSpectrum(p, q)
            self_conjugate = spectrum[tuple(half.self_conjugate.T)].real ** 2
            pairs = spectrum[tuple(half.representatives.T)]
            parts = [self_conjugate, 2 * np.abs(pairs) ** 2]
            if method == "Fourier":
                parts = [self_conjugate, 2 * pairs.real**2, 2 * pairs.imag**2]
            energies = np.concatenate(parts)
    count = budget.chosen_locations if method == "Fourier pairs" else budget.chosen_coefficients
    retained = retained_energies(torch.from_numpy(matrix), method, [budget])[0]
    assert retained == pytest.approx(np.sort(energies)[::-1][:count].sum(), rel=ROUNDING)


@shapes
@pytest.mark.parametrize("method", ["random Fourier", "FourierFT", "random DCT"])
def test_a_random_choice_is_the_least_squares_fit_of_its_atoms(p, q, r, method):
    """FourierFT, as shipped: Re(ifft2) of real coefficients anywhere in the full spectrum."""
    matrix, budget = gaussian(p, q), Budget(p, q, r)
    half = HalfSpectrum(p, q)
    count, items = (p + q) * r, p * q
    if method == "random Fourier":
        count, items = count // 2, half.location_count
    chosen = random_indices(items, count, np.random.default_rng(7))
    match method:
        case "random Fourier":  # both atoms at independent locations, self-conjugate ones first
            indices = np.concatenate([half.self_conjugate, half.representatives])[chosen]
            atoms = np.concatenate(fourier_atoms(p, q, indices[:, 0] * q + indices[:, 1]))
        case "FourierFT":
            atoms = fourier_atoms(p, q, chosen)[0]
        case _:
            atoms = cosine_atoms(p, q)[chosen]
    expected = projected(matrix, atoms)
    np.testing.assert_allclose(approximated(matrix, method, budget), expected, atol=ROUNDING)


@pytest.mark.parametrize("method", [m.name for m in METHODS.values() if m.can_approximate])
def test_energies_of_several_budgets_are_those_of_the_approximations_one_by_one(method):
    """Random locations and factors of a smaller budget are the first of a larger one's."""
    matrix, budgets = gaussian(12, 18), [Budget(12, 18, r) for r in (2, 6, 4)]
    energies = retained_energies(matrix, method, budgets, np.random.default_rng(7))
    residuals = (matrix - approximated(matrix, method, budget) for budget in budgets)
    expected = [np.sum(matrix**2) - np.sum(residual**2) for residual in residuals]
    np.testing.assert_allclose(energies, expected, rtol=ROUNDING)
    np.testing.assert_array_equal(matrix, gaussian(12, 18), "the argument is left alone")


@pytest.mark.parametrize("method", APPROXIMATING)
def test_single_precision_stays_single_and_close(method):
    # With more numbers, rounding decides at which local optimum VeRA's alternation ends.
    matrix, budget = gaussian(12, 9), Budget(12, 9, 1 if method == "VeRA" else 3)
    single = torch.from_numpy(matrix).float()
    ours = approximate(single, method, budget, np.random.default_rng(7))
    assert ours.dtype == torch.float32
    retained = retained_energies(single, method, [budget], np.random.default_rng(7))
    assert retained.dtype == np.float64
    double = retained_energies(torch.from_numpy(matrix), method, [budget], np.random.default_rng(7))
    assert retained[0] == pytest.approx(double[0], rel=1e-4)


@pytest.mark.parametrize(
    "method",
    [
        "LoRA",
        "random Fourier",
        "random DCT",
        "Fourier pairs",
        "Fourier",
        "LoCA",
        "entries",
        "DoRA",
        "VeRA",
    ],
)
@pytest.mark.parametrize(
    ("dtype", "power"),
    [(torch.float32, 100), (torch.float32, -110), (torch.float64, 1000), (torch.float64, -900)],
)
def test_entries_whose_squares_overflow_or_vanish_are_approximated(method, dtype, power):
    w, half, budget = (
        torch.from_numpy(gaussian(9, 12)).to(dtype),
        2.0 ** (power // 2),
        Budget(9, 12, 2),
    )

    def result_of(use, matrix):
        return use(matrix, method, budget, np.random.default_rng(7))

    # Powers of two change no digit, here and inside.
    scaled = result_of(approximate, w * half * half)
    torch.testing.assert_close(scaled / half / half, result_of(approximate, w))
    if dtype == torch.float32:
        energies = [
            retained_energies(matrix, method, [budget], np.random.default_rng(7))
            for matrix in (w * half * half, w)
        ]
        np.testing.assert_allclose(energies[0], np.ldexp(energies[1], 2 * power), rtol=1e-5)
