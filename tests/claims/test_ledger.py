"""The ledger that is shipped: whole, importable, consistent; and what is refused as none."""

import re
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest

import loca_theory
from loca_theory.claims import Claim, Estimate, Measurement, Setting, load_ledger, verify
from loca_theory.claims.ledger import (
    EMPIRICAL,
    KINDS,
    OTHER_MODEL,
    PACKAGE,
    LedgerError,
    Section,
    by_section,
)
from loca_theory.claims.measurement import Tier
from loca_theory.claims.rules import Rule, Verdict
from loca_theory.cli.main import group
from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting import FIGURES

LEDGER = load_ledger()
ROOT = Path(loca_theory.__file__).parents[1]
CHECKS = Path(loca_theory.__file__).parent / "claims" / "checks"
# What other work refers to.
PROMISED = [
    "theorem1.order",
    "theorem1.n2-main-text",
    "theorem1.small-k",
    "theorem2.equality",
    "proposition1.variance",
    "parseval.factor",
    "condition-u",
    "order-statistic.density",
    "dora.expectation",
    "tv.as-printed.size",
    "tv.as-printed.percentile",
    "noniid.crossing.same-draw",
    "noniid.crossing.iid-reference",
    "noniid.t-critical",
    "gradient.identity",
    "toy.recovery",
]


def test_the_ledger_has_what_was_promised():
    known = {claim.id for claim in LEDGER.claims}
    assert set(PROMISED) <= known
    assert len(known) >= 50
    assert {claim.kind for claim in LEDGER.claims} == set(KINDS)


def test_every_check_decides_some_claim():
    used = {claim.check for claim in LEDGER.claims}
    defined = {
        f"{path.stem}.{name}"
        for path in CHECKS.glob("[!_]*.py")
        for name in re.findall(r"^def ([a-z]\w*)\(\s*setting", path.read_text(), re.MULTILINE)
    }
    assert defined == used


def does_not_exist(command):
    words = command.split()
    if words[0] == "loca-theory":
        return words[1] not in group.list_commands(click.Context(group))
    module = ROOT / f"{words[2].replace('.', '/')}.py"
    return words[:2] != ["python", "-m"] or not module.is_file()


def test_every_command_and_every_figure_exists():
    commands = {one for claim in LEDGER.claims for one in claim.command.split(" && ")}
    assert [command for command in commands if does_not_exist(command)] == []
    assert {claim.figure for claim in LEDGER.claims} <= {"", *FIGURES}


def test_claims_are_consistent():
    """What is not refused when a ledger is read, but promised of this one."""
    refused = [claim for claim in LEDGER.claims if claim.expected_verdict is Verdict.NOT_SUPPORTED]
    assert [claim.id for claim in refused if not claim.note] == [], "a reader wants to know why"
    others = {claim.id for claim in LEDGER.claims if claim not in refused}
    for erratum in (claim for claim in LEDGER.claims if claim.erratum):
        assert any(other in erratum.note for other in others), (
            f"{erratum.id} does not name what is meant"
        )


def test_every_check_has_its_documentation_and_takes_its_arguments():
    for claim in LEDGER.claims:
        assert claim.function().__doc__, claim.check


def test_every_rule_has_its_history():
    """The reader compares its last entry with the rule: no rule changes without an entry."""
    assert [claim.id for claim in LEDGER.claims if not claim.rule_changes] == []


def test_statements_on_other_models_are_counted_apart():
    for claim in LEDGER.claims:
        if claim.subject != PACKAGE:
            assert (claim.subject == OTHER_MODEL) == (claim.kind == EMPIRICAL), claim.id


def test_a_family_is_found_by_its_name():
    found = [claim.id for claim in LEDGER.find(["parseval."])]
    assert found == ["parseval.factor", "parseval.factor-unnormalised", "parseval.unitary"]
    assert LEDGER.find([]) == list(LEDGER.claims)


def test_an_unknown_claim_is_refused_with_the_nearest():
    with pytest.raises(InvalidArgumentError, match=r"unknown claim 'theorem1\.ordr'; nearest: "
                       r"theorem1\.order"):  # fmt: skip
        LEDGER.find(["theorem1.ordr"])
    with pytest.raises(InvalidArgumentError, match=r"'theorem1'; write theorem1\. with a dot "
                       r"for its \d+ claims"):  # fmt: skip
        LEDGER.find(["theorem1"])
    with pytest.raises(InvalidArgumentError, match=r"'gradiant\.'; nearest: gradient\."):
        LEDGER.find(["gradiant."])
    with pytest.raises(InvalidArgumentError, match=r"'zzzzzzzzzz'; `loca-theory verify --list`"):
        LEDGER.find(["zzzzzzzzzz"])


