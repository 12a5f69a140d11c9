"""Structures against their covariances, obtained exactly through the linear map Z → W."""

import pickle

import numpy as np
import pytest

from loca_theory.dependence import ar1, blocks, spiked
from loca_theory.dependence.structures import STRUCTURES


class Scripted:
    """A generator whose normals are given: it makes the map from Z to W visible."""

    def __init__(self, numbers):
        self.numbers = numbers

    def standard_normal(self, shape):
        return self.numbers.reshape(shape)


def covariance(structure, p, q, value):
    """Cov(vec W), from W's image of each unit vector: exact for a W linear in Z."""
    columns = [structure.family(p, q, Scripted(unit))(value).ravel() for unit in np.eye(p * q)]
    root = np.stack(columns, axis=1)
    return root @ root.T


@pytest.mark.parametrize(("p", "q"), [(4, 3), (1, 4)])
@pytest.mark.parametrize("name", ["shared-mean", "equicorrelated"])
def test_covariance_is_the_stated_one(name, p, q):
    # Sums of pq products of numbers of order one, and a factor for the roots in them.
    tolerance = 100 * p * q * np.finfo(float).eps
    structure = STRUCTURES[name]
    for rho in (0.0, 0.3, 0.9, -0.05):
        variance = 1.0 if name == "shared-mean" else 1 - rho
        expected = variance * np.eye(p * q) + rho
        measured = covariance(structure, p, q, rho)
        np.testing.assert_allclose(measured, expected, rtol=0, atol=tolerance)
        assert structure.energy(p, q, rho) == pytest.approx(np.trace(expected), rel=1e-14)


def entrywise(n, correlation):
    return np.array([[correlation(i, j) for j in range(n)] for i in range(n)])


def lags(rho):
    return lambda i, j: float(rho) ** abs(i - j)


def alike(i, j, same=True):
    return 1.0 if i == j else 0.3 * same


def in_blocks(i, j):
    return alike(i, j, i // 2 == j // 2)


def decaying(n):
    return lambda i, j: (i == j) / (i + 1) / np.mean(1 / np.arange(1, n + 1))


SEPARABLE = {
    "ar1": (STRUCTURES["ar1"], 0.6, lags(0.6), lags(0.6)),
    "ar1 of two": (ar1(-0.2), 0.6, lags(0.6), lags(-0.2)),
    "blocks": (blocks(2), 0.3, in_blocks, in_blocks),
    "rows": (STRUCTURES["row-equicorrelated"], 0.3, lambda i, j: i == j, alike),
    "scaled": (STRUCTURES["scaled"], 1.0, decaying(4), decaying(6)),
}


@pytest.mark.parametrize("case", SEPARABLE.values(), ids=SEPARABLE)
def test_a_separable_covariance_is_that_of_its_factors(case):
    structure, value, between_rows, between_columns = case
    a, b = entrywise(4, between_rows), entrywise(6, between_columns)
    tolerance = 100 * 24 * np.finfo(float).eps
    matrices = *structure.factors(4, 6, value), covariance(structure, 4, 6, value)
    for got, expected in zip(matrices, (a, b, np.kron(a, b)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)
    assert structure.energy(4, 6, value) == pytest.approx(np.trace(a) * np.trace(b), rel=1e-14)


def test_blocks_are_the_largest_common_divisor_up_to_16():
    for shape, block in (((300, 300), 15), ((48, 36), 12), ((7, 7), 7), ((9, 16), 1)):
        a, b = blocks().factors(*shape, 0.5)
        assert (a[0] > 0).sum() == (b[0] > 0).sum() == block


def test_power_law_has_the_stated_spectrum_in_some_orthonormal_directions():
    """W = W₀ Q Λ^½ Qᵀ; many rows determine this map, whose eigenvalues are those of Λ^½."""
    q, exponent = 5, 0.7
    variances = np.arange(1, q + 1) ** -exponent
    tall = STRUCTURES["power-law"].family(50, q, np.random.default_rng(3))
    half = np.linalg.lstsq(tall(0.0), tall(exponent), rcond=None)[0]
    values = np.sort(np.linalg.eigvals(half).real)[::-1]
    np.testing.assert_allclose(values, np.sqrt(variances / variances.mean()), rtol=1e-10)


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


@pytest.mark.parametrize("structure", [*STRUCTURES.values(), ar1(-1e-7), blocks(2), spiked(3)])
def test_a_structure_travels_to_workers(structure):
    assert pickle.loads(pickle.dumps(structure)) == structure


@pytest.mark.parametrize("name", list(STRUCTURES))
def test_values_share_their_random_numbers(name):
    first = STRUCTURES[name].family(6, 5, np.random.default_rng(1))
    second = STRUCTURES[name].family(6, 5, np.random.default_rng(1))
    np.testing.assert_array_equal(first(0.2), second(0.2))
    assert np.corrcoef(first(0.0).ravel(), first(0.01).ravel())[0, 1] > 0.9
