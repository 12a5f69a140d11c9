"""``loca-theory verify`` as a user meets it."""

import json
import os
import pickle
import re
import signal

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from loca_theory.claims import Estimate, VerificationResult, load_ledger
from loca_theory.claims.checks import fourier
from loca_theory.claims.entries import Entry
from loca_theory.claims.estimates import Tier
from loca_theory.claims.ledger import by_section
from loca_theory.claims.observation import ClaimCell

QUICK = ("--quick", "--jobs", "1")


def test_json_has_the_claims(cli, here):
    done = cli("verify", "parseval.", *QUICK, "--quiet", "--format", "json")
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert set(document) == {"claims", "counts", "errata", "other_models", "package",
                             "family", "files", "manifest"}  # fmt: skip
    assert document["files"][:2] == ["loca-results/claims.json", "loca-results/CLAIMS.md"]
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
    assert "also assumed" in done.out
    for name in ("claims.json", "CLAIMS.md"):
        assert f"wrote {here / 'ledger' / name}" in done.err


def test_csv_has_a_line_a_claim(cli):
    done = cli("verify", "sigma.", *QUICK, "--format", "csv")
    assert done.out.splitlines()[0].startswith("id,verdict,observed,standard_error,")
    assert len(done.out.splitlines()) == 1 + len(load_ledger().find(["sigma."]))


def test_runs_add_up_and_quick_does_not_overwrite(cli, here):
    cli("verify", "condition-u", "--jobs", "1")
    cli("verify", "condition-u", "sigma.sum", *QUICK)
    document = json.loads((here / "loca-results" / "claims.json").read_text(encoding="utf-8"))
    assert {one["id"]: one["tier"] for one in document["claims"]} == {
        "condition-u": "default", "sigma.sum": "quick",
    }  # fmt: skip


def test_strict_exits_with_3_where_a_claim_is_not_supported(cli):
    assert cli("verify", "parseval.factor", *QUICK, "--strict").code == 3
    assert cli("verify", "parseval.factor", *QUICK).code == 0
    assert cli("verify", "parseval.unitary", *QUICK, "--strict").code == 0


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


def test_a_changed_verdict_is_said_and_can_fail(cli, here):
    (here / "mine.toml").write_text(LEDGER, encoding="utf-8")
    done = cli("verify", "--ledger", "mine.toml", *QUICK)
    assert done.code == 0
    assert "note: mine is not supported, but the ledger expects supported" in done.err
    done = cli("verify", "--ledger", "mine.toml", *QUICK, "--as-expected", "--quiet")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith(
        "loca-theory: 1 verdict is not as the ledger expects: mine;"
    )


OPEN = """
[[claim]]
id = "open"
passage = "nowhere"
statement = "It is 0."
kind = "Monte Carlo"
check = "fourier.parseval"
arguments = { factor = "1", transform = "unitary" }
expected = "0"
rule = { value = 0.0, precision = 0.1 }
comparisons = 1
expected_verdict = "supported"
"""


def test_no_decision_where_one_is_due_can_fail(cli, here, monkeypatch):
    wide = Estimate(0.5, 1.0, 9)
    monkeypatch.setattr(fourier, "parseval", lambda *, factor, transform: wide)
    (here / "mine.toml").write_text(OPEN, encoding="utf-8")
    done = cli("verify", "--ledger", "mine.toml", *QUICK)
    assert done.code == 0
    assert "note: inconclusive, though the ledger expects a decision: open" in done.err
    done = cli("verify", "--ledger", "mine.toml", *QUICK, "--as-expected")
    assert done.code == 1
    assert "1 verdict is not as the ledger expects: open;" in done.err
    (here / "mine.toml").write_text(f'{OPEN}undecided = ["quick"]', encoding="utf-8")
    assert cli("verify", "--ledger", "mine.toml", *QUICK, "--as-expected").code == 0


