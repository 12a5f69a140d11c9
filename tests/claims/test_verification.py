"""Running claims: through the store, merged with earlier runs, and a few for real."""

import json
import pickle
import re
from collections import Counter
from dataclasses import replace
from functools import partial

import pandas as pd
import pytest

from loca_theory.claims import (
    Claim,
    Effort,
    Ledger,
    Measurement,
    Part,
    Verdict,
    Verification,
    load_ledger,
    merged,
    read_entries,
    write_report,
)
from loca_theory.claims import verification as module
from loca_theory.claims.markdown import markdown
from loca_theory.errors import ResourceError
from loca_theory.sweeps import ResultStore, Runner

ALONE = Runner(jobs=1)

LEDGER = load_ledger()
# Exact, and done in a blink.
CHEAP = [
    claim.id for claim in LEDGER.claims if claim.kind in ("identity", "bound") and claim.cost <= 1
]


@pytest.fixture(scope="module")
def cheap():
    return Verification(names=tuple(CHEAP), effort=Effort.QUICK).run(ALONE)


def test_cheap_claims_come_to_the_ledgers_verdict(cheap):
    assert len(cheap) > 30
    assert {one["id"]: one["verdict"] for one in cheap} == {
        claim.id: claim.ledger.value for claim in LEDGER.find(CHEAP)
    }
    assert not any(one["changed"] for one in cheap)


@pytest.mark.parametrize(
    "name",
    ["dora.expectation", "theorem1.order", "gradient.neighbour"],
)
def test_some_that_are_simulated_do_so_too(name):
    (one,) = Verification(names=(name,), effort=Effort.QUICK).run(ALONE)
    assert one["verdict"] == LEDGER.find([name])[0].ledger
    assert one["n"] >= 1


@pytest.mark.deep
def test_all_claims_come_to_the_ledgers_verdict():
    entries = Verification(effort=Effort.DEFAULT).run()
    assert [one["id"] for one in entries if one["changed"]] == []


def test_entries_have_what_was_agreed(cheap):
    agreed = {"id", "verdict", "observed", "standard_error", "expected", "rule", "n", "seconds",
              "note"}  # fmt: skip
    assert all(agreed <= set(one) for one in cheap)
    json.dumps(cheap, allow_nan=False)


def without_time(entries):
    return [{**one, "seconds": None} for one in entries]


def test_a_second_run_reads_the_store(tmp_path, monkeypatch):
    chosen = Verification(names=("dora.expectation", "parseval."), effort=Effort.QUICK)
    store = ResultStore(tmp_path / "points", chosen.version)
    first = chosen.run(Runner(store, jobs=1))

    def refuse(*arguments, **options):
        pytest.fail("computed again")

    monkeypatch.setattr(Claim, "measure", refuse)
    assert chosen.run(Runner(store, jobs=1)) == first


def test_the_work_can_be_sent_to_workers():
    claims = {claim.id: claim for claim in LEDGER.claims}
    sent = pickle.dumps(partial(module.measure, claims=claims, results=None))
    assert pickle.loads(sent).keywords["claims"] == claims


def test_a_claim_does_not_depend_on_the_others():
    name, other = "dora.expectation", "proposition1.iid-isotropic"
    alone = Verification(names=(name,), effort=Effort.QUICK).run(ALONE)
    among = Verification(names=(other, name), effort=Effort.QUICK).run(ALONE)
    assert without_time(alone) == without_time(among[1:])
    reseeded = Verification(names=(name,), effort=Effort.QUICK, seed=1).run(ALONE)
    assert reseeded[0]["observed"] != alone[0]["observed"]


# --- earlier verdicts ------------------------------------------------------------------------


def entry(name="parseval.factor", effort=Effort.QUICK, verdict=Verdict.SUPPORTED, ledger=LEDGER,
          seed=0, **other):  # fmt: skip
    (claim,) = ledger.find([name])
    value = 0.0 if verdict is Verdict.SUPPORTED else 1.0
    found = Measurement.missing("") if verdict is Verdict.NOT_RUN else Measurement.exact(value)
    stored = {**found.to_json(), "seconds": 0.1}
    return {**module.entry(claim, stored, effort, ledger, seed), **other}


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        (Effort.DEEP, Effort.QUICK, Effort.DEEP),
        (Effort.DEFAULT, Effort.QUICK, Effort.DEFAULT),
        (Effort.QUICK, Effort.DEFAULT, Effort.DEFAULT),
        (Effort.DEFAULT, Effort.DEEP, Effort.DEEP),
    ],
)
def test_less_effort_never_overwrites_more(old, new, kept):
    (one,) = merged([entry(effort=old)], [entry(effort=new)], LEDGER)
    assert one["effort"] == kept


def test_equal_effort_is_the_newer_one():
    new = entry(verdict=Verdict.NOT_SUPPORTED)
    assert merged([entry()], [new], LEDGER) == [new]


