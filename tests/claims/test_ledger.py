"""The ledger that is shipped: whole, importable, consistent; and what is refused as none."""

import re
from dataclasses import replace
from inspect import Parameter, getmembers, isfunction, signature
from pathlib import Path
from pkgutil import iter_modules

import click
import numpy as np
import pytest

import loca_theory
from loca_theory.claims import Claim, Estimate, checks, load_ledger, verify
from loca_theory.claims.claim import EMPIRICAL, OTHER_MODEL, PACKAGE, LedgerError
from loca_theory.claims.estimates import Tier
from loca_theory.claims.ledger import by_section
from loca_theory.claims.role import Role
from loca_theory.claims.rules import Verdict
from loca_theory.cli.main import group
from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting import FIGURES

LEDGER = load_ledger()
ROOT = Path(loca_theory.__file__).parents[1]


def test_every_check_decides_some_claim_and_has_its_documentation():
    used = {claim.check for claim in LEDGER.claims}
    defined = set()
    for module in iter_modules(checks.__path__):
        loaded = __import__(f"{checks.__name__}.{module.name}", fromlist=["_"])
        for name, check in getmembers(loaded, isfunction):
            kinds = {taken.kind for taken in signature(check).parameters.values()}
            is_mine = check.__module__ == loaded.__name__ and name[0] != "_"
            if is_mine and kinds == {Parameter.KEYWORD_ONLY}:
                defined.add(f"{module.name}.{name}")
                assert check.__doc__, name
    assert defined == used
    for claim in LEDGER.claims:
        claim.function()
        letters = re.findall(r"\b(?:F[123]|M[12]|V1|methods? [A-Z])\b", claim.quantity)
        assert not letters, f"{claim.id}: the quantity is printed, and names methods by letters"


def does_not_exist(command):
    words = command.split()
    if words[0] == "loca-theory":
        return words[1] not in group.list_commands(click.Context(group))
    path = words[2].replace(".", "/")
    is_there = (ROOT / f"{path}.py").is_file() or (ROOT / path / "__main__.py").is_file()
    return words[:2] != ["python", "-m"] or not is_there


def test_every_command_and_every_figure_exists():
    commands = {command for claim in LEDGER.claims for command in claim.command.split(" && ")}
    assert [command for command in commands if does_not_exist(command)] == []
    assert {claim.figure for claim in LEDGER.claims} <= {"", *FIGURES}


def test_claims_are_consistent():
    """Promises of this ledger that the reader of ledgers does not check."""
    refused = [claim for claim in LEDGER.claims if claim.expected_verdict is Verdict.NOT_SUPPORTED]
    assert [claim.id for claim in refused if not claim.note] == [], "a reader wants to know why"
    other_ids = {claim.id for claim in LEDGER.claims if claim not in refused}
    for erratum in (claim for claim in LEDGER.claims if claim.role is Role.ERRATUM):
        assert any(other in erratum.note for other in other_ids), f"{erratum.id}: what is meant?"
    for claim in LEDGER.claims:
        is_doubtful = claim.role is Role.DOUBTFUL
        assert bool(claim.headline) == (claim.question in LEDGER.questions) == is_doubtful, claim.id
        assert len(claim.headline) <= 70, f"{claim.id}: a headline is one line"
        assert claim.rule_changes, claim.id
        assert claim.section, claim.id
        if claim.subject != PACKAGE:
            assert (claim.subject == OTHER_MODEL) == (claim.kind == EMPIRICAL), claim.id


def ids(*names):
    return [claim.id for claim in LEDGER.find(names)]


def test_claims_are_found_by_name_and_family_and_grouped_by_section():
    names = ["parseval.factor", "parseval.factor-unnormalised", "parseval.unitary"]
    assert ids("parseval.") == ids("parseval") == names
    assert (ids("condition-u"), ids("condition-u.")) == (["condition-u"], ["condition-u.one-based"])
    theorem = [claim.id for claim in LEDGER.claims if claim.section == "Theorem 2"]
    assert ids("theorem 2") == theorem
    assert {claim.section for claim in LEDGER.find(["Section 4"])} == {"Section 4: the method"}
    assert LEDGER.find([]) == list(LEDGER.claims)
    renamed = zip(LEDGER.find(["parseval"]), "xyx", strict=True)
    a, b, c = (replace(claim, section=name) for claim, name in renamed)
    assert by_section([a, b, c]) == {"x": [a, c], "y": [b]}


