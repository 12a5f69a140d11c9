"""No version of the ledger in git's history is contradicted by the present one."""

import subprocess
import tomllib
from pathlib import Path

import pytest

import loca_theory
from loca_theory.claims import load_ledger

ROOT = Path(loca_theory.__file__).parents[1]
FILE = "loca_theory/claims/claims.toml"
DROPPED = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")
PRESENT = {
    claim.id: [
        {"date": one.date, "digest": one.digest, "definition": one.definition,
         "why": one.why, "before": one.before}
        for one in claim.rule_changes
    ]
    for claim in load_ledger().claims
}  # fmt: skip


def git(*words):
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
    return done.stdout.decode() if done.returncode == 0 else ""


def versions():
    """The commits of the ledger, newest first; none if this is not a clone with a history."""
    if Path(git("rev-parse", "--show-toplevel").strip()) != ROOT:
        return []
    return git("log", "--full-history", "--format=%H", "--", FILE).split()


def lost(text):
    """What the present ledger has lost of the history that a version of the ledger gives."""
    for claim in tomllib.loads(text)["claim"]:
        entries = claim.get("rule_changes", [])
        # Since entries have a definition, none may change and no claim may vanish unlisted.
        if not entries or "definition" not in entries[-1]:
            continue
        if claim["id"] not in PRESENT:
            if f"`{claim['id']}`" not in DROPPED:
                yield f"{claim['id']} is neither a claim nor listed in docs/ledger.md"
            continue
        now = PRESENT[claim["id"]][: len(entries)]
        if [{key: one.get(key) for key in each} for each, one in zip(entries, now)] != entries:  # noqa: B905
            yield f"{claim['id']}: an entry of 'rule_changes' was changed or removed"


@pytest.mark.parametrize("latest", [2, pytest.param(None, marks=pytest.mark.deep)])
def test_entries_of_rule_changes_are_only_appended(latest):
    """A rule, check or argument cannot change silently: the commit before would show it."""
    commits = versions()
    if not commits:
        pytest.skip("needs a clone with its history")
    found = {commit: list(lost(git("show", f"{commit}:{FILE}"))) for commit in commits[:latest]}
    assert {commit: each for commit, each in found.items() if each} == {}


TEXT = """
[[claim]]
id = "condition-u"
rule_changes = [{changes}]
"""


@pytest.mark.parametrize(
    ("name", "field", "value", "message"),
    [
        ("condition-u", "digest", None, None),
        ("condition-u", "digest", "00000000", "was changed or removed"),
        ("condition-u", "definition", "0" * 16, "was changed or removed"),
        ("condition-v", "digest", None, "neither a claim nor listed"),
    ],
)
def test_what_is_overwritten_or_dropped_is_found(name, field, value, message):
    first = {key: one for key, one in PRESENT["condition-u"][0].items() if one}
    first |= {} if value is None else {field: value}
    rest = "".join(f', {key} = "{one}"' for key, one in first.items() if key != "date")
    text = TEXT.format(changes=f"{{ date = {first['date']}{rest} }}")
    found = list(lost(text.replace("condition-u", name)))
    assert (len(found) == 1 and message in found[0]) if message else found == []