ARGUMENTS = '{ factor = "1", transform = "unitary" }'
GOOD = """
[[claim]]
id = "first"
passage = "here"
statement = "It holds."
kind = "identity"
check = "fourier.parseval"
arguments = { factor = "1", transform = "unitary" }
expected = "0"
rule = { low = 0 }
expected_verdict = "supported"
"""
SECOND = GOOD.replace('"first"', '"second"')


def checked_by(check):
    return GOOD.replace("fourier.parseval", check)


def ruled(rule):
    return GOOD.replace("low = 0", rule)


DIGEST = Rule("inside", low=(0.0,), high=(np.inf,)).digest
# Hash of the id, the check and the arguments of GOOD.
DEFINITION = "d8b88e8aff54d70b"
FIRST = f'{{ date = 2026-11-02, digest = "{DIGEST}", definition = "{DEFINITION}" }}'
CHANGE = FIRST.replace("-02", "-03").replace(" }", ', why = "Tighter.", before = "any" }')
PART = """[[section]]
title = "One"
claims = ["first"]
"""
BAD = {
    "no TOML": (GOOD + "x = = 1", r"is not TOML: .*line 12"),
    "no claims": ("", r"line 1: a ledger needs a table \[\[claim\]\]"),
    "an empty list": ("claim = []", r"line 1: a ledger needs a table \[\[claim\]\]"),
    "claims that are no tables": ("claim = 3", r"line 1: a ledger needs a table \[\[claim\]\]"),
    "another table": (GOOD + "[extra]\na = 1", r"unknown table 'extra'"),
    "unknown field": (GOOD + 'oops = "x"', r"line 12: unknown field 'oops'; known are "),
    "field missing": (GOOD.replace('passage = "here"\n', ""), r"line 2: a claim needs 'passage'"),
    "in the second": (GOOD + SECOND.replace('kind = "identity"', "kind = 3"),
                      r"line 17: 'kind' must be a text"),
    "empty text": (GOOD.replace('"It holds."', '" "'), r"line 5: 'statement' must be a text"),
    "unknown kind": (GOOD.replace('"identity"', '"guess"'), r"line 6: unknown kind 'guess'; "),
    "unknown verdict": (GOOD.replace('"supported"', '"true"'), r"line 11: unknown verdict 'true'"),
    "no id": (GOOD.replace('"first"', '"First one"'), r"line 3: 'First one' is not an id"),
    "twice": (GOOD + GOOD, r"line 14: the id 'first' is used twice"),
    "check elsewhere": (GOOD.replace('"fourier.parseval"', '"os.path.join"'),
                        r"line 7: check 'os\.path\.join' is not of the form module\.function"),
    "no rule": (GOOD.replace("rule = { low = 0 }\n", ""), r"line 2: a claim needs a table 'rule'"),
    "empty rule": (GOOD.replace("{ low = 0 }", "{ }"), r"line 10: a rule needs low or high"),
    "a design and a bound": (GOOD.replace("{ low = 0 }", "{ designed = true, low = 0 }"),
                             r"line 10: a rule with 'designed' needs designed = true alone"),
    "two rules": (GOOD.replace("{ low = 0 }", "{ low = 0, value = 1 }"),
                  r"line 10: a rule with 'value' needs value and precision"),
    "printed without unit": (ruled("printed = 3.5"),
                             r"line 10: a rule with 'printed' needs printed and unit alone, "),
    "negative unit": (ruled("printed = 3.5, unit = -1"), r"line 10: 'unit' must be a finite numb"),
    "an alternative in a word": (GOOD + 'refuted_by = "noise"',
                                 r"line 12: 'refuted_by' must be a table with a 'statement'"),
    "an alternative without change": (GOOD + 'refuted_by = { statement = "Noise." }',
                                      r"line 12: 'refuted_by' needs 'arguments' that differ"),
    "an unknown field of it": (GOOD + 'refuted_by = { statement = "Noise.", law = "t" }',
                               r"line 12: unknown field 'law' of 'refuted_by'; known are stateme"),
    "a field of another type": (GOOD + 'refuted_by = { statement = "Noise.", arguments = 3 }',
                                r"line 12: 'arguments' of 'refuted_by' must be a table"),
    "an unknown tier of it": (GOOD + 'refuted_by = { statement = "A.", table = "b", tier = "c" }',
                              r"line 12: unknown tier 'c' of 'refuted_by'; choose from quick, "),
    "runs without a design": (GOOD + 'refuted_by = { statement = "Worse.", difference = -1 }',
                              r"line 12: 'refuted_by' needs a number 'difference' if, and only if"),
    "a rule without its entry": (GOOD + f"rule_changes = [{FIRST}]".replace(DIGEST, "00000000"),
                                 rf"line 12: the rule, the check or .*{DIGEST}.*{DEFINITION}"),
    "a check without its entry": (GOOD + f"rule_changes = [{FIRST}]".replace(DEFINITION, "0000"),
                                  r"line 12: the rule, the check or its arguments are not those"),
    "arguments without their entry": (
        GOOD.replace('"1"', '"2"') + f"rule_changes = [{FIRST}]",
        r"line 12: the rule, the check or its arguments are not those"),
    "no entry": (GOOD + "rule_changes = []", r"line 12: the rule, the check or its argumen"),
    "a change without a reason": (GOOD + f"rule_changes = [{FIRST}, {FIRST}]",
                                  r"line 12: an entry of 'rule_changes' for a change needs before"),
    "an empty reason": (GOOD + f"rule_changes = [{FIRST}, {CHANGE}]".replace("Tighter.", " "),
                        r"line 12: the entries of 'rule_changes' must be in order, and each"),
    "changes out of order": (GOOD + f"rule_changes = [{FIRST}, {CHANGE}]".replace("-03", "-01"),
                             r"line 12: the entries of 'rule_changes' must be in order"),
    "a day in words": (GOOD + f"rule_changes = [{FIRST}]".replace("2026-11-02", '"today"'),
                       r"line 12: an entry of 'rule_changes' needs a day and texts"),
    "reversed": (GOOD.replace("{ low = 0 }", "{ low = 2, high = [3, 1] }"),
                 r"line 10: 'low' lies above 'high'"),
    "no numbers": (GOOD.replace("{ low = 0 }", '{ low = "a" }'), r"line 10: the bounds of a rule"),
    "not a number": (ruled("low = nan"), r"line 10: the bounds of a rule"),
    "negative precision": (GOOD.replace("{ low = 0 }", "{ value = 0, precision = -1 }"),
                           r"line 10: 'precision' must be"),
    "comparisons": (GOOD + "comparisons = -1", r"line 12: 'comparisons' must be a whole number"),
    "cost": (GOOD + "cost = 0", r"line 12: 'cost' must be a positive number"),
    "assumptions": (GOOD + 'added = "one"', r"line 12: 'added' must be a list of texts"),
    "erratum": (GOOD + "erratum = true", r"line 12: the expected verdict of an erratum"),
    "erratum of another type": (GOOD + "erratum = 1", r"line 12: 'erratum' must be true or false"),
    "subject": (GOOD + 'subject = "us"',
                r"line 12: unknown subject 'us'; choose from paper, another model, "),
    "undecided": (GOOD + 'undecided = ["slow"]',
                  r"line 12: unknown tier 'slow'; choose from quick, "),
    "section without title": (GOOD + "[[section]]\nclaims = []",
                              r"line 12: a section needs a 'title'"),
    "section without claims": (GOOD + PART.replace('["first"]', '"first"'),
                            r"line 14: a section needs 'claims', a list"),
    "part with a stranger": (GOOD + PART.replace('"first"', '"first", "firs."'),
                             r"line 14: no claim is named 'firs\.'"),
    "field of a part": (GOOD + PART + "id = 1", r"line 15: unknown field 'id' of a section"),
    "parts that are no tables": ("section = 3\n" + GOOD,
                                 r"line 1: 'section' must be a list of tables"),
    "in two parts": (GOOD + PART + PART.replace("One", "Two"),
                     r"line 17: 'first' is already in the section 'One'"),
    "in no part": (GOOD + PART + SECOND, r"line 17: 'second' is not in any \[\[section\]\]"),
    "arguments": (GOOD.replace(ARGUMENTS, "3"), r"line 8: 'arguments' must be a table"),
    "an argument that is not a data": (GOOD.replace('"1"', "1979-05-27"),
                                    r"line 8: 'arguments' may hold only finite numbers, texts"),
    "an argument that is not a number": (GOOD.replace('"1"', "nan"),
                                      r"line 8: 'arguments' may hold only finite numbers, texts"),
    "lists of two lengths": (ruled("low = [0, 1, 2], high = [3, 4]"),
                             r"line 10: 'low' has 3 bounds, but 'high' has 2; give one"),
    "a bound that is none": (ruled("low = inf"), r"line 10: no finite number satisfies this bound"),
    "no bound at all": (ruled("low = -inf"), r"line 10: a rule without any bound cannot fail"),
    "one part without a bound": (ruled("low = [0, -inf]"), r"line 10: a rule without any bound"),
    "infinite value": (ruled("value = inf, precision = 1"), r"line 10: 'value' must be finite"),
    "infinite precision": (ruled("value = 0, precision = inf"), r"line 10: 'precision' must be a"),
    "empty command": (GOOD + 'command = " "', r"line 12: 'command' is empty"),
    "empirical without tables": (GOOD.replace('"identity"', '"empirical"'),
                                 r"line 6: an empirical claim needs 'tables'"),
    "tables of another kind": (GOOD + 'tables = ["x"]', r"line 12: only an empirical claim has"),
    "Monte Carlo without comparisons": (GOOD.replace('"identity"', '"Monte Carlo"'),
                                        r"line 6: a Monte Carlo claim needs 'comparisons'"),
    "comparisons of an identity": (GOOD + "comparisons = 1",
                                   r"line 12: a claim of kind 'identity'"),
    "support that assumes": (GOOD + 'added = ["K is 4"]', r"line 11: with 'added', it must be"),
    "assumptions that are none": (GOOD.replace('"supported"', '"supported under assumptions"'),
                                  r"line 11: 'supported under assumptions' needs 'added'"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_nonsense_is_refused_with_its_line(tmp_path, text, message):
    path = tmp_path / "claims.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(LedgerError, match=message) as error:
        load_ledger(path)
    assert "\n" not in str(error.value)


def test_a_good_one_is_read(tmp_path):
    path = tmp_path / "claims.toml"
    path.write_text(GOOD + SECOND, encoding="utf-8")
    assert [claim.id for claim in load_ledger(path).claims] == ["first", "second"]


def test_line_ends_of_windows_make_no_difference(tmp_path):
    path = tmp_path / "claims.toml"
    path.write_bytes((GOOD + SECOND).encode())
    plain = load_ledger(path)
    path.write_bytes((GOOD + SECOND).replace("\n", "\r\n").encode())
    assert load_ledger(path) == plain
    path.write_bytes((GOOD + "comparisons = 1").replace("\n", "\r\n").encode())
    with pytest.raises(LedgerError, match="line 12: a claim of kind 'identity'"):
        load_ledger(path)


def test_history_alternative_and_printed_numbers_are_read(tmp_path):
    path = tmp_path / "claims.toml"
    rule = ruled("printed = [3.5, 12], unit = 0.1")
    digest = Rule("inside", low=(3.45, 11.95), high=(3.55, 12.05)).digest
    entries = f"{FIRST}, {CHANGE.replace(DIGEST, digest)}"
    alternative = '{ statement = "Noise.", arguments = { factor = "1/K" }, tier = "default" }'
    text = f"{rule}rule_changes = [{entries}]\nrefuted_by = {alternative}\n"
    path.write_text(text, encoding="utf-8")
    (claim,) = load_ledger(path).claims
    assert (claim.rule.low, claim.rule.high) == ((3.45, 11.95), (3.55, 12.05))
    assert [one.why for one in claim.rule_changes] == ["", "Tighter."]
    assert claim.refuted_by
    assert claim.refuted_by.arguments == {"factor": "1/K"}
    assert claim.refuted_by.tier is Tier.DEFAULT


def test_parts_and_marks_are_read(tmp_path):
    path = tmp_path / "claims.toml"
    erratum = 'erratum = true\nsubject = "package"\nundecided = ["quick"]\n'
    text = GOOD.replace('"supported"', '"not supported"') + erratum
    path.write_text(text.replace('"first"', '"first.a"') + PART.replace("first", "first."), "utf-8")
    (claim,) = load_ledger(path).claims
    assert (claim.erratum, claim.subject, claim.undecided) == (True, "package", (Tier.QUICK,))
    assert claim.section == Section("One", "here")


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path):
    with pytest.raises(LedgerError, match=r"cannot read the ledger .*: No such file"):
        load_ledger(tmp_path / "none.toml")
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LedgerError, match="cannot read the ledger"):
        load_ledger(path)