def test_a_verdict_that_is_kept_against_this_run_is_said(cli, here):
    ledger = load_ledger()
    claims = ledger.find(["condition-u", "parseval.unitary"])
    older = (Tier.DEFAULT, 0, (), "before")
    VerificationResult(
        manifest={},
        ledger=ledger,
        claims=tuple(
            Entry(ClaimCell(claim, *older), (Estimate(7.0),), "", "", ledger.error_rate(claim), 0.1)
            for claim in claims
        ),
    ).save("loca-results")
    path = here / "loca-results" / "claims.json"
    done = cli("verify", "condition-u", "theorem2.cosine-law", *QUICK)
    assert "supported under assumptions" in done.out
    assert (
        "note: CLAIMS.md keeps the observations of earlier runs for 1 of these claims, 1 of them "
        "with older code; differing verdicts: condition-u (not supported at tier default with seed "
        "0 and older code, now supported under assumptions)\n"
    ) in done.err
    page = (here / "loca-results" / "CLAIMS.md").read_text(encoding="utf-8")
    assert page.count("- observed with an older version of the code") == 2
    done = cli("verify", "condition-u", "parseval.unitary", "--jobs", "1")
    assert "keeps" not in done.err
    assert not any(one["stale"] for one in json.loads(path.read_text(encoding="utf-8"))["claims"])


def stored(here):
    text = (here / "loca-results" / "claims.json").read_text(encoding="utf-8")
    return json.loads(text)["claims"]


def forge(here, **changes):
    """Write a false result into claims.json by hand."""
    path = here / "loca-results" / "claims.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    for one in document["claims"]:
        one["estimates"][0] |= {"value": 7.0}
        one |= {"verdict": "not supported", "observed": 7.0, **changes}
    path.write_text(json.dumps(document), encoding="utf-8")


FORGED = {
    "numbers": {},
    "a deeper tier": {"tier": "deep"},
    "another seed": {"seed": 5},
    "older code": {"tier": "deep", "version": "before"},
}


@pytest.mark.parametrize("changes", FORGED.values(), ids=FORGED.keys())
def test_a_forged_result_does_not_outlive_a_run(cli, here, changes):
    names = ("condition-u", "parseval.unitary")
    cli("verify", *names, *QUICK)
    honest = stored(here)
    forge(here, **changes)
    done = cli("verify", *names, *QUICK)
    assert done.code == 0
    assert stored(here) == honest
    is_said = "for 2 earlier results: 2 measured again and replaced\n" in done.err
    assert is_said == bool(changes)


def test_a_run_of_other_claims_restores_what_was_observed(cli, here):
    cli("verify", "condition-u", *QUICK)
    honest = stored(here)
    forge(here)
    done = cli("verify", "sigma.sum", *QUICK)
    assert honest[0] in stored(here)
    assert "no observation is stored" not in done.err
    forge(here, tier="deep")
    done = cli("verify", "sigma.sum", *QUICK)
    assert (
        "no observation is stored in loca-results/points for 2 earlier results: 1 measured "
        "again and replaced, 1 kept until you verify them again"
    ) in done.err


