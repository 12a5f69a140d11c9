"""CLAIMS.md and claims.json: what was decided, kept from run to run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loca_theory.claims.ledger import Ledger
from loca_theory.claims.measurement import Effort, Measurement
from loca_theory.claims.rules import FAMILY_WISE, Verdict
from loca_theory.claims.verification import Entry, definition, renewed
from loca_theory.errors import ResourceError
from loca_theory.sweeps import write_atomically
from loca_theory.sweeps.files import writable_folder

_NAMES = ("claims.json", "CLAIMS.md")
# What an entry cannot be renewed without.
_KEPT = ("id", "definition", "parts", "remark", "seconds", "effort", "seed", "version")
_PREFACE = """\
Written by `loca-theory verify`. Each statement is the paper's, in our words; where the paper can be
read in several ways, each reading is a claim of its own. The verdict follows from the observed
number and its error by a rule that was fixed before."""


def counts(entries: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many claims have each verdict."""
    found = Counter(one["verdict"] for one in entries)
    return {verdict.value: found[verdict.value] for verdict in Verdict}


def merged(old: Sequence[Entry], new: Sequence[Entry], ledger: Ledger) -> list[Entry]:
    """Earlier and new entries together, in the order of the ledger.

    A new entry takes the place of an old one unless the old one was observed with more effort, or
    was run where the new one was not. An old entry whose claim is no longer in the ledger, or has
    another check or arguments by now, is dropped; of the others the observation is kept, and judged
    by the rule that holds now.
    """
    current = {claim.id: claim for claim in ledger.claims}
    kept = {
        one["id"]: renewed(one, current[one["id"]], ledger.comparisons)
        for one in old
        if one["id"] in current and definition(current[one["id"]]) == one["definition"]
    }
    for one in new:
        before = kept.get(one["id"])
        if before is None or _rank(one) >= _rank(before):
            kept[one["id"]] = one
    return [kept[name] for name in current if name in kept]


def _rank(one: Entry) -> tuple[bool, int]:
    return one["verdict"] != Verdict.NOT_RUN, Effort(one["effort"]).depth


def read_entries(folder: Path) -> list[Entry]:
    """What an earlier run has left in a folder; nothing where there was none.

    Raises:
        ResourceError: there is a claims.json that no run has written.
    """
    path = folder / _NAMES[0]
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["claims"]
        for one in entries:
            _rank(one)
            Measurement.from_json({**one, "note": one["remark"]})
            _ = [one[name] for name in _KEPT]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        msg = f"{path} cannot be read ({type(error).__name__}); move it away and run again"
        raise ResourceError(msg) from error
    return entries


def write_report(
    folder: Path, entries: Sequence[Entry], ledger: Ledger, manifest: Mapping[str, Any]
) -> list[Path]:
    """Write both files, each complete or not at all, and return them.

    Raises:
        ResourceError: the folder cannot be written to.
    """
    writable_folder(folder)
    texts = (
        json.dumps(document(entries, ledger, manifest), indent=1, allow_nan=False) + "\n",
        markdown(entries, ledger),
    )
    written = []
    for name, text in zip(_NAMES, texts, strict=True):
        path = folder / name
        write_atomically(path, lambda target, text=text: _write(target, text))
        written.append(path)
    return written


def document(
    entries: Sequence[Entry], ledger: Ledger, manifest: Mapping[str, Any]
) -> dict[str, Any]:
    """The JSON document: ``claims``, ``counts``, ``family`` and ``manifest``."""
    family = {"rate": FAMILY_WISE, "comparisons": ledger.comparisons}
    return {
        "claims": list(entries),
        "counts": counts(entries),
        "family": family,
        "manifest": dict(manifest),
    }


def markdown(entries: Sequence[Entry], ledger: Ledger) -> str:
    """CLAIMS.md: the counts, a table, and a paragraph a claim."""
    family = f"All {ledger.comparisons} confidence intervals of the ledger hold together with "
    family += f"probability {1 - FAMILY_WISE:g} at least (Bonferroni)."
    lines = [
        "# The ledger of claims",
        "",
        _PREFACE,
        "",
        family,
        "",
        *(f"- {name}: {count}" for name, count in counts(entries).items()),
        "",
        "| claim | verdict | observed | rule |",
        "|---|---|---|---|",
    ]
    for one in entries:
        cells = (f"[`{one['id']}`](#{_anchor(one['id'])})", one["verdict"], shown(one), one["rule"])
        lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    for one in entries:
        lines += ["", *_section(one)]
    return "\n".join(lines) + "\n"


def shown(one: Mapping[str, Any]) -> str:
    """Observed ± standard error, as many digits as the error bears."""
    if one["observed"] is None:
        return "–"
    if not one["standard_error"]:
        return f"{one['observed']:.6g}"
    return f"{one['observed']:.4g} ± {one['standard_error']:.2g}"


def _section(one: Entry) -> list[str]:
    lines = [f"## {one['id']}", "", f"**{one['verdict']}** · {one['kind']} · {one['place']}", ""]
    lines += [one["statement"], ""]
    lines += [f"- assumed by the paper: {text}" for text in one["assumptions"]]
    lines += [f"- assumed here besides: {text}" for text in one["added"]]
    lines.append(f"- expected: {one['expected']}; rule: {one['rule']}")
    if one["observed"] is not None:
        lines.append(f"- observed: {shown(one)} (n = {one['n']}, {one['effort']} effort, "
                     f"seed {one['seed']})")  # fmt: skip
    if len(one["parts"]) > 1:
        parts = (f"{p['name']}: {shown(_as_entry(p))}" for p in one["parts"])
        lines.append(f"- parts: {'; '.join(parts)}")
    if one["changed"]:
        lines.append(f"- the ledger expects: {one['ledger']}")
    if one["figure"]:
        lines.append(f"- shown by `loca-theory figures {one['figure']}`")
    if one["note"]:
        lines.append(f"- note: {one['note']}")
    return [*lines, f"- decided by `{one['check']}`; again: `{one['command']}`"]


def _as_entry(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"observed": part["value"], "standard_error": part["standard_error"]}


def _anchor(name: str) -> str:
    return name.replace(".", "")


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
