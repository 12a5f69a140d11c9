"""The page of claims: what it says of a claim, with and without a stored run."""

import json
import re
from html import unescape

import pytest

from loca_theory.claims import load_ledger
from loca_theory.claims.role import Role

from .pages import extension

LEDGER = load_ledger()
CLAIMS = LEDGER.claims
OBSERVED = "<dt>Observed</dt>"


@pytest.fixture(scope="module")
def ledger():
    return extension("ledger")


def rows(text):
    """The rows of the table, by the ids of their claims."""
    table_rows = re.findall(r"<tr data-.*?</tr>", text, re.DOTALL)
    return {re.search(r"index} !(.*)", row)[1]: row for row in table_rows}


def test_every_claim_is_a_row_with_an_anchor(ledger):
    text = ledger.page(LEDGER, {})
    assert list(rows(text)) == [claim.id for claim in CLAIMS]
    for claim in CLAIMS:
        assert text.count(f":name: {claim.id.replace('.', '-')}\n") == 1


def test_a_row_shows_the_statement_and_unfolds_the_rest(ledger):
    shown = rows(ledger.page(LEDGER, {}))
    for claim in CLAIMS:
        summary, unfolded = shown[claim.id].split("</summary>")
        assert unescape(summary).endswith(f"<details>\n<summary>{claim.statement}")
        inside, cells = unfolded.split("</details>")
        for text in (claim.passage, claim.kind, claim.command, claim.rule.in_words()):
            assert f">{text}<" in unescape(inside)
        for text in (*claim.assumptions, *claim.added, claim.expected, claim.note):
            assert text in unescape(re.sub(r"<[^<>]*>", "", inside))
        assert f"{{py:func}}`{claim.check} <" in inside
        assert f">{claim.expected_verdict}<" in cells
    linked = '<a href="#low-rank-sum">low-rank.sum</a> is meant'
    assert linked in shown["low-rank.sum-as-printed"]
    assert "<dt>Refuted if</dt><dd>The law is that of the bound M1" in shown["f2.law"]
    assert "changed 2026-11-22: The bounds M1 and M2" in shown["f2.law"]


def test_without_a_run_the_expected_verdicts_stand_there(ledger, tmp_path):
    text = ledger.page(LEDGER, ledger.read_stored(tmp_path, LEDGER))
    assert "those that the ledger expects" in text
    assert OBSERVED not in text
    doubtful = sum(claim.role is Role.DOUBTFUL for claim in CLAIMS)
    assert text.count("<td>–</td>") == len(CLAIMS) + doubtful


def entry(name, **changed):
    """A stored claim of a run."""
    claim = {claim.id: claim for claim in CLAIMS}[name]
    estimate = {
        "name": "",
        "value": 0.25,
        "standard_error": 0.0,
        "n": 16,
        "successes": None,
        "bounds": None,
    }
    fields = {
        "id": name,
        "definition": claim.definition,
        "estimates": [estimate],
        "remark": "",
        "designed": "",
        "seconds": 1.0,
        "data": [],
        "tier": "deep",
        "seed": 0,
        "version": "?",
    }
    return {**fields, **changed}


def written(folder, *entries):
    (folder / "claims.json").write_text(json.dumps({"claims": entries}), encoding="utf-8")
    return folder


def test_with_a_run_its_verdict_and_numbers_stand_there(ledger, tmp_path):
    text = ledger.page(LEDGER, ledger.read_stored(written(tmp_path, entry("condition-u")), LEDGER))
    row = rows(text)["condition-u"]
    assert ">not supported<" in row
    (claim,) = LEDGER.find(["condition-u"])
    assert f"<td>0.25<br><small>{claim.quantity}</small></td>" in row
    older = "(n = 16, with an older version of the code)"
    assert f"{OBSERVED}<dd>{claim.quantity}: 0.25 {older}</dd>" in row
    assert "1 of the 1 observations are of an older version" in text
    assert text.count(OBSERVED) == 1
    assert f"1 of {len(CLAIMS)} verdicts" in text


def test_what_was_observed_by_another_check_is_left_out(ledger, tmp_path):
    written(tmp_path, entry("condition-u", definition="0"), entry("half-matrix.law", id="gone"))
    assert OBSERVED not in ledger.page(LEDGER, ledger.read_stored(tmp_path, LEDGER))


def test_the_page_leads_with_the_doubtful_claims_by_question(ledger):
    lead = unescape(ledger.page(LEDGER, {}).split("</table>")[0])
    assert re.findall(r"colspan=\"3\">(.*?)</th>", lead) == list(LEDGER.questions)
    doubtful = [claim for group in LEDGER.by_question(CLAIMS).values() for claim in group]
    links = [(claim.id.replace(".", "-"), claim.headline) for claim in doubtful]
    assert re.findall(r"<a href=\"#(.*?)\">(.*?)</a>", lead) == links


def test_the_overview_counts_by_role(ledger):
    overview = ledger.page(LEDGER, {}).split("</table>")[1]
    counts = {
        (verdict, role): int(count)
        for verdict, role, count in re.findall(
            r'data-verdict="(.*?)" data-role="(.*?)">(\d+)<', overview
        )
    }
    for role in Role:
        claims = [claim for claim in CLAIMS if claim.role is role]
        refused = sum(claim.expected_verdict == "not supported" for claim in claims)
        assert counts.get(("not supported", role), 0) == refused
        assert sum(counts[key] for key in counts if key[1] == role) == len(claims) > 0
        assert f"<td>{len(claims)}</td>" in overview.split("all</th>")[1]