def test_no_line_is_broken_in_a_terminal(cli, monkeypatch):
    """Each claim has lines of its own: its name and verdict whole, its numbers whole."""
    monkeypatch.setattr(Console, "is_terminal", True)
    monkeypatch.setenv("TERM", "xterm")
    names = ("theorem1.n2-main-text", "sigma.", "noniid.marginals")
    for width in (80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        assert_unbroken(cli("verify", *names, *QUICK).out, width, names)


def assert_unbroken(out, width, names):
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()
    assert max(map(len, lines)) <= width
    claims = load_ledger().find(names)
    assert lines[: lines.index("")] == [line.rstrip() for line in lines[: lines.index("")]]
    expected = ["claim"]
    for title, listed in by_section(claims).items():
        expected += [title, *(claim.id for claim in listed)]
    starts = [line for line in lines[: lines.index("")] if not line.startswith("   ")]
    assert [re.split(r"  +", line.strip())[0] for line in starts] == expected
    for claim in claims:
        assert any(
            re.match(
                rf"  {re.escape(claim.id)}  +{claim.expected_verdict}( \(erratum\))?(  |$)", line
            )
            for line in lines
        )


def test_a_erratum_and_a_claim_on_the_package_are_told_apart(cli, here):
    erratum = LEDGER.replace('"supported"', '"not supported"') + "erratum = true\n"
    ours = LEDGER.replace('"mine"', '"ours"') + 'subject = "package"\n'
    (here / "mine.toml").write_text(erratum + ours, encoding="utf-8")
    done = cli("verify", "--ledger", "mine.toml", *QUICK)
    assert re.search(r"^  mine +not supported \(erratum\)  0\.9", done.out, re.MULTILINE)
    assert "1 claim of the paper: 1 not supported (of which 1 is an erratum)\n" in done.out
    assert "1 claim about this package: 1 not supported\n" in done.out
    document = json.loads((here / "loca-results" / "claims.json").read_text(encoding="utf-8"))
    counted = [document[name]["not supported"] for name in ("counts", "package")]
    assert (counted, document["errata"]) == ([1, 1], 1)


def test_a_pipe_gets_a_line_a_claim_with_the_deciding_bounds(cli):
    done = cli("verify", "proposition1.iid-isotropic", "condition-u", *QUICK)
    head, *lines = [line for line in done.out.splitlines() if line.startswith("  ")]
    assert re.split(r"  +", head.strip()) == [
        "claim", "verdict", "observed", "supported if", "n", "time",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines] == [
        claim.id for claim in load_ledger().find(["proposition1.iid-isotropic", "condition-u"])
    ]
    assert all(line.endswith(" s") and len(line) <= 140 for line in lines)
    assert "2 claims of the paper: " in done.out


def test_the_printed_command_decides_once_its_table_is_made(cli, here):
    name = "results.loca-over-fourierft"
    said = cli("verify", name, "--jobs", "1").out
    printed = re.search(r"&& loca-theory (verify \S+ --results (\S+)) \(experiments need", said)
    assert printed, said
    # Where the experiment writes by itself.
    folder = here / printed[2] / "experiments"
    folder.mkdir(parents=True)
    verdict = {
        "comparison": "many-fourierft", "measure": "accuracy", "margin": 0.5, "tasks": 6,
        "seeds": 64, "pairs": 384, "verdict": "supported", "difference": 0.9,
        "standard_error": 0.1, "low": 0.6, "high": 1.2, "within": 1.2, "fixed_low": 0.7,
        "fixed_high": 1.1, "kinds_low": 0.5, "kinds_high": 1.3,
    }  # fmt: skip
    pd.DataFrame([verdict]).to_parquet(folder / "verdicts.parquet")
    done = cli(*printed[1].split(), "--jobs", "1")
    assert done.code == 0, done.err
    assert "not run" not in done.out


def test_a_mistake_in_a_check_is_one_line_and_what_was_decided_is_kept(cli, here, monkeypatch):
    def wrong(*, first):
        return {}["key"]

    monkeypatch.setattr(fourier, "condition_u", wrong)
    done = cli("verify", "parseval.unitary", "condition-u", *QUICK)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "loca-theory: claim 'condition-u': the check fourier.condition_u raised KeyError: "
        "'key'; --debug shows where. Fix the check, or name other claims, whose finished "
        "observations are stored\n"
    )
    assert len(list((here / "loca-results" / "points").glob("*.json"))) == 1
    done = cli("verify", "condition-u", *QUICK, "--debug")
    assert "in wrong\n" in done.err
    assert "KeyError: 'key'\n" in done.err


def test_a_mistake_in_a_worker_names_its_claim_too(monkeypatch):
    def wrong(*, factor, transform):
        msg = "by 0"
        raise ZeroDivisionError(msg)

    monkeypatch.setattr(fourier, "parseval", wrong)
    with pytest.raises(ZeroDivisionError, match="by 0") as error:
        load_ledger().find(["parseval.unitary"])[0].measure(Tier.QUICK, np.random.default_rng(0))
    again = pickle.loads(pickle.dumps(error.value))
    assert again.__notes__ == [
        "claim 'parseval.unitary': the check fourier.parseval raised ZeroDivisionError"
    ]


