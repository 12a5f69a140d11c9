"""Running claims: through the store, merged with earlier runs, and a few for real."""

import math
import re
from contextlib import nullcontext
from dataclasses import replace
from inspect import signature
from pathlib import Path

import pandas as pd
import pytest

from loca_theory.claims import Estimate, VerificationResult, load_ledger, verify
from loca_theory.claims.entries import Entry
from loca_theory.claims.estimates import Measured, Tier
from loca_theory.claims.ledger import Ledger
from loca_theory.claims.observation import ClaimCell
from loca_theory.claims.page import anchor, page
from loca_theory.claims.results import VerdictsChangedError, read_entries
from loca_theory.claims.role import Role
from loca_theory.claims.rules import Rule, Verdict
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.sweeps import Runner

ALONE = Runner(jobs=1)
LEDGER = load_ledger()
FIGURES = Path(__file__).parents[2] / "figures"
# Done in seconds at the quick tier.
CHEAP = ("gradient.", "noniid.crossing.", "noniid.t-values")
QUICK = [claim.id for claim in LEDGER.claims if claim.cost < 10 or claim.id.startswith(CHEAP)]


@pytest.fixture(scope="module")
def quick():
    return verify(QUICK, tier="quick", results=FIGURES, runner=ALONE)


def test_quick_runs_come_to_the_ledgers_verdicts_and_to_the_stored_numbers(quick):
    """Exact numbers to rounding, in single precision too; random ones to five standard errors."""
    assert len(quick.claims) > 200
    quick.require_expected()
    stored = VerificationResult.load(FIGURES / "ledger", LEDGER)
    for entry in quick.claims:
        inputs = signature(entry.claim.function()).parameters
        for estimate, before in zip(entry.estimates, stored[entry.id].estimates, strict=True):
            error = math.hypot(estimate.standard_error, before.standard_error)
            if error or not {"tier", "rng"}.intersection(inputs):
                near = pytest.approx(before.value, rel=1e-6, abs=5 * error + 1e-6)
                assert estimate.value == near, entry.id
            if estimate.standard_error and before.standard_error:
                ratio = estimate.standard_error / before.standard_error
                assert 0.3 < ratio * math.sqrt(estimate.n / before.n) < 3.5, entry.id


@pytest.mark.deep
def test_all_claims_come_to_the_ledgers_verdict():
    result = verify()
    assert [entry.id for entry in result.claims if entry.changed] == []


def test_one_claim_or_several_are_decided_in_one_line():
    assert [entry.id for entry in verify("condition-u", tier="quick").claims] == ["condition-u"]
    pair_of_claims = verify(["parseval.unitary", "condition-u"], tier=Tier.QUICK, ledger=LEDGER)
    assert [entry.id for entry in pair_of_claims.claims] == ["parseval.unitary", "condition-u"]
    pair = verify(["dora.expectation", "condition-u"], tier="quick")
    alone = verify("dora.expectation", tier="quick")[0]
    assert pair["dora.expectation"].estimates == alone.estimates
    observed = {verify("dora.expectation", tier="quick", seed=seed)[0].observed for seed in (0, 1)}
    assert len(observed) == 2
    with pytest.raises(InvalidArgumentError, match="unknown tier 'slow'; choose from quick, def"):
        verify("condition-u", tier="slow")


def entry(
    name="parseval.factor",
    tier=Tier.QUICK,
    verdict=Verdict.SUPPORTED,
    ledger=LEDGER,
    seed=0,
    data=(),
    measured_by=None,
):
    (claim,) = ledger.find([name])
    value = 0.0 if verdict is Verdict.SUPPORTED else 1.0
    estimates = () if verdict is Verdict.NOT_RUN else (Estimate(value),)
    cell = ClaimCell(claim, tier, seed, data)
    cell = replace(cell, measured_by=measured_by or cell.version)
    return Entry(cell, Measured(estimates), ledger.error_rate(claim))


def result_of(*entries, ledger=LEDGER):
    return VerificationResult(manifest={}, ledger=ledger, claims=entries)


DEEP, DEFAULT = {"tier": Tier.DEEP}, {"tier": Tier.DEFAULT}
REFUSED, NOT_RUN = {"verdict": Verdict.NOT_SUPPORTED}, {"verdict": Verdict.NOT_RUN}
# Entries of an earlier and a later run, and whether the later one replaces the earlier.
JOINED = {
    "less effort": (DEEP, {}, False),
    "more effort": ({}, DEFAULT, True),
    "equal effort": ({}, REFUSED, True),
    "another seed and more effort": ({}, {**REFUSED, **DEEP, "seed": 1}, True),
    "older code and less effort": ({**DEFAULT, **REFUSED, "measured_by": "before"}, {}, False),
    "older code": ({**DEFAULT, **REFUSED, "measured_by": "before"}, {**DEFAULT, "seed": 1}, True),
    "other tables": ({**DEEP, "data": ("t:1",)}, {**REFUSED, "data": ("t:2",)}, True),
    "nothing ran": ({}, {**DEEP, **NOT_RUN}, False),
    "nothing had run": ({**DEEP, **NOT_RUN}, {}, True),
}


