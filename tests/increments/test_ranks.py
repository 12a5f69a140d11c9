"""Ranks of a matrix, against their definitions by the singular values."""

import numpy as np
import pytest

from loca_theory.increments.ranks import effective_rank, energy_ranks, stable_rank

rng = np.random.default_rng(0)
SPECTRA = {
    "decaying": 1.0 / np.arange(1, 40) ** 2,
    "flat": np.full(25, 3.0),
    "one": np.array([7.0, 0.0, 0.0]),
    "random": rng.exponential(size=60),
}


@pytest.mark.parametrize("values", SPECTRA.values(), ids=SPECTRA)
@pytest.mark.parametrize("scale", [1.0, 2.0**-900, 2.0**900])
def test_ranks_are_their_definitions_in_any_order_and_unit(values, scale):
    eigenvalues = rng.permutation(values) * scale
    s = np.sqrt(values)
    entropy = -sum(x / s.sum() * np.log(x / s.sum()) for x in s if x)
    assert effective_rank(eigenvalues) == pytest.approx(np.exp(entropy), rel=1e-12)
    assert stable_rank(eigenvalues) == pytest.approx(values.sum() / values.max(), rel=1e-12)
    fractions = (0.1, 0.5, 0.9, 0.99)
    for fraction, rank in zip(fractions, energy_ranks(eigenvalues, fractions), strict=True):
        ordered = sorted(values, reverse=True)
        goal = fraction * sum(ordered)
        # 1e-12: a sum in another order may differ in the last digits.
        assert sum(ordered[:rank]) >= goal * (1 - 1e-12)
        assert sum(ordered[: rank - 1]) < goal * (1 + 1e-12)


def test_the_whole_energy_needs_the_rank_and_no_more():
    assert energy_ranks([5.0, 0.0, 3.0, 0.0], [1.0]) == (2,)
    assert effective_rank(np.ones(17)) == pytest.approx(17)