def test_a_ledger_with_an_unknown_check_is_refused_before_anything_is_measured(cli, here):
    wrong = LEDGER.replace("fourier.parseval", "fourier.nothing").replace('"mine"', '"wrong"')
    (here / "mine.toml").write_text(LEDGER + wrong, encoding="utf-8")
    done = cli("verify", "--ledger", "mine.toml", *QUICK)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "loca-theory: claim 'wrong': there is no check 'fourier.nothing' in "
        "loca_theory.claims.checks\n"
    )
    assert not list((here / "loca-results" / "points").glob("*.json"))
    assert cli("verify", "--ledger", "mine.toml", "--list").code == 0


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_killed_in_between_it_goes_on_where_it_was(cli, here, killed):
    chosen = ("verify", "parseval.", "condition-u", *QUICK)
    assert cli(*chosen, "--out", "undisturbed").code == 0
    found = killed([(10, "killed-once")], *chosen)
    assert found.codes == [-signal.SIGKILL]
    assert 1 <= len(found.points[0]) <= 3
    folder = here / "killed-once"
    assert not (folder / "claims.json").exists()
    before = {name: (folder / "points" / name).stat().st_mtime_ns for name in found.points[0]}
    assert cli(*chosen, "--out", "killed-once").code == 0
    assert all((folder / "points" / name).stat().st_mtime_ns == t for name, t in before.items())
    one, two = (
        json.loads((here / name / "claims.json").read_text(encoding="utf-8"))["claims"]
        for name in ("undisturbed", "killed-once")
    )
    assert [{**x, "seconds": 0} for x in one] == [{**x, "seconds": 0} for x in two]


def test_ctrl_c_inside_a_check_counts_claims(cli, monkeypatch):
    """Its own sweep is of no interest to the user."""

    def interrupted(point):
        raise KeyboardInterrupt

    monkeypatch.setattr("loca_theory.convergence.simulation.evaluate", interrupted)
    done = cli("verify", "parseval.", "toy.recovery", *QUICK)
    assert (done.code, done.out) == (130, "")
    assert done.err == (
        "loca-theory: interrupted: 0 of 4 points are stored; run again to compute the rest\n"
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
    assert "python -m experiments.everything --full" in done.out


def test_a_page_of_someone_else_is_not_replaced(cli, here):
    (here / "CLAIMS.md").write_text("# What we claim from the insurance", encoding="utf-8")
    done = cli("verify", "parseval.unitary", *QUICK, "--out", ".")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "loca-theory: CLAIMS.md was not written by verify; move it away, or choose another folder\n"
    )
    assert [path.name for path in here.iterdir()] == ["CLAIMS.md"]


def test_a_ledger_edited_into_nonsense_names_the_line(cli, here):
    (here / "mine.toml").write_text(LEDGER.replace('"identity"', '"guess"'), encoding="utf-8")
    done = cli("verify", "--ledger", "mine.toml")
    assert done.code == 1
    assert "mine.toml is not a ledger: claim 'mine': kind: Input should be 'identity', " in done.err
    (here / "mine.toml").write_text(f'{LEDGER}figure = "nope"', encoding="utf-8")
    done = cli("verify", "--ledger", "mine.toml")
    assert done.code == 1
    assert "claim 'mine': unknown figure 'nope'; choose from sim_1, " in done.err
    (here / "mine.toml").write_text(
        LEDGER.replace("high = 1e-12", "high = [1, 2]"), encoding="utf-8"
    )
    done = cli("verify", "--ledger", "mine.toml", *QUICK)
    assert done.code == 1
    assert "claim 'mine': its rule has bounds for 2 estimates, but the check made 1" in done.err
    assert len(done.err.splitlines()) == 1
