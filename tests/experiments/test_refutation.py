"""Claims that the design of the experiments decides are refuted by runs that differ otherwise."""

import numpy as np
import pytest

from experiments.finetuning.verdicts.decisions import decide
from experiments.finetuning.verdicts.design_file import MANY_TASKS, read_design
from loca_theory.claims import load_ledger
from loca_theory.claims.rules import Verdict

DESIGNED = [one for one in load_ledger().claims if one.rule.kind == "designed"]
DESIGNS = [read_design(), read_design(MANY_TASKS)]
COMPARISONS = {
    one.name: (one, len(design.members(one.family)))
    for design in DESIGNS
    for one in design.comparisons
}


@pytest.mark.parametrize("claim", DESIGNED, ids=lambda claim: claim.id)
def test_runs_with_another_difference_refute_the_claim(claim):
    """Paired differences of synthetic runs: the named mean, and the design's standard deviation."""
    comparison, family = COMPARISONS[claim.arguments["comparison"]]
    shape = len(comparison.tasks), comparison.seeds
    noise = np.random.default_rng(0).standard_normal(shape)
    noise -= noise.mean(axis=1, keepdims=True)
    true = claim.refuted_by.difference
    found = decide(comparison, true + comparison.standard_deviation * noise, family)
    assert found.estimate.difference == pytest.approx(true)
    assert found.verdict is Verdict.NOT_SUPPORTED
