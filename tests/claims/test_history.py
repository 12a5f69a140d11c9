"""No rule, check or argument changes silently: git's history of the ledger shows it."""

import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

import loca_theory

ROOT = Path(loca_theory.__file__).parents[1]
FILE = "loca_theory/claims/claims.toml"
DROPPED = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")
PRESENT = (ROOT / FILE).read_text(encoding="utf-8")


# Checks of another name now.
RENAMED = {
    "theory_order.small_sizes": "small_cases",
    "empirical.picture_normality": "normality",
    "fine_tuned.picture_normality": "normality",
    "published.deviation_error": "unevenness_error",
}


def git(*words):
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
    return done.stdout.decode() if done.returncode == 0 else ""


def versions():
    """The ledger, newest first, as it was after each commit that changed it.

    Digests, which are gone, guarded it before; checks had other names then.
    """
    if Path(git("rev-parse", "--show-toplevel").strip()) != ROOT:
        return []
    of_main = ("log", "--first-parent", "--since=2026-11-24", "--format=%H", "--", FILE)
    commits = git(*of_main).split()
    return [PRESENT, *(git("show", f"{commit}:{FILE}") for commit in commits)]


def listed(text):
    """The claims of a ledger, under headings or, in older ones, beside them."""
    document = tomllib.loads(text)
    under = [claim for section in document.get("section", ()) for claim in section.get("claim", ())]
    return [*document.get("claim", ()), *under]


def history(claim):
    entries = claim.get("rule_changes", [])
    return [{key: entry.get(key) for key in ("date", "why", "before")} for entry in entries]


def judged(claim):
    """The module of a check does not count: checks have moved as they were."""
    check = RENAMED.get(claim["check"], claim["check"].partition(".")[2])
    return [claim["rule"], check, claim.get("arguments")]


def faults(new, old):
    """What changed between two versions of the ledger without an entry that says so."""
    claims = {claim["id"]: claim for claim in listed(new)}
    for before in listed(old):
        name, entries = before["id"], history(before)
        after = claims.get(name)
        if after is None:
            if f"`{name}`" not in DROPPED:
                yield f"{name} is neither a claim nor listed in docs/ledger.md"
        elif history(after)[: len(entries)] != entries:
            yield f"{name}: an entry of 'rule_changes' was changed or removed"
        elif judged(after) != judged(before) and len(history(after)) == len(entries):
            yield f"{name}: its rule, check or arguments changed without an entry"


def test_every_change_of_a_rule_has_its_entry():
    texts = versions()
    if not texts:
        pytest.skip("needs a clone with its history")
    missing = [fault for new, old in pairwise(texts) for fault in faults(new, old)]
    assert missing == []


TEXT = """
[[claim]]
id = "condition-u"
check = "fourier.condition_u"
rule = { low = 0 }
rule_changes = [{ date = 2026-11-02 }]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "", None),
        ("low = 0", "low = 1", "changed without an entry"),
        ("condition_u", "parseval", "changed without an entry"),
        ("2026-11-02", "2026-11-03", "was changed or removed"),
        ("condition-u", "condition-v", "neither a claim nor listed"),
    ],
)
def test_what_is_overwritten_or_dropped_is_found(old, new, message):
    changed = TEXT.replace(old, new) if old else TEXT
    versions = (TEXT, changed) if new == "condition-v" else (changed, TEXT)
    missing = list(faults(*versions))
    assert (len(missing) == 1 and message in missing[0]) if message else missing == []
