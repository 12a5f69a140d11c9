"""Bounds on what selections and low rank retain, against the laws and against draws."""

import numpy as np
import pytest

from loca_theory.expressivity import Budget, retained_energies
from loca_theory.expressivity.energy_bounds import (
    KAPPA,
    selection_bound,
    sign_energy_bound,
    spiked_low_rank_bound,
    spiked_selection_bound,
)
from loca_theory.expressivity.limits import coefficient_fraction


def test_kappa_is_the_largest_value():
    c = np.linspace(0, 6, 60_001)
    values = c**3 * np.exp(-c * c / 2) / np.sqrt(2 * np.pi)
    # The second derivative at the maximum is below 1, so the grid misses it by less than 1e-8.
    assert values.max() == pytest.approx(KAPPA, abs=1e-8)


def test_the_bound_is_the_stated_formula():
    budget = Budget(40, 24, 2)
    normal = coefficient_fraction(64 / 960)
    assert selection_bound([3.0, 1.0], budget) == pytest.approx(normal + 2 * KAPPA * 0.625)
    two = selection_bound(np.ones(24), budget, (0.6, 0.8))
    fourth = 0.6**4 + 0.8**4
    assert two == pytest.approx(40 / 38.5 * (normal + 2 * KAPPA * fourth / 24))
    mixed = selection_bound(np.ones(24), budget, (0.6, 0.8), fourth_powers=0.7)
    assert mixed == pytest.approx(40 / 38.5 * (normal + 2 * KAPPA * 0.7 / 24))
    assert selection_bound([1.0], Budget(40, 24, 8)) == 1


@pytest.mark.parametrize(("fraction", "count"), [(0.1, 1), (0.3, 2)])
def test_spiked_bounds_enclose_draws(fraction, count):
    size, draws, rng = 16, 400, np.random.default_rng(1)
    budget = Budget(size, size, 2)
    strength = size * np.sqrt(fraction / (1 - fraction) / count)
    energies = []
    for _ in range(draws):
        left, right = (np.linalg.qr(rng.standard_normal((size, count)))[0] for _ in range(2))
        w = rng.standard_normal((size, size)) + strength * left @ right.T
        energies.append([retained_energies(w, method, [budget])[0] for method in ("LoRA", "LoCA")])
    energies = np.array(energies) * (1 - fraction) / size**2
    (low_rank, selected), errors = energies.mean(axis=0), energies.std(axis=0) / np.sqrt(draws)
    assert low_rank + 4 * errors[0] > spiked_low_rank_bound(fraction, count, budget)
    assert selected - 4 * errors[1] < spiked_selection_bound(fraction, np.ones(count), budget)


def test_signs_of_a_matrix_of_rank_one_stay_in_one_direction():
    rng = np.random.default_rng(0)
    g = np.outer(rng.choice([-2.0, 2.0], 12), rng.choice([-3.0, 3.0], 9))
    assert sign_energy_bound(g, 1) == pytest.approx(1)
    g = np.outer(rng.standard_normal(12), rng.standard_normal(9))
    assert sign_energy_bound(g, 1) == pytest.approx(
        np.abs(g).sum() ** 2 / (g.size * np.square(g).sum())
    )
    assert sign_energy_bound(np.eye(30), 1) == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_sign_bound_holds_for_any_matrix(seed):
    rng = np.random.default_rng(seed)
    g = rng.standard_normal((20, 3)) @ rng.standard_normal((3, 30))
    g += 0.1 * seed * rng.standard_normal(g.shape)
    energies = np.square(np.linalg.svd(np.sign(g), compute_uv=False))
    for r in (1, 2, 3, 5):
        assert sign_energy_bound(g, r) <= energies[:r].sum() / energies.sum()