@pytest.mark.parametrize(("old", "new", "replaces"), JOINED.values(), ids=JOINED.keys())
def test_a_later_run_replaces_what_it_outranks(old, new, replaces):
    before, after = entry(**old), entry(**new)
    assert result_of(after).joined([before]).claims == (after if replaces else before,)
    assert (before.stale, after.stale) == ("measured_by" in old, False)


def test_seeds_that_disagree_make_a_claim_inconclusive_for_good(tmp_path):
    first, second, third = entry(), entry(**REFUSED, seed=1), entry(seed=2)
    for entry_of_seed in (first, second, third):
        result_of(entry_of_seed).save(tmp_path)
    (merged,) = VerificationResult.load(tmp_path, LEDGER).claims
    assert merged.cell.seed == 2
    assert merged.other_seeds == {0: "supported", 1: "not supported"}
    assert (merged.verdict, merged.seeds_disagree) == (Verdict.INCONCLUSIVE, True)
    text = (tmp_path / "CLAIMS.md").read_text(encoding="utf-8")
    assert "**inconclusive (seeds disagree)**" in text
    said = "Seeds disagree: supported with seed 0, not supported with seed 1, supported with seed 2"
    assert f"- note: {said}." in text
    assert result_of(third).beside([second]).claims[0].verdict is Verdict.INCONCLUSIVE
    result_of(entry(**DEEP)).save(tmp_path)
    (merged,) = VerificationResult.load(tmp_path, LEDGER).claims
    assert (merged.verdict, merged.other_seeds) == (Verdict.SUPPORTED, {})


@pytest.mark.parametrize(
    "changes",
    [{"seed": 0}, DEEP, {"measured_by": "before"}, {"data": ("t:1",)}, NOT_RUN],
    ids=str,
)
def test_only_runs_that_differ_in_the_seed_alone_are_compared(changes):
    first, other = entry(), entry(**{"seed": 1, **REFUSED, **changes})
    assert result_of(first).beside([other]).claims == (first,)


WIDE, LENIENT = Estimate(0.0, 1.0, 9), (Tier.QUICK,)


@pytest.mark.parametrize(
    ("estimate", "tier", "expected", "undecided", "changed", "lost"),
    [
        (WIDE, Tier.DEFAULT, Verdict.SUPPORTED, LENIENT, False, True),
        (WIDE, Tier.QUICK, Verdict.SUPPORTED, LENIENT, False, False),
        (WIDE, Tier.DEFAULT, Verdict.INCONCLUSIVE, LENIENT, False, False),
        (WIDE, Tier.DEFAULT, Verdict.NOT_RUN, LENIENT, False, False),
        # One seed may decide a claim on which seeds disagree.
        (Estimate(0.0), Tier.QUICK, Verdict.INCONCLUSIVE, LENIENT, False, False),
        (Estimate(0.0), Tier.QUICK, Verdict.INCONCLUSIVE, (), True, False),
    ],
)
def test_verdicts_are_those_that_the_ledger_expects(
    estimate, tier, expected, undecided, changed, lost
):
    claim = replace(
        LEDGER.find(["f2.law"])[0], expected_verdict=expected, undecided=undecided, added=()
    )
    cell, ledger = ClaimCell(claim, tier, 0, ()), Ledger((claim,))
    decided = Entry(cell, Measured((estimate,)), ledger.error_rate(claim))
    assert decided.verdict is (Verdict.INCONCLUSIVE if estimate is WIDE else Verdict.SUPPORTED)
    assert (decided.changed, decided.lost) == (changed, lost)
    refused = pytest.raises(VerdictsChangedError, match=r"^1 verdict is not .*: f2\.law; if this")
    with refused if changed or lost else nullcontext():
        result_of(decided, ledger=ledger).require_expected()


def test_two_claims_at_most_are_so_near_their_bound_that_seeds_disagree():
    near = [claim for claim in LEDGER.claims if Tier.DEFAULT in claim.undecided]
    assert len(near) <= 2
    assert all(claim.note.startswith("Near its bound: ") for claim in near)


