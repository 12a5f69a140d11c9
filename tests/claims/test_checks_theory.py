"""Each claim of the theory pages is supported."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import integrate

from loca_theory.claims import load_ledger
from loca_theory.claims.checks import theory_bases, theory_law, theory_spikes
from loca_theory.claims.estimates import Tier
from loca_theory.claims.rules import Verdict, decide

LEDGER = load_ledger()
STORED = Path(__file__).parents[2] / "figures" / "minilm"


def verdict(name, results=None):
    (claim,) = LEDGER.find([name])
    found, _, _ = claim.measure(Tier.QUICK, np.random.default_rng(0), results)
    return decide(claim.rule, found, error_rate=LEDGER.error_rate(claim))[0]


@pytest.mark.parametrize("name", [one.id for one in LEDGER.claims if one.id.startswith("theory.")])
def test_the_claim_holds(name):
    assert verdict(name, STORED) is Verdict.SUPPORTED


@pytest.mark.deep
def test_an_invisible_spike_is_one_that_is_counted(monkeypatch):
    """Distances of two spikes are not those of one."""
    distance = theory_spikes.kolmogorov
    monkeypatch.setattr(theory_spikes, "kolmogorov", lambda a, b: 2 * distance(a, b))
    assert verdict("theory.spikes") is Verdict.NOT_SUPPORTED


def test_the_distance_is_that_of_the_distribution_functions():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(40), rng.standard_normal(40) + 0.3
    grid = np.concatenate([a, b])
    expected = max(abs((a <= x).mean() - (b <= x).mean()) for x in grid)
    assert theory_spikes.kolmogorov(a, b) == pytest.approx(expected)


def test_the_distance_to_the_law_is_that_on_a_fine_grid():
    values = np.random.default_rng(0).uniform(0, 2.1, 30)
    grid = np.linspace(0, 2.2, 2201)
    density = np.sqrt(np.clip(4 - grid**2, 0, None)) / np.pi
    law = integrate.cumulative_simpson(density, x=grid, initial=0)
    expected = np.abs((values[:, None] <= grid).mean(axis=0) - law).max()
    # A cell of the grid has a probability of at most 1e-3 · 2/π.
    assert theory_spikes.law_distance(values) == pytest.approx(expected, abs=7e-4)


@pytest.mark.parametrize("size", [5, 6])
def test_fourth_powers_are_those_of_the_atoms_of_the_real_fourier_basis(size):
    x, powers = np.arange(size), []
    for u in range(size):
        for v in range(size):
            # A cosine and a sine for each pair ±(u, v); a self-conjugate frequency has no sine.
            shift = (
                0
                if (2 * u % size, 2 * v % size) == (0, 0) or (u, v) <= (-u % size, -v % size)
                else 1
            )
            wave = np.cos(2 * np.pi * (u * x[:, None] + v * x) / size - shift * np.pi / 2)
            values = np.linalg.svd(wave / np.linalg.norm(wave), compute_uv=False)
            powers.append((values**4).sum())
    assert theory_bases.fourth_powers("F3", size) == pytest.approx(np.mean(powers))
    assert theory_bases.fourth_powers("D", size) == 1


@pytest.mark.parametrize(("count", "size"), [(1, 6), (2, 5), (4, 4), (3, 40)])
def test_the_law_of_a_coordinate_is_that_of_draws(count, size):
    rng, draws = np.random.default_rng(0), 40_000
    u, v = (rng.standard_normal((draws, size)) for _ in range(2))
    u, v = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (u, v))
    squares = size**2 / count * (u * v)[:, :count].sum(axis=1) ** 2
    law = theory_law.EqualSingularValues(count, size)
    t = np.array([0.0, 0.2, 1.0, 3.0])
    for found, samples in (
        (law.tail(t), squares[:, None] > t),
        (law.energy_above(t), np.where(squares[:, None] > t, squares[:, None], 0.0)),
    ):
        errors = samples.std(axis=0) / np.sqrt(draws)
        assert (np.abs(found - samples.mean(axis=0)) <= 4.5 * errors + 1e-6).all()


def test_the_grid_sees_nearly_the_whole_distance():
    law = theory_law.EqualSingularValues(4, 100)
    coarse, fine = (law.distance(np.linspace(0, 4, cells + 1)) for cells in (100, 2000))
    assert coarse <= fine <= 1.01 * coarse


def test_a_matrix_without_an_error_is_missing(tmp_path):
    shared = {"kind": "attention", "shape": [9, 9], "stable_rank": 4.0}
    rows = [{"name": name, **shared} for name in "ab"]
    pd.DataFrame(rows).to_parquet(tmp_path / "m.parquet")
    pd.DataFrame([{"name": "a", "r": 1, "method": "R", "error": 0.5}]).to_parquet(
        tmp_path / "e.parquet"
    )
    found = theory_bases.criterion(results=tmp_path, matrices="m", errors="e", r=1)
    assert found == ({}, "e.parquet has no error of LoRA at r = 1 for b.")