def test_unknown_claims_are_refused_with_the_nearest():
    message = r"^unknown claims 'theorem1\.ordr' \(did you mean theorem1\.order .*\), 'gradiant\.' "
    message += r"\(did you mean gradient.*\), 'zzzzzzzzzz', ''; "
    message += r"loca_theory\.claims\.load_ledger\(\) has all$"
    with pytest.raises(InvalidArgumentError, match=message):
        LEDGER.find(["theorem1.ordr", "theorem1.order", "gradiant.", "zzzzzzzzzz", ""])


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
FIRST = "{ date = 2026-11-02 }"
CHANGE = '{ date = 2026-11-03, why = "Tighter.", before = "any" }'
PART = '[[section]]\ntitle = "One"\n' + GOOD.replace("[[claim]]", "[[section.claim]]")


def but(old, new):
    assert old in GOOD
    return GOOD.replace(old, new)


def ruled(rule):
    return but("low = 0", rule)


def changed(*entries):
    return GOOD + f"rule_changes = [{', '.join(entries)}]"


ONE_FORM = "a rule needs low or high or both, or value and precision, or printed and unit, or desig"
# Each after the name of the file.
BAD = {
    "no TOML": (GOOD + "x = = 1", r"is not TOML: .*line 12"),
    "no claims": ("", r"is not a ledger: it has no claims"),
    "another table": (GOOD + "[extra]\na = 1", r"is not a ledger: extra: Unexpected keyword"),
    "unknown field": (GOOD + 'oops = "x"', r"is not a ledger: claim 'first': oops: Unexpected key"),
    "no id": (but('id = "first"\n', ""), r"claim 1: id: Field required"),
    "another id": (but('"first"', '"First one"'), r"claim 'First one': id: String should match"),
    "empty text": (but('"It holds."', '" "'), r"claim 'first': statement: String should match"),
    "twice": (GOOD + GOOD, r"the id 'first' is used twice"),
    "check elsewhere": (but("fourier.parseval", "os.path.join"), r"check: String should match"),
    "empty rule": (ruled(""), rf"claim 'first': rule: {ONE_FORM}"),
    "two rules": (ruled("low = 0, value = 1"), rf"{ONE_FORM}.*not low, value$"),
    "negative unit": (ruled("printed = 3.5, unit = -1"), r"rule: unit: Input should be greater"),
    "not a number": (ruled("low = nan"), r"rule: low: 0: Input should be greater than"),
    "infinite value": (ruled("value = inf, precision = 1"), r"value: 0: Input should be a finite"),
    "reversed": (ruled("low = 2, high = [3, 1]"), r"rule: 'low' lies above 'high'"),
    "lists of two lengths": (
        ruled("low = [0, 1, 2], high = [3, 4]"),
        r"rule: 'low' has 3 bounds, but 'high' has 2; give one",
    ),
    "a bound that is none": (ruled("low = inf"), r"rule: no finite number satisfies this bound"),
    "one part without a bound": (ruled("low = [0, -inf]"), r"a rule without any bound cannot fail"),
    "an alternative without change": (
        GOOD + 'refuted_by = { statement = "Noise." }',
        r"claim 'first': 'refuted_by' needs 'arguments' that differ",
    ),
    "a change without a reason": (changed(FIRST, FIRST), r"'rule_changes' must be in order, and"),
    "changes out of order": (changed(FIRST, CHANGE.replace("-03", "-01")), r"must be in order"),
    "comparisons": (GOOD + "comparisons = -1", r"comparisons: Input should be greater than or"),
    "erratum": (GOOD + 'role = "erratum"', r"the expected verdict of an erratum must be 'not sup"),
    "a lemma that leads": (GOOD + 'role = "lemma"\nheadline = "It"', r"only a doubtful claim has"),
    "unknown question": (GOOD + 'question = "size"', r"claim 'first': its question is not among"),
    "undecided": (GOOD + 'undecided = ["slow"]', r"undecided: 0: Input should be 'quick', 'def"),
    "a fault in a section": (PART.replace("low = 0", ""), rf"claim 'first': rule: {ONE_FORM}"),
    "a section without claims": (GOOD + '[[section]]\ntitle = "One"', r"section 'One': claim: Fie"),
    "twice, once in a section": (GOOD + PART, r"the id 'first' is used twice"),
    "an argument that is not a data": (but('"1"', "1979-05-27"), r"arguments: factor: "),
    "an argument that is not a number": (but('"1"', "nan"), r"factor: float: Input should be a f"),
    "empirical without tables": (but('"identity"', '"empirical"'), r"an empirical claim, and"),
    "tables of another kind": (GOOD + 'tables = ["x"]', r"an empirical claim, and no other, has"),
    "Monte Carlo without comparisons": (but('"identity"', '"Monte Carlo"'), r"needs 'comparisons'"),
    "comparisons of an identity": (GOOD + "comparisons = 1", r"claim of kind 'identity' has no"),
    "support that assumes": (GOOD + 'added = ["K is 4"]', r"with 'added', 'expected_verdict' must"),
    "assumptions that are none": (
        but('"supported"', '"supported under assumptions"'),
        r"'supported under assumptions' needs 'added'",
    ),
}


