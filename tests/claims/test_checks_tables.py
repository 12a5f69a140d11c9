"""Checks that read stored tables: what they measure, and what they refuse."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from loca_theory.claims import VerificationResult, load_ledger, verify
from loca_theory.claims.checks import empirical, theory_bases
from loca_theory.claims.estimates import Tier
from loca_theory.claims.rules import Verdict
from loca_theory.errors import ResourceError
from loca_theory.sweeps import ResultStore, Runner

VERDICT = {
    "comparison": "loca-over-random",
    "measure": "accuracy",
    "margin": 1.0,
    "tasks": 6,
    "seeds": 64,
    "pairs": 384,
    "verdict": "equivalent within a margin",
    "difference": 0.2,
    "standard_error": 0.1,
    "low": -0.3,
    "high": 0.7,
    "within": 0.7,
    "fixed_low": 0.05,
    "fixed_high": 0.35,
    "kinds_low": None,
    "kinds_high": None,
    "draws_error": 0.2,
    "draws_low": -0.8,
    "draws_high": 1.2,
    "draws_verdict": "inconclusive",
}


def written(folder, name, *rows):
    pd.DataFrame(rows).to_parquet(folder / f"{name}.parquet")
    return folder


def test_the_design_is_told_with_the_tasks_and_other_kinds_of_tasks(tmp_path):
    other = {"comparison": "other", "kinds_low": -1.0, "kinds_high": 2.0}
    numbers = ("difference", "standard_error", "low", "high", "within", "fixed_low", "fixed_high")
    cut = {"comparison": "cut", "verdict": None, "pairs": 17, **dict.fromkeys(numbers)}
    written(tmp_path, "verdicts", *({**VERDICT, **changes} for changes in ({}, other, cut)))
    designed = partial(empirical.designed, results=tmp_path, table="verdicts")
    note = designed(comparison="loca-over-random")[1]
    assert note.startswith("6 tasks × 64 seeds; margin 1 points of accuracy; within 0.7; for these")
    assert note.endswith(" tasks alone +0.05 to +0.35.")
    assert designed(comparison="other")[1].endswith("for other kinds of tasks -1.00 to +2.00.")
    without = {}, "Of 6 tasks × 64 seeds, 17 pairs of runs are there."
    assert designed(comparison="cut") == without
    assert designed(comparison="none")[0] == {}


@pytest.mark.parametrize("name", [claim.id for claim in load_ledger().claims if claim.tables])
def test_no_claim_is_measured_without_its_tables(name):
    (claim,) = load_ledger().find([name])
    measured = claim.measure(Tier.QUICK, np.random.default_rng(0), None)
    assert measured.estimates == ()
    assert measured.remark.startswith("There is no table ")


def test_tables_that_disagree_are_refused(tmp_path):
    for name, speed in (("a", 0.9), ("b", 1.0)):
        row = {"model": "m", "rival": "LoCA dense", "of_lora": speed}
        written(tmp_path, f"complexity-{name}", row)
    with pytest.raises(ResourceError, match=r"disagree on the run m, LoCA dense; give a folder"):
        empirical.speed(results=tmp_path, table="complexity-*", rival="LoCA dense")


def test_what_a_table_lacks_is_told(tmp_path):
    written(tmp_path, "s", {"model": "a", "rival": "LoRA", "of_lora": 1.0})
    returned = empirical.speed(results=tmp_path, table="s", rival="none")
    assert returned == ({}, "s.parquet has no none.")
    shared = {"kind": "attention", "shape": [9, 9], "stable_rank": 4.0}
    written(tmp_path, "m", *({"name": name, **shared} for name in "ab"))
    written(tmp_path, "e", {"name": "a", "r": 1, "method": "LoRA", "error": 0.5})
    returned = theory_bases.criterion(results=tmp_path, matrices="m", errors="e", r=1)
    assert returned == ({}, "e.parquet has no error of LoRA at r = 1 for b.")


def test_new_tables_are_looked_at_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "loca-results"  # where experiments write, and tables are looked for
    (folder / "quick").mkdir(parents=True)
    row = {**VERDICT, "comparison": "many-fourierft", "draws_verdict": "supported"}
    runner = Runner(ResultStore(tmp_path / "points"), jobs=1)
    chosen = partial(verify, "results.loca-over-fourierft", runner=runner)
    assert chosen().claims[0].verdict is Verdict.NOT_RUN
    written(folder / "quick", "verdicts", row)  # tables of a trial run do not count
    assert chosen().claims[0].verdict is Verdict.NOT_RUN
    written(folder, "verdicts", row)
    result = chosen()
    assert (result.claims[0].verdict, result.claims[0].observed) == (Verdict.SUPPORTED, 0.2)
    result.save(tmp_path / "ledger")
    assert VerificationResult.load(tmp_path / "ledger").claims == result.claims


def test_damaged_tables_and_missing_folders_are_errors(tmp_path):
    (tmp_path / "verdicts.parquet").write_bytes(b"nothing")
    with pytest.raises(ResourceError, match=r"verdicts\.parquet cannot be read"):
        verify("results.", results=tmp_path, runner=Runner(jobs=1))
    with pytest.raises(ResourceError, match="there is no folder"):
        verify("results.", results=tmp_path / "none")
