"""claims.json and CLAIMS.md: what was decided, kept from run to run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loca_theory.claims.ledger import PACKAGE, Ledger
from loca_theory.claims.markdown import WRITTEN_BY, markdown
from loca_theory.claims.measurement import Effort, Measurement
from loca_theory.claims.rules import FAMILY_WISE, Verdict
from loca_theory.claims.summary import count_slips, counts
from loca_theory.claims.verification import Entry, definition, renewed
from loca_theory.errors import ResourceError
from loca_theory.sweeps import write_atomically
from loca_theory.sweeps.files import writable_folder

_NAMES = ("claims.json", "CLAIMS.md")
# What an entry cannot be renewed without.
_KEPT = ("id", "definition", "parts", "remark", "seconds", "effort", "seed", "version", "data")


def merged(old: Sequence[Entry], new: Sequence[Entry], ledger: Ledger) -> list[Entry]:
    """Earlier and new entries together, in the order of the ledger.

    A new entry takes the place of an old one unless

    - the old one was observed with more effort, be it by older code, which it then is marked with
      (``stale``);
    - the old one was run and the new one was not;
    - both had the same effort and code, another seed and another verdict: the first look counts,
      for whoever tries seeds until one pleases will find it.

    None of this protects what was read from other tables. An old entry whose claim is no longer in
    the ledger, or has another check or arguments or number of parts by now, is dropped; of the
    others the observation is kept, and judged by the rule that holds now.
    """
    current = {claim.id: claim for claim in ledger.claims}
    kept: dict[str, Entry] = {}
    for one in old:
        claim = current.get(one["id"])
        if claim is None or definition(claim) != one["definition"]:
            continue
        if not claim.objection(Measurement.from_json({**one, "note": ""})):
            kept[claim.id] = renewed(one, claim, ledger)
    for one in new:
        before = kept.get(one["id"])
        if before is None or _replaces(one, before):
            kept[one["id"]] = one
    return [kept[name] for name in current if name in kept]


def _replaces(new: Entry, old: Entry) -> bool:
    if Verdict.NOT_RUN in (new["verdict"], old["verdict"]):
        return old["verdict"] == Verdict.NOT_RUN
    if new["data"] != old["data"]:
        return True
    deeper = Effort(new["effort"]).depth - Effort(old["effort"]).depth
    if deeper or old["stale"]:
        return deeper >= 0
    return new["seed"] == old["seed"] or new["verdict"] == old["verdict"]


def read_entries(folder: Path) -> list[Entry]:
    """What an earlier run has left in a folder; nothing where there was none.

    Raises:
        ResourceError: there is a claims.json or CLAIMS.md that no run has written.
    """
    _check_page(folder)
    path = folder / _NAMES[0]
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["claims"]
        for one in entries:
            _ = Effort(one["effort"]), [one[name] for name in _KEPT]
            Measurement.from_json({**one, "note": one["remark"]})
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
        ResourceError: the folder cannot be written to, or has a CLAIMS.md that no run has written.
    """
    _check_page(writable_folder(folder))
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
    """The JSON document.

    ``claims``, ``counts`` (of the paper's claims), ``slips`` (how many of those not supported are
    slips of the pen), ``package`` (counts of the claims on this package), ``family`` and
    ``manifest``.
    """
    return {
        "claims": list(entries),
        "counts": counts(entries),
        "slips": count_slips(entries),
        "package": counts(entries, PACKAGE),
        "family": {"rate": FAMILY_WISE, "comparisons": ledger.comparisons},
        "manifest": dict(manifest),
    }


def _check_page(folder: Path) -> None:
    page = folder / _NAMES[1]
    if page.is_file() and WRITTEN_BY not in page.read_text(encoding="utf-8", errors="replace"):
        msg = f"{page} was not written here; move it away, or choose another folder"
        raise ResourceError(msg)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
