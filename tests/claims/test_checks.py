"""Checks against independent oracles."""

import numpy as np
import pytest
from scipy import fft, stats

from loca_theory.claims.checks import (
    complexity,
    fourier,
    normality,
    theory_bases,
)


def rng():
    return np.random.default_rng(0)


def test_the_distance_is_that_of_students_law(monkeypatch):
    """Without a prior an entry is Student's with n − 7 degrees of freedom, up to scale."""
    n, x = 20, np.linspace(-30, 30, 200_001)
    law = stats.t(n - 7)
    gap = np.abs(law.pdf(x) - stats.norm.pdf(x, scale=law.std()))
    expected = np.trapezoid(gap, x) / 2
    # Of 2000 draws the standard deviation is 0.0010, of 20,000 a third of that.
    error = 5 * 0.0010 / np.sqrt(10)
    # The prior is normal: with it ΔW is closer.
    assert normality._total_variation(rng(), n, 20_000) < expected - error
    monkeypatch.setattr(normality, "_SPREAD", 0.0)
    found = normality._total_variation(rng(), n, 20_000)
    assert found == pytest.approx(expected, abs=error)


def test_hubers_estimator_solves_its_equation():
    x, y = rng().standard_normal((200, 8)), rng().standard_t(3, (200, 4))
    score = np.clip(y - x @ normality.huber(x, y), -1.345, 1.345)
    assert np.abs(x.T @ score).max() < 1e-3 * len(x)


def test_maps_are_those_of_the_transform():
    w = rng().standard_normal((5, 5))
    f = np.fft.fft2(w, norm="ortho")
    for matrix, part in zip(fourier.maps(5), (f.real, f.imag), strict=True):
        np.testing.assert_allclose((matrix @ w.ravel()).reshape(5, 5), part, atol=1e-12)


def test_the_fast_transform_is_the_transform():
    x = rng().standard_normal(64)
    found, multiplications = complexity.fast_cosine(x)
    np.testing.assert_allclose(found, fft.dct(x, 2) / 2, atol=1e-12)
    assert multiplications == 32 * 6


@pytest.mark.parametrize("size", [5, 6])
def test_fourth_powers_are_those_of_the_atoms_of_the_real_fourier_basis(size):
    x, powers = np.arange(size), []
    for u, v in np.ndindex(size, size):
        # A cosine and a sine for each pair ±(u, v); a self-conjugate frequency has no sine.
        is_own = (2 * u % size, 2 * v % size) == (0, 0)
        shift = 0 if is_own or (u, v) <= (-u % size, -v % size) else 1
        wave = np.cos(2 * np.pi * (u * x[:, None] + v * x) / size - shift * np.pi / 2)
        values = np.linalg.svd(wave / np.linalg.norm(wave), compute_uv=False)
        powers.append((values**4).sum())
    assert theory_bases.fourth_powers("F3", size) == pytest.approx(np.mean(powers))
    assert theory_bases.fourth_powers("D", size) == 1


@pytest.mark.parametrize(("count", "size"), [(1, 6), (2, 5), (4, 4), (3, 40)])
def test_the_law_of_a_coordinate_is_that_of_draws(count, size):
    drawn, draws = rng(), 40_000
    u, v = (drawn.standard_normal((draws, size)) for _ in range(2))
    u, v = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (u, v))
    squares = size**2 / count * (u * v)[:, :count].sum(axis=1) ** 2
    law = theory_bases.EqualSingularValues(count, size)
    t = np.array([0.0, 0.2, 1.0, 3.0])
    for found, samples in (
        (law.tail(t), squares[:, None] > t),
        (law.energy_above(t), np.where(squares[:, None] > t, squares[:, None], 0.0)),
    ):
        errors = samples.std(axis=0) / np.sqrt(draws)
        assert (np.abs(found - samples.mean(axis=0)) <= 4.5 * errors + 1e-6).all()