def read(folder, text):
    path = folder / "claims.toml"
    path.write_text(text, encoding="utf-8")
    return load_ledger(path)


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_nonsense_is_refused_in_a_line_that_names_the_claim(tmp_path, text, message):
    with pytest.raises(LedgerError, match=message) as error:
        read(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path / 'claims.toml'} is not ")
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path):
    with pytest.raises(LedgerError, match=r"cannot read the ledger .*none\.toml: No such file"):
        load_ledger(tmp_path / "none.toml")
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LedgerError, match=r"binary\.toml is not a ledger: .* can't decode"):
        load_ledger(path)


NOT_RUN = {
    "no such check": (but("fourier.parseval", "fourier.nothing"), "there is no check 'fourier.not"),
    "no such module": (but("fourier.", "furrier."), "there is no check 'furrier.parseval' in "),
    "a helper as check": (but(".parseval", "._parts"), "there is no check 'fourier._parts' in "),
    "another function": (but(".parseval", ".maps"), "there is no check 'fourier.maps' in "),
    "misspelt argument": (
        but("{ factor", "{ fcator"),
        "the check fourier.parseval does not take these arguments: ",
    ),
}


@pytest.mark.parametrize(("text", "message"), NOT_RUN.values(), ids=NOT_RUN.keys())
def test_a_check_that_cannot_be_called_is_refused_before_anything_is_measured(
    tmp_path, monkeypatch, text, message
):
    monkeypatch.setattr(Claim, "measure", lambda *arguments: pytest.fail("measured"))
    ledger = read(tmp_path, but('"first"', '"good"') + "cost = 9\n" + text)
    with pytest.raises(LedgerError, match=re.escape(f"claim 'first': {message}")):
        verify(ledger=ledger, tier="quick")


def raising(error):
    def check(*, rng, factor, transform):
        raise error

    return check


def returning(returned):
    return lambda *, tier, factor, transform: returned


@pytest.mark.parametrize(
    ("check", "rule", "message"),
    [
        (
            raising(InvalidArgumentError("3 is not a size")),
            "low = 0",
            "the check fourier.parseval raised an error: 3 is not a size",
        ),
        (
            returning({"a": 0, "b": 0}),
            "low = [0, 1, 2]",
            "its rule has bounds for 3 estimates, but the check made 2",
        ),
        (
            returning({"a": Estimate(0.0, 0.1, 9), "b": 0}),
            "low = 0",
            "'comparisons' is 0, but the number of random estimates is 1",
        ),
    ],
    ids=["a refusal", "bounds for others", "more comparisons"],
)
def test_what_only_shows_in_the_run_names_the_claim(tmp_path, monkeypatch, check, rule, message):
    (claim,) = read(tmp_path, ruled(rule)).claims
    monkeypatch.setattr("loca_theory.claims.checks.fourier.parseval", check)
    with pytest.raises(LedgerError, match=f"claim 'first': {message}"):
        claim.measure(Tier.QUICK, np.random.default_rng(0))
