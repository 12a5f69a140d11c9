"""Each claim of the theory pages: supported, and refuted for an alternative."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from loca_theory.claims import Setting, Tier, Verdict, decide, load_ledger
from loca_theory.claims.checks import theory_bases, theory_gradients
from loca_theory.expressivity import energy_bounds

LEDGER = load_ledger()
STORED = Path(__file__).parents[2] / "figures" / "minilm"


def verdict(name, results=None, tier=Tier.QUICK, **arguments):
    (claim,) = LEDGER.find([name])
    changed = replace(claim, arguments={**claim.arguments, **arguments})
    found = changed.measure(Setting(tier, np.random.default_rng(0), results))
    return decide(claim.rule, found, error_rate=LEDGER.error_rate(claim), assumes=False).verdict


@pytest.mark.parametrize(
    ("name", "alternative"),
    [
        ("theory.separable-bases", {"second": "F3"}),
        ("theory.theorem1.proved", {"sizes": [40]}),
        ("theory.theorem1.small", {"smallest": 4}),
        ("theory.central.no-motion", {"search": "eight-direction"}),
        ("theory.gradient.rank", {"optimizer": "adam"}),
        ("theory.gradient.inputs", {"common": 1.0}),
    ],
)
def test_the_claim_holds_and_the_alternative_does_not(name, alternative):
    assert verdict(name) is Verdict.SUPPORTED
    assert verdict(name, **alternative) is Verdict.NOT_SUPPORTED


def test_more_coherence_is_refused():
    assert verdict("theory.reselect.coherence") is Verdict.SUPPORTED
    found = verdict("theory.reselect.coherence", tier=Tier.DEFAULT, coherence=0.33)
    assert found is Verdict.NOT_SUPPORTED


def test_the_normal_value_alone_is_no_bound(monkeypatch):
    assert verdict("theory.selection-bound") is Verdict.SUPPORTED
    monkeypatch.setattr(energy_bounds, "KAPPA", 0.0)
    assert verdict("theory.selection-bound") is Verdict.NOT_SUPPORTED


@pytest.mark.parametrize(
    "name", ["theory.spikes", pytest.param("theory.spikes.several", marks=pytest.mark.deep)]
)
def test_weaker_spikes_do_not_decide(monkeypatch, name):
    assert verdict(name) is Verdict.SUPPORTED
    bound = theory_bases.spiked_low_rank_bound
    monkeypatch.setattr(theory_bases, "spiked_low_rank_bound", lambda *given: bound(*given) + 0.05)
    assert verdict(name) is Verdict.NOT_SUPPORTED


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


def test_the_remainder_of_a_gradient_counts(monkeypatch):
    assert verdict("theory.adam.first-step") is Verdict.SUPPORTED
    bound = theory_gradients.sign_energy_bound
    monkeypatch.setattr(theory_gradients, "sign_energy_bound", lambda g, _: bound(g, min(g.shape)))
    assert verdict("theory.adam.first-step") is Verdict.NOT_SUPPORTED


def test_increments_like_independent_entries_do_not_meet_the_criterion(tmp_path):
    assert verdict("theory.criterion.real", STORED) is Verdict.SUPPORTED
    values = np.square(np.linalg.svd(np.random.default_rng(0).standard_normal((96, 96)))[1])
    matrix = {"name": "a", "kind": "query", "shape": [96, 96]}
    matrix["stable_rank"] = values.sum() / values.max()
    error = {"name": "a", "r": 8, "method": "R", "error": 1 - values[:8].sum() / values.sum()}
    pd.DataFrame([matrix]).to_parquet(tmp_path / "analyze-matrices.parquet")
    pd.DataFrame([error]).to_parquet(tmp_path / "analyze-errors.parquet")
    assert verdict("theory.criterion.real", tmp_path) is Verdict.NOT_SUPPORTED