def test_with_another_seed_the_first_look_counts():
    old, new = entry(), entry(verdict=Verdict.NOT_SUPPORTED, seed=1)
    assert merged([old], [new], LEDGER) == [old]
    assert merged([old], [entry(seed=1)], LEDGER) == [entry(seed=1)]
    deeper = entry(verdict=Verdict.NOT_SUPPORTED, seed=1, effort=Effort.DEEP)
    assert merged([old], [deeper], LEDGER) == [deeper]


def test_what_older_code_observed_is_marked_and_makes_way_for_equal_effort():
    old = entry(effort=Effort.DEFAULT, version="before", verdict=Verdict.NOT_SUPPORTED)
    (kept,) = merged([old], [entry(effort=Effort.QUICK)], LEDGER)
    assert (kept["verdict"], kept["stale"], kept["version"]) == ("not supported", True, "before")
    new = entry(effort=Effort.DEFAULT, seed=1)
    assert merged([old], [new], LEDGER) == [new]
    assert not new["stale"]


def test_other_tables_are_another_observation():
    old = entry(effort=Effort.DEEP, data=["t.parquet:1"])
    new = entry(effort=Effort.QUICK, data=["t.parquet:2"], verdict=Verdict.NOT_SUPPORTED)
    assert merged([old], [new], LEDGER) == [new]


def test_an_observation_that_the_rule_no_longer_fits_is_dropped():
    (claim,) = LEDGER.find(["parseval.factor"])
    changed = Ledger((replace(claim, rule=replace(claim.rule, low=(0.0, 1.0), high=(2.0,))),))
    assert merged([entry()], [], changed) == []


@pytest.mark.parametrize(
    ("ledger", "effort", "lost"),
    [
        (Verdict.SUPPORTED, Effort.DEFAULT, True),
        (Verdict.SUPPORTED, Effort.QUICK, False),
        (Verdict.INCONCLUSIVE, Effort.DEFAULT, False),
        (Verdict.NOT_RUN, Effort.DEFAULT, False),
    ],
)
def test_an_inconclusive_verdict_is_lost_where_a_decision_was_due(ledger, effort, lost):
    claim = replace(LEDGER.find(["f2.law"])[0], ledger=ledger, undecided=(Effort.QUICK,))
    wide = Measurement.of(Part("", 0.0, 1.0, 9)).to_json()
    one = module.entry(claim, {**wide, "seconds": 0.1}, effort, Ledger((claim,)), 0)
    assert (one["verdict"], one["lost"], one["changed"]) == ("inconclusive", lost, False)


def test_what_ran_is_not_overwritten_by_what_did_not():
    old = entry(effort=Effort.QUICK)
    new = entry(effort=Effort.DEEP, verdict=Verdict.NOT_RUN)
    assert merged([old], [new], LEDGER) == [old]
    assert merged([new], [old], LEDGER) == [old]


def test_under_another_rule_the_observation_is_judged_anew():
    (claim,) = LEDGER.find(["parseval.factor"])
    changed = Ledger((replace(claim, rule=replace(claim.rule, high=(9.0,)), note="Now wider."),))
    old = entry(effort=Effort.DEEP, verdict=Verdict.NOT_SUPPORTED)
    assert old["verdict"] == "not supported"
    (one,) = merged([old], [], changed)
    assert (one["verdict"], one["observed"], one["note"]) == ("supported", 1.0, "Now wider.")
    assert one["version"] == old["version"]


def test_a_claim_with_another_check_starts_anew():
    (claim,) = LEDGER.find(["parseval.factor"])
    changed = Ledger((replace(claim, arguments={"factor": "1", "transform": "unitary"}),))
    assert merged([entry(effort=Effort.DEEP)], [], changed) == []
    new = entry(effort=Effort.QUICK, ledger=changed)
    assert merged([entry(effort=Effort.DEEP)], [new], changed) == [new]


def test_others_stay_in_the_order_of_the_ledger():
    old = [entry("toy.recovery"), entry("condition-u")]
    found = merged(old, [entry("parseval.factor")], LEDGER)
    assert [one["id"] for one in found] == ["parseval.factor", "condition-u", "toy.recovery"]


def test_the_report_is_read_back(tmp_path, cheap):
    written = write_report(tmp_path, cheap, LEDGER, {"seed": 0})
    assert [path.name for path in written] == ["claims.json", "CLAIMS.md"]
    assert read_entries(tmp_path) == cheap


def heading_names(text):
    """The names of headings, as GitHub makes them: counted up where two are alike."""
    seen = Counter()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        yield f"{name}-{seen[name]}" if seen[name] else name
        seen[name] += 1


