"""Exact energies of leading singular values: closed forms, identities, dense decompositions."""

import numpy as np
import pytest
from scipy import special
from threadpoolctl import threadpool_info, threadpool_limits

from loca_theory.expressivity.laws import low_rank_exact
from loca_theory.expressivity.laws.low_rank_exact import expected_leading_energy

PROMISED = 1e-12


@pytest.mark.parametrize("p", [2, 3, 4, 10, 1000, 10**6], ids=lambda p: f"{p}x2")
def test_two_columns_in_closed_form(p):
    """2√det/tr ~ Beta(p − 1, 1) independent of the trace, so λ₁ − λ₂ = tr √(1 − B²) on average is

    2p (p−1)/2 B((p−1)/2, 3/2), with the beta function at the end.
    """
    gap = p * (p - 1) * special.beta((p - 1) / 2, 1.5)
    expected = [0, (2 * p + gap) / 2, 2 * p]
    np.testing.assert_allclose(expected_leading_energy(p, 2), expected, rtol=PROMISED)


@pytest.mark.parametrize(
    "q", [1, 2, 3, 16, pytest.param(40, marks=pytest.mark.deep)], ids=lambda q: f"{q + 1}x{q}"
)
def test_one_row_more_than_columns(q):
    """λ_min of a (q+1)×q matrix is exponential with mean 2/q (Edelman, 1988)."""
    energies = expected_leading_energy(q + 1, q)
    assert q * (q + 1) - energies[q - 1] == pytest.approx(2 / q, abs=PROMISED * energies[-1])


SHAPES = [(1, 1), (2, 2), (3, 3), (5, 4), (4, 9), (8, 8), (17, 30), (6, 2000)]
SHAPES += [(10, 10**5), (1, 10**7)]
LARGEST = pytest.param(40, 40, marks=pytest.mark.deep, id="40x40")
all_shapes = pytest.mark.parametrize(
    ("p", "q"), [*(pytest.param(p, q, id=f"{p}x{q}") for p, q in SHAPES), LARGEST]
)


@all_shapes
def test_all_singular_values_hold_the_whole_energy(p, q):
    """E Σ σ² = E ‖W‖² = pq: the last of the integrals is known beforehand."""
    energies = expected_leading_energy(p, q)
    assert energies.shape == (min(p, q) + 1,)
    assert energies[0] == 0
    assert energies[-1] == pytest.approx(p * q, rel=PROMISED)
    energies[:] = -1
    assert expected_leading_energy(p, q)[0] == 0, "the result is the caller's own"


# Of an algorithm without eigenvalues: Pfaffians of the law of the number above a threshold, at
# roots of unity, with moments by quadrature. Only the upper end of the spectrum is computed here.
BY_PFAFFIANS = [
    (3, 3, {1: 6.732050807568887}),
    (8, 5, {1: 18.701252264225484, 2: 29.61140851422548}),
    (20, 20, {1: 70.19863129249674, 6: 281.35727386400333, 10: 359.0521730537354}),
    (31, 31, {1: 112.82541418887045, 10: 702.770249482838, 15: 851.2081407914076}),
    (40, 13, {1: 87.76613197429656, 4: 278.749141144684, 6: 367.25462218849947}),
]


@pytest.mark.parametrize(("p", "q", "energies"), BY_PFAFFIANS)
def test_energies_are_those_of_pfaffians(p, q, energies):
    for r, expected in energies.items():
        assert expected_leading_energy(p, q, r)[r] == pytest.approx(expected, rel=PROMISED)


GRIDS = [(137, 137, 32), (300, 300, 8), (768, 768, 32), (4096, 512, 16)]
DEEP_GRIDS = [(300, 300, 99), (768, 768, 128), (4096, 4096, 32), (4096, 4096, 128)]
DEEP_GRIDS += [(16384, 16384, 16), (10**6, 300, 32), (256, 256, 256)]


@pytest.mark.parametrize(
    ("p", "q", "r"),
    [*GRIDS, *(pytest.param(*shape, marks=pytest.mark.deep) for shape in DEEP_GRIDS)],
)
def test_two_grids_agree(p, q, r):
    other = expected_leading_energy(p, q, r, refinement=1.25)
    np.testing.assert_allclose(expected_leading_energy(p, q, r), other, rtol=PROMISED)


def test_the_small_matrices_are_computed_with_one_thread(monkeypatch):
    """Whatever the caller has set; more threads would only wait for one another."""
    seen = set()
    indicators = low_rank_exact._indicators

    def spy(*args):
        seen.update(pool["num_threads"] for pool in threadpool_info())
        return indicators(*args)

    monkeypatch.setattr(low_rank_exact, "_indicators", spy)
    with threadpool_limits(2):
        low_rank_exact._leading_energy.__wrapped__(5, 4, 2, 1.0)
    assert seen == {1}
