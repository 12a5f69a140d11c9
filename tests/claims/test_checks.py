"""Checks against independent oracles."""

from dataclasses import replace
from inspect import signature
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import fft, stats

from loca_theory.claims.checks import (
    complexity,
    convergence,
    dependence,
    fourier,
    hypothesis_tests,
    normality,
    simulated,
    theory_bases,
)
from loca_theory.claims.estimates import Tier
from loca_theory.convergence.interpretations import Interpretation
from loca_theory.convergence.problems import ProblemFamily, draw
from loca_theory.expressivity import Budget, retained_energies
from loca_theory.expressivity.laws.bidiagonal import sample_leading_eigenvalues
from loca_theory.expressivity.methods.registry import find_method
from loca_theory.increments.spectrum import spectral_statistics


def rng():
    return np.random.default_rng(0)


def quick(check, **arguments):
    """The result of a check at the quick tier, with tier and rng if it has these parameters."""
    inputs = {"tier": Tier.QUICK, "rng": rng()}
    return check(
        **{name: inputs[name] for name in signature(check).parameters if name in inputs},
        **arguments,
    )


def total_variation(law):
    """Of a law from the normal law of its variance."""
    x = np.linspace(-30, 30, 200_001)
    return np.trapezoid(np.abs(law.pdf(x) - stats.norm.pdf(x, scale=law.std())), x) / 2


def test_the_distance_is_that_of_students_law(monkeypatch):
    """Without a prior an entry is Student's with n − 7 degrees of freedom, up to scale."""
    n = 20
    expected = total_variation(stats.t(n - 7))
    # Of 2000 draws the standard deviation is 0.0010, of 20,000 a third of that.
    error = 5 * 0.0010 / np.sqrt(10)
    # The prior is normal: with it ΔW is closer.
    assert normality._total_variation(rng(), n, 20_000) < expected - error
    monkeypatch.setattr(normality, "_SPREAD", 0.0)
    distance = normality._total_variation(rng(), n, 20_000)
    assert distance == pytest.approx(expected, abs=error)


def test_hubers_estimator_solves_its_equation():
    x, y = rng().standard_normal((200, 8)), rng().standard_t(3, (200, 4))
    score = np.clip(y - x @ normality.huber(x, y), -1.345, 1.345)
    assert np.abs(x.T @ score).max() < 1e-3 * len(x)


def test_hubers_asymptotic_variance_is_the_errors_where_nothing_is_clipped(monkeypatch):
    """Without clipping it is the errors' own variance: 3 for 3 degrees of freedom."""
    monkeypatch.setattr(normality, "_TUNING", 390.0)
    assert normality._asymptotic_variance.__wrapped__("huber") == pytest.approx(3, rel=0.01)


def test_the_distance_of_a_prior_is_that_of_its_law():
    """For many samples the prior decides the law of ΔW."""
    part = quick(normality.prior_distance, prior="laplace", samples=10**6)
    # Bins of a quarter of a standard deviation hide up to 0.007.
    expected = pytest.approx(total_variation(stats.laplace()), abs=5 * part.standard_error + 0.007)
    assert part.value == expected


@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_correlations_are_those_of_the_inverse_covariance_and_the_prior(spread):
    """The errors have the covariance Σ⁻¹/(n − 9), the prior adds a multiple of I."""
    n, steps = 200, np.arange(8)
    covariance = np.linalg.inv(0.5 ** np.abs(np.subtract.outer(steps, steps))) / (n - 9)
    covariance += spread**2 * np.eye(8)
    expected = np.diag(covariance, 1).mean() / np.diag(covariance).mean()
    part = quick(normality.prior_correlation, ar=0.5, samples=n, spread=spread)
    assert part.value == pytest.approx(expected, abs=5 * part.standard_error)


def test_maps_are_those_of_the_transform():
    w = rng().standard_normal((5, 5))
    f = np.fft.fft2(w, norm="ortho")
    for matrix, part in zip(fourier.maps(5), (f.real, f.imag), strict=True):
        np.testing.assert_allclose((matrix @ w.ravel()).reshape(5, 5), part, atol=1e-12)


@pytest.mark.parametrize("size", [2, 5, 8])
def test_the_parts_of_the_fourier_matrix_have_the_printed_products(size):
    """Re(H) Im(H) = 0, and RRᵀ and IIᵀ have the entries 1, ½ and −½ of the appendix."""
    real, imaginary = fourier._parts(size)
    mirrored = np.roll(np.eye(size)[::-1], 1, axis=0)  # 1 where u + w is 0 or K
    np.testing.assert_allclose(real @ imaginary, 0, atol=1e-12)
    np.testing.assert_allclose(real @ real.T, (np.eye(size) + mirrored) / 2, atol=1e-12)
    np.testing.assert_allclose(imaginary @ imaginary.T, (np.eye(size) - mirrored) / 2, atol=1e-12)


@pytest.mark.parametrize(
    ("method", "width", "layers", "budget", "printed", "unit"),
    [
        ("loca", 768, 12, 1000, 0.024, 0.001),
        ("loca", 1024, 24, 1000, 0.048, 0.001),  # RoBERTa-large and GPT-2 medium
        ("loca", 1024, 24, 10_000, 0.480, 0.001),
        ("loca", 1280, 36, 1000, 0.072, 0.001),
        ("loca", 4096, 32, 150_000, 9.6, 0.1),
        ("loca", 5120, 40, 150_000, 12, 1),
        ("lora", 768, 12, 8, 0.3, 0.1),
        ("lora", 1024, 24, 8, 0.8, 0.1),
    ],
)
def test_printed_numbers_of_parameters_that_no_claim_names(
    method, width, layers, budget, printed, unit
):
    """Those of the paper's tables, in millions, in query and value of all layers."""
    counted = complexity.parameters(method=method, width=width, layers=layers, budget=budget)
    assert counted == pytest.approx(printed, abs=unit / 2)


