"""The page of claims: what it says of a claim, with and without a stored run."""

import json

import pytest

from loca_theory.claims import load_ledger
from loca_theory.claims.entries import definition

from .pages import extension

LEDGER = load_ledger()
CLAIMS = LEDGER.claims


@pytest.fixture(scope="module")
def ledger():
    return extension("ledger")


def test_without_a_run_the_expected_verdicts_stand_there(ledger):
    text = ledger.page(LEDGER, {})
    assert all(text.count(f"### `{claim.id}`\n") == 1 for claim in CLAIMS)
    assert "those that the ledger expects" in text
    assert "*Observed:*" not in text


def entry(name, **changed):
    """What a run stores of a claim."""
    claim = {one.id: one for one in CLAIMS}[name]
    estimate = {"name": "", "value": 0.25, "standard_error": 0.0, "n": 16, "successes": None,
                "bounds": None}  # fmt: skip
    found = {"id": name, "definition": definition(claim), "estimates": [estimate], "remark": "",
             "designed": "", "seconds": 1.0, "data": [], "tier": "deep", "seed": 0,
             "version": "?"}  # fmt: skip
    return {**found, **changed}


def written(folder, *entries):
    (folder / "claims.json").write_text(json.dumps({"claims": entries}), encoding="utf-8")
    return folder


def test_with_a_run_its_verdict_and_numbers_stand_there(ledger, tmp_path):
    text = ledger.page(LEDGER, ledger.read_stored(written(tmp_path, entry("condition-u")), LEDGER))
    section = text.split("### `condition-u`\n")[1].split("### ")[0]
    assert "`not supported`" in section
    observed = "*Observed:* 0.25 (n = 16, with an older version of the code)."
    assert observed in section
    assert text.count("*Observed:*") == 1
    assert f"1 of {len(CLAIMS)} verdicts" in text


def test_what_was_observed_by_another_check_is_left_out(ledger, tmp_path):
    written(tmp_path, entry("condition-u", definition="0"), entry("dct.matrix", id="gone"))
    assert "*Observed:*" not in ledger.page(LEDGER, ledger.read_stored(tmp_path, LEDGER))


def test_errata_and_the_package_are_counted_apart(ledger):
    overview = ledger.page(LEDGER, {}).split("\n## ")[0]
    paper, other, package = (
        [claim for claim in CLAIMS if claim.subject == subject]
        for subject in ("paper", "another model", "package")
    )
    refused = [claim for claim in paper if claim.expected_verdict == "not supported"]
    errata = sum(claim.erratum for claim in refused)
    assert f"errata **{errata}**" in overview
    assert f"`not supported` **{len(refused) - errata}**" in overview
    others, own = overview.split("Counted apart")[1].split("About this package's own code: ")
    assert others.count("](#") == len(other) > 0
    assert own.count("](#") == len(package) > 0


def test_power_and_history_of_a_claim_are_shown(ledger):
    text = ledger.page(LEDGER, {}).split("### `f2.law`\n")[1].split("### ")[0]
    assert "*Refuted if:* The law is that of the bound M1" in text
    assert "*History:* rule since 2026-11-22, fixed before the stored run" in text
    assert "changed 2026-11-22: The bounds M1 and M2" in text


def test_no_run_is_no_error(ledger, tmp_path):
    assert ledger.read_stored(tmp_path, LEDGER) == {}