def test_every_link_of_the_page_has_its_heading():
    whole = [entry(claim.id, verdict=Verdict.NOT_RUN) for claim in LEDGER.claims]
    text = markdown(whole, LEDGER)
    names = list(heading_names(text))
    assert len(set(names)) == len(names)
    links = re.findall(r"^\| \[`(.*)`\]\(#(.*?)\)", text, re.MULTILINE)
    assert [name for name, _ in links] == [
        name for names in LEDGER.grouped([one["id"] for one in whole]).values() for name in names
    ]
    for name, target in links:
        assert f"### {name}\n" in text
        assert target in names


def test_the_page_leads_with_what_is_not_supported_and_sets_slips_apart():
    claim = replace(LEDGER.find(["parseval.factor"])[0], slip=False)
    claims = [
        replace(claim, id="plain", statement="1 < 2 | a*b*c", note="Why."),
        replace(claim, id="slip", slip=True),
        replace(claim, id="ours", subject="package"),
        replace(claim, id="fine"),
        replace(claim, id="old"),
    ]
    ledger = Ledger(tuple(claims))
    verdicts = [Verdict.NOT_SUPPORTED] * 3 + [Verdict.SUPPORTED] * 2
    entries = [
        entry(one.id, verdict=verdict, ledger=ledger, stale=one.id == "old")
        for one, verdict in zip(claims, verdicts, strict=True)
    ]
    text = markdown(entries, ledger)
    top, _, rest = text.partition("\n## Claims\n")
    assert (
        "- 4 claims on the paper: 2 supported, 2 not supported (of them 1 slip of the pen)" in top
    )
    assert "- 1 claim on this package: 1 not supported" in top
    assert re.findall(r"^- \[`(\w+)`", top, re.MULTILINE) == ["plain"]
    assert r"[`plain`](#plain): 1 \< 2 \| a\*b\*c – Why." in top
    assert "| [`slip`](#slip) | not supported (slip of the pen) |" in rest
    assert "| [`ours`](#ours) | not supported (this package) |" in rest
    assert "| [`old`](#old) | supported (older code) |" in rest
    assert rest.count("- observed with an older version of the code") == 1


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"claims": [{}]}', '{"claims": 3}'], ids=["cut", "list", "empty", "number"]
)
def test_a_foreign_report_is_refused(tmp_path, text):
    (tmp_path / "claims.json").write_text(text, encoding="utf-8")
    with pytest.raises(ResourceError, match=r"claims\.json cannot be read \(\w+\); move it away"):
        read_entries(tmp_path)


# --- stored tables ---------------------------------------------------------------------------


def results_table(folder, metrics, measure="accuracy", name="comparison-made-up"):
    rows = [
        {"task": "t", "method": method, "r": 4.0, "seed": seed, "measure": measure,
         "metric": value, "diverged": value is None}
        for method, values in metrics.items()
        for seed, value in enumerate(values)
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(folder / f"{name}.parquet")


@pytest.mark.parametrize("folder", ["none", "empty", "other"])
def test_without_its_table_a_claim_is_not_run(tmp_path, folder):
    if folder == "other":
        results_table(tmp_path, {"full": [1.0, 1.0]})
    chosen = Verification(names=("results.",), results=None if folder == "none" else tmp_path)
    for one in chosen.run(ALONE):
        assert one["verdict"] == "not run"
        assert one["observed"] is None
        assert (
            f"Make it with: {one['command']} && loca-theory verify {one['id']} --results"
            in (one["note"])
        )
        assert not one["changed"]


def test_new_tables_are_looked_at_again(tmp_path):
    chosen = Verification(names=("results.loca-over-fourierft",), results=tmp_path)
    store = ResultStore(tmp_path / "points", chosen.version)
    assert chosen.run(Runner(store, jobs=1))[0]["verdict"] == "not run"
    results_table(tmp_path, {"loca": [0.9, 0.8, 0.8], "fourierft": [0.8, 0.75, 0.7]})
    assert chosen.run(Runner(store, jobs=1))[0]["observed"] > 0


def test_tables_of_a_trial_run_do_not_count(tmp_path):
    (tmp_path / "quick").mkdir()
    results_table(tmp_path / "quick", {"loca": [0.9, 0.8], "fourierft": [0.8, 0.75]})
    chosen = Verification(names=("results.loca-over-fourierft",), results=tmp_path)
    assert chosen.run(ALONE)[0]["verdict"] == "not run"


def test_a_damaged_table_is_an_error(tmp_path):
    (tmp_path / "comparison-x.parquet").write_bytes(b"nothing")
    chosen = Verification(names=("results.",), results=tmp_path)
    with pytest.raises(ResourceError, match=r"comparison-x\.parquet cannot be read"):
        chosen.run(ALONE)


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ResourceError, match="there is no folder"):
        Verification(results=tmp_path / "none")


def test_a_part_shown_for_a_share():
    part = Part.share(1, 4)
    assert (part.value, part.n, part.is_random) == (0.25, 4, True)
