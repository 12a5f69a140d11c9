"""The page of claims: what it says of a claim, with and without a stored run."""

import json
from importlib.util import module_from_spec, spec_from_file_location

import pytest

pytest.importorskip("sphinx", reason="needs the extra 'docs'")
pytest.importorskip("sybil", reason="needs the extra 'dev'")

from loca_theory.claims import load_ledger

from .pages import DOCS

LEDGER = load_ledger()
CLAIMS = LEDGER.claims


@pytest.fixture(scope="module")
def ledger():
    spec = spec_from_file_location("ledger_page", DOCS / "_extensions" / "ledger.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_a_run_the_expected_verdicts_stand_there(ledger):
    text = ledger.page(LEDGER, {})
    assert all(text.count(f"### `{claim.id}`\n") == 1 for claim in CLAIMS)
    assert "those that the ledger expects" in text
    assert "*Observed:*" not in text


def test_with_a_run_its_verdict_and_numbers_stand_there(ledger, tmp_path):
    entry = {"id": "condition-u", "verdict": "not supported", "observed": 0.25,
             "standard_error": 0.0625, "n": 16}  # fmt: skip
    path = tmp_path / "claims.json"
    path.write_text(json.dumps({"claims": [entry]}), encoding="utf-8")
    text = ledger.page(LEDGER, ledger.read_stored(path))
    section = text.split("### `condition-u`\n")[1].split("### ")[0]
    assert "`not supported`" in section
    assert "*Observed:* 0.25 ± 0.062 (n = 16)." in section
    assert text.count("*Observed:*") == 1
    assert f"1 of {len(CLAIMS)} verdicts" in text


def test_no_run_is_no_error(ledger, tmp_path):
    assert ledger.read_stored(tmp_path / "claims.json") == {}