def test_stored_observations_are_judged_by_the_present_ledger(tmp_path):
    (claim,) = LEDGER.find(["parseval.factor"])
    old = entry(tier=Tier.DEEP, verdict=Verdict.NOT_SUPPORTED)
    result_of(old).save(tmp_path)

    def again(**changed):
        return list(read_entries(tmp_path, Ledger((replace(claim, **changed),))))

    (judged,) = again(rule=Rule(high=9), note="Now wider.")
    assert (judged.verdict, judged.observed, judged.note) == (Verdict.SUPPORTED, 1.0, "Now wider.")
    assert judged.cell.version == old.cell.version
    assert again(rule=Rule(low=[0, 1], high=2)) == []  # for two numbers
    assert again(arguments={"factor": "1", "transform": "unitary"}) == []  # another measurement


def test_others_stay_in_the_order_of_the_ledger_and_seeds_that_agree_are_remembered():
    before = [entry("toy.recovery"), entry("condition-u"), entry()]
    merged = result_of(entry(seed=1)).joined(before).claims
    assert [entry.id for entry in merged] == ["parseval.factor", "condition-u", "toy.recovery"]
    assert (merged[0].verdict, merged[0].other_seeds) == (Verdict.SUPPORTED, {0: "supported"})


def test_the_report_is_read_back(tmp_path, quick):
    written = quick.save(tmp_path)
    assert [path.name for path in written] == [
        "claims.json",
        "CLAIMS.md",
        "claims.parquet",
        "claims.manifest.json",
    ]
    agreed = {
        "id",
        "verdict",
        "observed",
        "standard_error",
        "expected",
        "rule",
        "n",
        "seconds",
        "note",
    }
    assert agreed <= set(quick.to_frame().columns)
    loaded = VerificationResult.load(tmp_path)
    assert (loaded.claims, loaded.manifest) == (quick.claims, quick.manifest)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "claims.parquet"), loaded.to_frame())
    with pytest.raises(ResourceError, match=r"there is no .*claims\.json"):
        VerificationResult.load(tmp_path / "none")


def test_every_link_of_the_page_has_its_heading():
    entries = [entry(claim.id, verdict=Verdict.NOT_RUN) for claim in LEDGER.claims]
    text = page(entries, LEDGER)
    names = [anchor(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    assert len(set(names)) == len(names)
    links = re.findall(r"^\| \[`(.*)`\]\(#(.*?)\)", text, re.MULTILINE)
    assert [name for name, _ in links] == [row.id for row in entries]
    assert all(f"### {name}\n" in text and target in names for name, target in links)


def test_the_page_leads_with_the_doubtful_claims_and_counts_each_role_apart():
    claim = replace(LEDGER.find(["parseval.factor"])[0], role=Role.VARIANT, section="")
    claims = [
        replace(claim, id="plain", statement="1 < 2 | a*b*c", note="Why."),
        replace(claim, id="erratum", role=Role.ERRATUM),
        replace(claim, id="ours", subject="package"),
        replace(claim, id="fine", role=Role.DOUBTFUL, question="Is it?", headline="It is | so"),
        replace(claim, id="old"),
    ]
    ledger = Ledger(tuple(claims))
    settings = {"ledger": ledger, "verdict": Verdict.NOT_SUPPORTED}
    entries = [entry(name, **settings) for name in ("plain", "erratum", "ours")]
    entries += [entry("fine", ledger=ledger), entry("old", ledger=ledger, measured_by="before")]
    text = page(entries, ledger)
    top, _, below = text.partition("\n## Claims\n")
    variants = "- Other interpretations and special cases"
    for line in (
        "- Statements that somebody could doubt, of the paper: 1 (1 supported)",
        f"{variants}, of the paper: 2 (1 supported, 1 not supported)",
        f"{variants}, about this package: 1 (1 not supported)",
        "- Errata, of the paper: 1 (1 not supported)",
        "| Is it? | verdict | measured | observed |",
    ):
        assert f"{line}\n" in top
    assert re.search(r"\| \[It is \\\| so\]\(#fine\) \| supported \| Largest .+ \| 0 \|\n", top)
    assert re.findall(r"^- \[`(\w+)`", top, re.MULTILINE) == ["plain"]
    assert r"[`plain`](#plain): 1 \< 2 \| a\*b\*c – Why." in top
    assert "| [`erratum`](#erratum) | not supported (erratum) |" in below
    assert "| [`ours`](#ours) | not supported (this package) |" in below
    assert "| [`old`](#old) | supported (older code) |" in below
    assert below.count("- observed with an older version of the code") == 1


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"claims": [{}]}', '{"claims": 3}'], ids=["cut", "list", "empty", "number"]
)
def test_a_foreign_report_is_refused(tmp_path, text):
    (tmp_path / "claims.json").write_text(text, encoding="utf-8")
    with pytest.raises(ResourceError, match=r"claims\.json cannot be read \(\w+\); move it away"):
        read_entries(tmp_path, LEDGER)
