"""Structures against their covariances, obtained exactly through the linear map Z → W."""

import numpy as np
import pytest

from loca_theory.dependence import STRUCTURES, spiked
from loca_theory.errors import InvalidArgumentError

SHAPES = [pytest.param(p, q, id=f"{p}x{q}") for p, q in [(3, 3), (4, 3), (2, 5), (1, 4)]]


class Scripted:
    """A generator whose normals are given: it makes the map from Z to W visible."""

    def __init__(self, numbers):
        self.numbers = numbers

    def standard_normal(self, shape):
        return self.numbers.reshape(shape)


def covariance(name, p, q, value):
    """Cov(vec W), from W's image of each unit vector: exact for a W linear in Z."""
    columns = [
        STRUCTURES[name].family(p, q, Scripted(unit))(value).ravel() for unit in np.eye(p * q)
    ]
    root = np.stack(columns, axis=1)
    return root @ root.T


def expected(name, p, q, rho):
    n = p * q
    if name == "shared-mean":
        return np.eye(n) + rho
    if name == "equicorrelated":
        return (1 - rho) * np.eye(n) + rho
    if name == "row-equicorrelated":
        return np.kron(np.eye(p), (1 - rho) * np.eye(q) + rho)
    lag = np.abs(np.subtract.outer(np.arange(p), np.arange(p)))
    lag_q = np.abs(np.subtract.outer(np.arange(q), np.arange(q)))
    return np.kron(float(rho) ** lag, float(rho) ** lag_q)


@pytest.mark.parametrize(("p", "q"), SHAPES)
@pytest.mark.parametrize("name", ["shared-mean", "equicorrelated", "row-equicorrelated", "ar1"])
def test_covariance_is_the_stated_one(name, p, q):
    # Sums of pq products of numbers of order one, and a factor for the roots in them.
    tolerance = 100 * p * q * np.finfo(float).eps
    for rho in (0.0, 0.3, 0.9, -0.05):
        np.testing.assert_allclose(
            covariance(name, p, q, rho), expected(name, p, q, rho), rtol=0, atol=tolerance
        )


@pytest.mark.parametrize(("p", "q"), SHAPES)
@pytest.mark.parametrize("name", ["shared-mean", "equicorrelated", "row-equicorrelated", "ar1"])
def test_energy_is_the_trace(name, p, q):
    trace = np.trace(expected(name, p, q, 0.4))
    assert STRUCTURES[name].energy(p, q, 0.4) == pytest.approx(trace, rel=1e-14)


def test_power_law_has_the_stated_spectrum_in_some_orthonormal_directions():
    p, q, exponent = 3, 5, 0.7
    rng = np.random.default_rng(3)
    family = STRUCTURES["power-law"].family(p, q, rng)
    at_zero, matrix = family(0.0), family(exponent)
    # Both are the same Z times a known diagonal and the same rotation Qᵀ: W = W₀ Q Λ^½ Qᵀ.
    half = np.linalg.lstsq(at_zero, matrix, rcond=None)[0]
    variances = np.arange(1, q + 1) ** -exponent
    rows = at_zero @ half
    np.testing.assert_allclose(rows, matrix, atol=1e-12)
    # Many rows determine the map: its eigenvalues are the square roots of the variances.
    tall = STRUCTURES["power-law"].family(50, q, np.random.default_rng(3))
    half = np.linalg.lstsq(tall(0.0), tall(exponent), rcond=None)[0]
    found = np.sort(np.linalg.eigvals(half).real)[::-1]
    np.testing.assert_allclose(found, np.sqrt(variances / variances.mean()), rtol=1e-10)


@pytest.mark.parametrize("spikes", [1, 3])
def test_spike_is_orthonormal_directions_of_the_stated_energy(spikes):
    p, q, fraction = 12, 9, 0.3
    family = spiked(spikes).family(p, q, np.random.default_rng(0))
    signal = family(fraction) - family(0.0)
    values = np.linalg.svd(signal, compute_uv=False)
    np.testing.assert_allclose(values[:spikes], values[0], rtol=1e-12)
    assert values[spikes:].max() < 1e-12 * values[0]
    energy = float((values**2).sum())
    assert energy / (energy + p * q) == pytest.approx(fraction, rel=1e-12)
    assert spiked(spikes).energy(p, q, fraction) == pytest.approx(energy + p * q, rel=1e-12)


@pytest.mark.parametrize("name", list(STRUCTURES))
def test_values_share_their_random_numbers(name):
    one = STRUCTURES[name].family(6, 5, np.random.default_rng(1))
    two = STRUCTURES[name].family(6, 5, np.random.default_rng(1))
    np.testing.assert_array_equal(one(0.2), two(0.2))
    assert np.corrcoef(one(0.0).ravel(), one(0.01).ravel())[0, 1] > 0.9


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        pytest.param("shared-mean", -0.1, "positive definite", id="shared mean below -1/n"),
        pytest.param("equicorrelated", 1.01, "positive definite", id="equicorrelated above 1"),
        pytest.param(
            "equicorrelated", -0.2, "positive definite", id="equicorrelated below -1/(n-1)"
        ),
        pytest.param("row-equicorrelated", -0.5, "positive definite", id="rows below -1/(q-1)"),
        pytest.param("ar1", 1.0, "positive definite", id="ar1 at 1"),
        pytest.param("spiked", 1.0, "needs 0 <= fraction", id="fraction of 1"),
        pytest.param("spiked", -0.1, "needs 0 <= fraction", id="negative fraction"),
        pytest.param("power-law", -1.0, "needs 0 <= exponent", id="negative exponent"),
        pytest.param("ar1", float("nan"), "needs", id="not a number"),
    ],
)
def test_a_value_without_a_law_is_refused(name, value, message):
    with pytest.raises(InvalidArgumentError, match=message):
        STRUCTURES[name].check(4, 4, value)


@pytest.mark.parametrize("name", list(STRUCTURES))
def test_bounds_belong_to_the_structure(name):
    low, high = STRUCTURES[name].bounds(4, 4)
    STRUCTURES[name].check(4, 4, low)
    STRUCTURES[name].check(4, 4, min(high, 1e6))