NOT_RUN = {
    "no such check": (checked_by("fourier.nothing"), r"there is no check 'fourier\.nothing' in "),
    "no such module of checks": (checked_by("furrier.parseval"),
                                 r"there is no check 'furrier\.parseval'"),
    "a helper as check": (checked_by("fourier._parts"), r"there is no check 'fourier\._parts'"),
    "an import as check": (checked_by("fourier.HalfSpectrum"),
                           r"there is no check 'fourier\.HalfSpectrum'"),
    "misspelt argument": (GOOD.replace("{ factor", "{ fcator"),
                          r"the check fourier\.parseval does not take these arguments: .*'factor'"),
    "argument missing": (GOOD.replace(ARGUMENTS, "{ }"), r".*argument: 'factor'"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), NOT_RUN.values(), ids=NOT_RUN.keys())
def test_a_check_that_cannot_be_called_is_refused_before_anything_is_measured(
    tmp_path, monkeypatch, text, message
):
    path = tmp_path / "claims.toml"
    good = GOOD.replace('"first"', '"good"') + "cost = 9\n"
    path.write_text(good + text, encoding="utf-8")
    monkeypatch.setattr(Claim, "measure", lambda *given: pytest.fail("measured"))
    with pytest.raises(LedgerError, match=rf"claims\.toml, line 14: claim 'first': {message}"):
        verify(ledger=path, tier="quick")