def test_the_null_of_square_matrices_needs_only_the_leading_eigenvalues():
    """The same draws with all eigenvalues; of a hundred, some have none above the edge."""
    t = hypothesis_tests._null(rng(), 100, 60, 60)
    drawn = rng()
    spectra = [sample_leading_eigenvalues(60, 60, 60, drawn)[0] for _ in range(100)]
    expected = [spectral_statistics(spectrum, 60, 60)["T"] for spectrum in spectra]
    np.testing.assert_allclose(t, expected, rtol=1e-10)
    assert 0 < np.count_nonzero(t) < 100


@pytest.mark.parametrize(
    ("size", "method"), [(5, "Fourier pairs"), (6, "Fourier pairs"), (6, "Fourier")]
)
def test_what_the_dense_draws_retain_is_what_the_methods_do(size, method):
    draws, budget = rng().standard_normal((3, size, size)), Budget(size, size, 1)
    counted = simulated._retained(method, draws, find_method(method).count(budget))
    expected = [retained_energies(matrix, method, [budget])[0] for matrix in draws]
    np.testing.assert_allclose(counted, expected, rtol=1e-12)


def test_the_fast_transform_is_the_transform():
    x = rng().standard_normal(64)
    transform, multiplications = complexity.fast_cosine(x)
    np.testing.assert_allclose(transform, fft.dct(x, 2) / 2, atol=1e-12)
    assert multiplications == 32 * 6


def crossings():
    arguments = {"structure": "equicorrelated", "ranks": [8, 16]}
    return dict(dependence.reference_crossings(tier=Tier.QUICK, rng=rng(), **arguments))


def test_a_crossing_is_where_the_gap_changes_its_sign(monkeypatch):
    """For made-up losses whose gap is 0.01·(0.12 − ρ) + 0.02·(0.12 − ρ)² for every rank."""

    def losses(structure, rho, ranks, draws, seed):
        noise = rng().standard_normal((draws, 1))
        noise -= noise.mean()
        gap = 0.01 * (0.12 - rho) + 0.02 * (0.12 - rho) ** 2
        return np.repeat(300**2 * (0.5 + gap + 1e-5 * noise), len(ranks), axis=1)

    monkeypatch.setattr(dependence, "_low_rank_losses", losses)
    monkeypatch.setattr(dependence, "exact_error", lambda method, budget: 0.5)
    for part in crossings().values():
        assert part.value == pytest.approx(0.12, abs=2e-4)
        assert part.standard_error == pytest.approx(1e-5 / 0.01 / 5, rel=0.3)


def test_a_missing_crossing_is_told_rank_by_rank(monkeypatch):
    monkeypatch.setattr(
        dependence,
        "_low_rank_losses",
        lambda structure, rho, ranks, draws, seed: np.full((draws, len(ranks)), 300.0**2),
    )
    assert crossings() == {"r = 8, none up to 0.3": 0.3, "r = 16, none up to 0.3": 0.3}


@pytest.mark.parametrize(("axis", "start"), [(0, 14), (0, 26), (1, 19), (1, 21)])
def test_a_step_towards_the_only_true_location_beside_it_reaches_it(axis, start):
    problems = draw(ProblemFamily(components=1), Interpretation(), 3, range(1))
    at = {"indices": torch.tensor([[20]]), "start": torch.tensor([[start]])}
    chosen: Any = SimpleNamespace(integers=lambda _: axis, choice=lambda inner: inner[0])
    arguments = chosen, replace(problems, **at), 0, None, None
    at_start, along, opposite = convergence._losses(*arguments, refitted=True)
    assert along == pytest.approx(0.0, abs=1e-12 * at_start)
    assert min(at_start, opposite) > 0
    other: Any = SimpleNamespace(integers=lambda _: 1 - axis, choice=lambda inner: inner[0])
    assert convergence._losses(other, *arguments[1:], refitted=True) == []


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
    assert theory_bases.fourth_powers("Fourier", size) == pytest.approx(np.mean(powers))
    assert theory_bases.fourth_powers("LoCA", size) == 1


@pytest.mark.parametrize(("count", "size"), [(1, 6), (2, 5), (4, 4), (3, 40)])
def test_the_law_of_a_coordinate_is_that_of_draws(count, size):
    drawn, draws = rng(), 40_000
    u, v = (drawn.standard_normal((draws, size)) for _ in range(2))
    u, v = (vector / np.linalg.norm(vector, axis=1, keepdims=True) for vector in (u, v))
    squares = size**2 / count * (u * v)[:, :count].sum(axis=1) ** 2
    law = theory_bases.EqualSingularValues(count, size)
    t = np.array([0.0, 0.2, 1.0, 3.0])
    for law_tail, samples in (
        (law.tail(t), squares[:, None] > t),
        (law.energy_above(t), np.where(squares[:, None] > t, squares[:, None], 0.0)),
    ):
        errors = samples.std(axis=0) / np.sqrt(draws)
        assert (np.abs(law_tail - samples.mean(axis=0)) <= 4.5 * errors + 1e-6).all()
