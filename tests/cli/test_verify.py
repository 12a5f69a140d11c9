"""``loca-theory verify`` as a user meets it."""

import json

import pytest

QUICK = ("--quick", "--jobs", "1")


def test_json_has_the_claims(cli, here):
    done = cli("verify", "parseval.", *QUICK, "--quiet", "--format", "json")
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert set(document) == {"claims", "counts", "family", "manifest"}
    assert [one["id"] for one in document["claims"]] == [
        "parseval.factor", "parseval.factor-unnormalised", "parseval.unitary",
    ]  # fmt: skip
    assert document["counts"]["not supported"] == 2
    assert document["family"]["rate"] == 0.01
    stored = json.loads((here / "loca-results" / "claims.json").read_text(encoding="utf-8"))
    assert stored["claims"] == document["claims"]


def test_the_table_names_verdicts_and_files(cli, here):
    done = cli("verify", "condition-u", *QUICK, "--out", here / "ledger")
    assert done.code == 0, done.err
    assert "condition-u" in done.out
    assert "supported under assumptions" in done.out
    assert "assumed besides" in done.out
    for name in ("claims.json", "CLAIMS.md"):
        assert f"wrote {here / 'ledger' / name}" in done.err


def test_csv_has_a_line_a_claim(cli):
    done = cli("verify", "sigma.", *QUICK, "--format", "csv")
    assert done.out.splitlines()[0].startswith("id,verdict,observed,standard_error,")
    assert len(done.out.splitlines()) == 4


def test_runs_add_up_and_quick_does_not_overwrite(cli, here):
    cli("verify", "f3.law", "--jobs", "1")
    cli("verify", "f3.law", "f2.law", *QUICK)
    document = json.loads((here / "loca-results" / "claims.json").read_text(encoding="utf-8"))
    assert {one["id"]: one["effort"] for one in document["claims"]} == {
        "f2.law": "quick", "f3.law": "default",
    }  # fmt: skip


def test_strict_exits_with_3_where_a_claim_is_not_supported(cli):
    assert cli("verify", "parseval.factor", *QUICK, "--strict").code == 3
    assert cli("verify", "parseval.factor", *QUICK).code == 0
    assert cli("verify", "parseval.unitary", *QUICK, "--strict").code == 0


LEDGER = """
[[claim]]
id = "mine"
place = "nowhere"
statement = "The factor is 1/K."
kind = "identity"
check = "fourier.parseval"
arguments = { factor = "1/K", transform = "unitary" }
expected = "0"
rule = { high = 1e-12 }
verdict = "supported"
"""


def test_a_changed_verdict_is_said_and_can_fail(cli, here):
    (here / "mine.toml").write_text(LEDGER, encoding="utf-8")
    done = cli("verify", "--ledger", "mine.toml", *QUICK)
    assert done.code == 0
    assert "note: mine is not supported, and the ledger expects supported" in done.err
    done = cli("verify", "--ledger", "mine.toml", *QUICK, "--as-expected", "--quiet")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith(
        "loca-theory: 1 verdicts are not those of the ledger: mine;"
    )


def test_the_ledger_is_listed_without_work(cli, here):
    done = cli("verify", "--list", "tv.")
    assert done.code == 0
    assert "tv.as-printed.size" in done.out
    assert list(here.iterdir()) == []
    rows = json.loads(cli("verify", "--list", "--format", "json").out)["claims"]
    assert len(rows) > 50


def test_a_claim_that_lacks_its_table_says_what_makes_it(cli):
    done = cli("verify", "results.loca-over-fourierft", *QUICK, "--strict")
    assert done.code == 0
    assert "not run" in done.out
    assert "python -m experiments.comparison" in done.out


BAD = {
    "unknown": (("theorem1.ordr",), 2, "unknown claim 'theorem1.ordr'; nearest: theorem1.order"),
    "both efforts": (("--quick", "--deep"), 2, "--quick and --deep exclude each other"),
    "no such folder": (("--results", "none"), 1, "there is no folder none"),
    "no such ledger": (("--ledger", "none"), 1, "cannot read the ledger none"),
}


@pytest.mark.parametrize(("arguments", "code", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line(cli, here, arguments, code, message):
    done = cli("verify", *arguments)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert list(here.iterdir()) == []


def test_a_ledger_edited_into_nonsense_names_the_line(cli, here):
    (here / "mine.toml").write_text(LEDGER.replace('"identity"', '"guess"'), encoding="utf-8")
    done = cli("verify", "--ledger", "mine.toml")
    assert done.code == 1
    assert "mine.toml, line 6: kind 'guess' is none of" in done.err
