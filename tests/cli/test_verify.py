"""``loca-theory verify``: what it prints, keeps and says of earlier runs."""

import json
import re
import signal

import pytest
from rich.console import Console

from loca_theory.claims import Estimate, VerificationResult, load_ledger
from loca_theory.claims.checks import fourier
from loca_theory.claims.entries import Entry
from loca_theory.claims.estimates import Measured, Tier
from loca_theory.claims.ledger import by_section
from loca_theory.claims.observation import ClaimCell

QUICK = ("--quick", "--jobs", "1")
LEDGER = """
[[claim]]
id = "mine"
passage = "nowhere"
statement = "The factor is 1/K."
kind = "identity"
check = "fourier.parseval"
arguments = { factor = "1/K", transform = "unitary" }
expected = "0"
rule = { high = 1e-12 }
expected_verdict = "supported"
"""
OPEN = LEDGER.replace("{ high = 1e-12 }", "{ value = 0.0, precision = 0.1 }\ncomparisons = 1")
OPEN = OPEN.replace("identity", "Monte Carlo")


@pytest.fixture
def verify(cli):
    def run(*words):
        return cli("verify", *words, *QUICK)

    return run


@pytest.fixture
def with_ledger(tmp_path, monkeypatch):
    """Let the command read another ledger than the package's."""

    def write(text):
        (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
        read = load_ledger
        monkeypatch.setattr("loca_theory.claims.load_ledger", lambda: read(tmp_path / "mine.toml"))

    return write


def stored(cwd, folder="loca-results"):
    text = (cwd / folder / "claims.json").read_text(encoding="utf-8")
    return json.loads(text)["claims"]


def test_json_has_the_claims_and_csv_a_line_for_each(verify, cwd):
    done = verify("parseval.", "--quiet", "--format", "json")
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert set(document) == {
        "claims",
        "counts",
        "errata",
        "other_models",
        "package",
        "family",
        "files",
        "manifest",
    }
    assert document["files"][:2] == ["loca-results/claims.json", "loca-results/CLAIMS.md"]
    names = ["parseval.factor", "parseval.factor-unnormalised", "parseval.unitary"]
    assert [entry["id"] for entry in document["claims"]] == names
    assert stored(cwd) == document["claims"]
    head, *lines = verify("parseval.", "--format", "csv").out.splitlines()
    assert head == (
        "id,verdict,observed,standard_error,low,high,expected,rule,n,seconds,tier,seed,"
        "expected_verdict,note,section,kind,subject,role,question,headline"
    )
    assert [line.partition(",")[0] for line in lines] == names


def test_one_claim_is_shown_with_its_details_and_files(verify, cwd):
    done = verify("condition-u", "--out", cwd / "ledger")
    assert done.code == 0, done.err
    for text in ("condition-u", "supported under assumptions", "also assumed"):
        assert text in done.out
    assert f"note: results are in {cwd / 'ledger'}: claims.json, CLAIMS.md, claims.p" in done.err


def test_a_check_that_may_take_long_is_announced(cli, verify):
    first = "note: checking 3 claims at the tier default\n"
    assert cli("verify", "parseval", "--jobs", "1").err.startswith(first)
    assert "checking" not in verify("parseval").err


def test_strict_exits_with_3_if_a_claim_is_not_supported(verify):
    assert verify("parseval.factor", "--strict").code == 3
    assert verify("parseval.factor").code == 0
    assert verify("parseval.unitary", "--strict").code == 0


def test_a_verdict_that_the_ledger_does_not_expect_is_said_and_can_fail(
    verify, with_ledger, monkeypatch
):
    with_ledger(LEDGER)
    done = verify()
    assert done.code == 0
    assert "note: mine is not supported, but the ledger expects supported" in done.err
    done = verify("--as-expected", "--quiet")
    assert done.code == 1
    assert done.err.startswith("loca-theory: 1 verdict is not as the ledger expects: mine;")
    wide = Estimate(0.5, 1.0, 9)
    monkeypatch.setattr(fourier, "parseval", lambda *, factor, transform: wide)
    with_ledger(OPEN)
    done = verify("--as-expected")
    assert done.code == 1
    assert "note: inconclusive, though the ledger expects a decision: mine" in done.err
    assert "1 verdict is not as the ledger expects: mine;" in done.err
    with_ledger(f'{OPEN}undecided = ["quick"]')
    assert verify("--as-expected").code == 0


def store(names, *details):
    """Earlier verdicts, of a wrong observation of a tier, a seed and a version."""
    ledger, wrong = load_ledger(), (Estimate(7.0),)
    entries = (
        Entry(ClaimCell(claim, *details), Measured(wrong), ledger.error_rate(claim))
        for claim in ledger.find(names)
    )
    VerificationResult(manifest={}, ledger=ledger, claims=tuple(entries)).save("loca-results")


def test_a_verdict_that_is_kept_against_this_run_is_said(cli, verify, cwd):
    store(["condition-u", "parseval.unitary"], Tier.DEFAULT, 0, (), "before")
    done = verify("condition-u", "theorem2.cosine-law")
    assert "supported under assumptions" in done.out
    assert (
        "note: CLAIMS.md keeps an earlier verdict on condition-u: not supported (tier default, "
        "seed 0, older code)\n"
    ) in done.err
    done = cli("verify", "condition-u", "parseval.unitary", "--jobs", "1")
    assert "keeps" not in done.err
    assert not any(claim["stale"] for claim in stored(cwd))


def test_seeds_that_disagree_are_said(verify):
    store(["condition-u"], Tier.QUICK, 1, ())
    done = verify("condition-u")
    assert "condition-u  inconclusive (seeds disagree)" in done.out
    assert "note: inconclusive, because seeds disagree: condition-u\n" in done.err
    assert "keeps" not in done.err
    assert "inconclusive (seeds disagree)" in verify("condition-u").out


def forge(cwd, **changes):
    """Write a false result into claims.json by hand."""
    path = cwd / "loca-results" / "claims.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    for row in document["claims"]:
        row["estimates"][0] |= {"value": 7.0}
        row |= {"verdict": "not supported", "observed": 7.0, **changes}
    path.write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize(
    "changes", [{}, {"tier": "deep"}, {"seed": 5}, {"tier": "deep", "version": "before"}], ids=str
)
def test_a_forged_result_does_not_outlive_a_run(verify, cwd, changes):
    names = ("condition-u", "parseval.unitary")
    verify(*names)
    honest = stored(cwd)
    said = "no observation is stored in loca-results/points for 2 earlier results: "
    for names_again, outcome in (
        (names[:1], "1 measured again and replaced, 1 kept until you verify them again\n"),
        (names, "2 measured again and replaced\n"),
    ):
        forge(cwd, **changes)
        done = verify(*names_again)
        assert done.code == 0
        assert (said + outcome in done.err) == bool(changes)
        assert (stored(cwd) == honest) == (names_again == names or not changes)


@pytest.mark.parametrize("width", [80, 120])
def test_each_claim_has_a_line_and_below_it_its_quantity_and_its_rule(verify, monkeypatch, width):
    """In a terminal, in which no name, verdict or number is broken."""
    monkeypatch.setattr(Console, "is_terminal", True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    names = ("theorem1.n2-main-text", "sigma.", "proposition1.iid-isotropic", "condition-u")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", verify(*names).out)
    lines, text, claims = shown.splitlines(), " ".join(shown.split()), load_ledger().find(names)
    assert max(map(len, lines)) <= width
    starts = [line for line in lines if re.match(r"  \S", line)]
    ordered = [claim.id for listed in by_section(claims).values() for claim in listed]
    assert [line.split()[0] for line in starts] == ordered
    for claim in claims:
        pattern = rf"  {re.escape(claim.id)}  +{claim.expected_verdict}( \(erratum\))?(  |$)"
        assert any(re.match(pattern, line) for line in lines)
        assert f" {claim.quantity}: " in text
    rule = load_ledger().find(["condition-u"])[0].rule
    assert f"; supported if {rule.in_words(0)} " in text
    assert "Number of conjugate pairs of which condition U does not mark exactly one" in text
    assert "Errata, of the paper: 1 (1 not supported)" in text


@pytest.mark.parametrize("width", [80, 160])
def test_the_whole_ledger_leads_with_the_doubtful_claims(verify, with_ledger, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    lemma = LEDGER.replace('"mine"', '"lemma"') + 'role = "lemma"\n'
    headline = "The factor of the transform is one over the number of its columns"
    text = f"{lemma}{LEDGER}question = 'factor'\nheadline = '{headline}'\n"
    with_ledger(f"[questions]\nfactor = 'Which factor?'\n{text}")
    shown = verify().out
    first, after = shown.split("Identities and bounds of proofs\n")
    assert re.search(rf"Which factor\?\n  {headline}\s+not supported  0\.9375 \[mine\]\n", first)
    assert after.startswith("  lemma  not supported\n")


def test_an_erratum_and_a_claim_on_the_package_are_told_apart(verify, with_ledger, cwd):
    erratum = LEDGER.replace('"supported"', '"not supported"') + 'role = "erratum"\n'
    with_ledger(erratum + LEDGER.replace('"mine"', '"ours"') + 'subject = "package"\n')
    done = verify()
    assert re.search(r"^  mine +not supported \(erratum\)$", done.out, re.MULTILINE)
    assert "Errata, of the paper: 1 (1 not supported)\n" in done.out
    doubtful = "Statements that somebody could doubt"
    assert f"{doubtful}, about this package: 1 (1 not supported)\n" in done.out


def test_a_claim_without_its_table_prints_the_command_that_decides_it(verify):
    name = "results.loca-over-fourierft"
    done = verify(name, "--strict")
    assert done.code == 0
    assert "not run" in done.out
    assert re.search(rf"&& loca-theory verify {name} --results \S+ \(experiments", done.out)
    assert f'; in Python, decide it with verify("{name}", results="loca-results")' in done.out


def test_a_mistake_in_a_check_is_one_line_and_what_was_decided_is_kept(verify, cwd, monkeypatch):
    def wrong(*, first):
        return {}["key"]

    monkeypatch.setattr(fourier, "condition_u", wrong)
    done = verify("parseval.unitary", "condition-u")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "loca-theory: claim 'condition-u': the check fourier.condition_u raised KeyError: "
        "'key'; --debug shows where. Fix the check, or name other claims, whose finished "
        "observations are stored\n"
    )
    assert len(list((cwd / "loca-results" / "points").glob("*.json"))) == 1
    done = verify("condition-u", "--debug")
    assert "in wrong\n" in done.err
    assert "KeyError: 'key'\n" in done.err


def test_killed_in_between_it_goes_on_where_it_was(verify, cwd, killed):
    names = ("parseval.", "condition-u")
    assert verify(*names, "--out", "undisturbed").code == 0
    outcome = killed([(10, "killed-once")], "verify", *names, *QUICK)
    assert outcome.codes == [-signal.SIGKILL]
    assert 1 <= len(outcome.points[0]) <= 3
    folder = cwd / "killed-once"
    assert not (folder / "claims.json").exists()
    before = {name: (folder / "points" / name).stat().st_mtime_ns for name in outcome.points[0]}
    assert verify(*names, "--out", "killed-once").code == 0
    assert all((folder / "points" / name).stat().st_mtime_ns == t for name, t in before.items())
    first, second = (stored(cwd, name) for name in ("undisturbed", "killed-once"))
    assert [{**x, "seconds": 0} for x in first] == [{**x, "seconds": 0} for x in second]


def test_ctrl_c_counts_claims(verify, monkeypatch):
    def interrupted(*, method, sizes, r):
        raise KeyboardInterrupt

    monkeypatch.setattr("loca_theory.claims.checks.simulated.value", interrupted)
    done = verify("parseval.", "f2.law")
    assert (done.code, done.out) == (130, "")
    said = "interrupted: 0 of 4 points are stored; run again to compute the rest"
    assert done.err == f"loca-theory: {said}\n"


def test_the_ledger_is_listed_without_work(cli, cwd):
    done = cli("verify", "--list", "tv.")
    assert done.code == 0
    assert "tv.as-printed.size" in done.out
    assert list(cwd.iterdir()) == []
    assert len(json.loads(cli("verify", "--list", "--format", "json").out)["claims"]) > 50


def test_a_page_of_someone_else_is_not_replaced(verify, cwd):
    (cwd / "CLAIMS.md").write_text("# What we claim from the insurance", encoding="utf-8")
    done = verify("parseval.unitary", "--out", ".")
    assert (done.code, done.out) == (1, "")
    said = "CLAIMS.md was not written by verify; move it away, or choose another folder"
    assert done.err == f"loca-theory: {said}\n"
    assert [path.name for path in cwd.iterdir()] == ["CLAIMS.md"]