def test_a_module_of_checks_that_lacks_a_library_says_so(monkeypatch):
    """It is there; what it imports is not."""

    def lacking(name):
        raise ModuleNotFoundError("No module named 'pandas'", name="pandas")  # noqa: EM101

    monkeypatch.setattr("loca_theory.claims.ledger.import_module", lacking)
    with pytest.raises(ModuleNotFoundError, match="pandas"):
        LEDGER.claims[0].function()


def failing(setting, **arguments):
    msg = "3 is not a text"
    raise TypeError(msg)


def refusing(setting, **arguments):
    msg = "3 is not a size"
    raise InvalidArgumentError(msg)


def two_exact(setting, **arguments):
    return Measurement.of((Estimate("a", 0.0), Estimate("b", 0.0)))


def two_random(setting, **arguments):
    return Measurement.of((Estimate("a", 0.0, 0.1, 9), Estimate("b", 0.0)))


@pytest.mark.parametrize(
    ("check", "rule", "message"),
    [
        (refusing, "low = 0", "the check fourier.parseval raised an error: 3 is not a size"),
        (two_exact, "low = [0, 1, 2]", "its rule has bounds for 3 estimates, but the check made 2"),
        (two_random, "low = 0", "'comparisons' is 0, but the number of random estimates is 1"),
    ],
    ids=["a refusal", "bounds for others", "more comparisons"],
)
def test_what_only_shows_in_the_run_names_its_line(tmp_path, monkeypatch, check, rule, message):
    path = tmp_path / "claims.toml"
    path.write_text(ruled(rule), encoding="utf-8")
    (claim,) = load_ledger(path).claims
    monkeypatch.setattr("loca_theory.claims.checks.fourier.parseval", check)
    with pytest.raises(LedgerError, match=rf"claims\.toml, line 2: claim 'first': {message}"):
        claim.measure(Setting(Tier.QUICK, np.random.default_rng(0)))


def test_a_mistake_in_a_check_is_raised_as_what_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("loca_theory.claims.checks.fourier.parseval", failing)
    path = tmp_path / "claims.toml"
    path.write_text(GOOD, encoding="utf-8")
    with pytest.raises(TypeError, match="3 is not a text") as error:
        load_ledger(path).claims[0].measure(Setting(Tier.QUICK, np.random.default_rng(0)))
    assert error.value.__notes__ == ["claim 'first': the check fourier.parseval raised TypeError"]


def test_claims_are_grouped_by_section():
    claim = LEDGER.claims[0]
    a, b, c = (replace(claim, id=name, section=Section(name[0], "")) for name in ("x1", "y", "x2"))
    assert by_section([a, b, c]) == {"x": [a, c], "y": [b]}
