"""Each claim of the theory pages is supported."""

from pathlib import Path

import numpy as np
import pytest

from loca_theory.claims import Setting, Tier, Verdict, decide, load_ledger
from loca_theory.claims.checks import theory_bases

LEDGER = load_ledger()
STORED = Path(__file__).parents[2] / "figures" / "minilm"


def verdict(name, results=None):
    (claim,) = LEDGER.find([name])
    found = claim.measure(Setting(Tier.QUICK, np.random.default_rng(0), results))
    return decide(claim.rule, found, error_rate=LEDGER.error_rate(claim), assumes=False).verdict


@pytest.mark.parametrize("name", [one.id for one in LEDGER.claims if one.id.startswith("theory.")])
def test_the_claim_holds(name):
    assert verdict(name, STORED) is Verdict.SUPPORTED


@pytest.mark.deep
def test_an_invisible_spike_is_one_that_is_counted(monkeypatch):
    """Distances of two spikes are not those of one."""
    distance = theory_bases.kolmogorov
    monkeypatch.setattr(theory_bases, "kolmogorov", lambda a, b: 2 * distance(a, b))
    assert verdict("theory.spikes") is Verdict.NOT_SUPPORTED


def test_the_distance_is_that_of_the_distribution_functions():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(40), rng.standard_normal(40) + 0.3
    grid = np.concatenate([a, b])
    expected = max(abs((a <= x).mean() - (b <= x).mean()) for x in grid)
    assert theory_bases.kolmogorov(a, b) == pytest.approx(expected)
