"""The outcome of a run: its table, its page and its file, kept from run to run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from loca_theory import _arguments
from loca_theory._lookup import find
from loca_theory.claims.entries import Entry, definition
from loca_theory.claims.ledger import PACKAGE, Ledger
from loca_theory.claims.markdown import WRITTEN_BY, markdown
from loca_theory.claims.measurement import Measurement, Tier
from loca_theory.claims.reader import load_ledger
from loca_theory.claims.rules import FAMILY_WISE, Verdict
from loca_theory.claims.summary import count_errata, counts
from loca_theory.errors import LocaTheoryError, ResourceError
from loca_theory.sweeps import Result, rows, write_atomically
from loca_theory.sweeps.files import writable_folder

if TYPE_CHECKING:
    import pandas as pd

_NAMES = ("claims.json", "CLAIMS.md")


class VerdictsChangedError(LocaTheoryError):
    """Claims came to another verdict than the ledger expects."""


@dataclass(frozen=True, repr=False)
class VerificationResult(Result):
    """What was decided.

    Attributes:
        ledger: The ledger.
        claims: An entry per claim, in the order of the ledger.
    """

    command: ClassVar[str] = "verify"
    ledger: Ledger
    claims: tuple[Entry, ...] = rows(Entry)

    def require_expected(self) -> None:
        """Make sure that every verdict is the one that the ledger expects.

        Raises:
            VerdictsChangedError: one is not, or is inconclusive where it should not be.
        """
        if wrong := [one.id for one in self.claims if one.changed or one.lost]:
            are = "1 verdict is" if len(wrong) == 1 else f"{len(wrong)} verdicts are"
            msg = f"{are} not as the ledger expects: {', '.join(wrong)}; say so in claims.toml, "
            msg += "with why ('expected_verdict', or 'undecided' for tiers that need not decide)"
            raise VerdictsChangedError(msg)

    def joined(self, earlier: Sequence[Entry]) -> Self:
        """This outcome and that of earlier runs, in the order of the ledger.

        A new entry takes the location of an old one unless

        - the old one was observed at a deeper tier, be it by older code, with which it then is
          marked (``stale``);
        - the old one was run and the new one was not;
        - both had the same tier and code, another seed and another verdict: the first look counts,
          for whoever tries seeds until one pleases will find it.

        None of this protects what was read from other tables.
        """
        latest = {one.id: one for one in earlier}
        for one in self.claims:
            if one.id not in latest or _replaces(one, latest[one.id]):
                latest[one.id] = one
        order = (claim.id for claim in self.ledger.claims)
        return replace(self, claims=tuple(latest[name] for name in order if name in latest))

    def to_frame(self, table: str | None = None) -> pd.DataFrame:
        """The claims as a data frame, with what a table shows of them."""
        import pandas as pd

        name = next(iter(self._tables())) if table is None else table
        find("table", name, self._tables())
        return pd.DataFrame(self._plain(name))

    def to_json(self) -> dict[str, Any]:
        """The document that claims.json holds.

        ``claims``, ``counts`` (of the paper's claims), ``errata`` (how many of those not supported
        are errata), ``package`` (counts of the claims on this package), ``family`` and
        ``manifest``.
        """
        return {
            "claims": [one.to_json() for one in self.claims],
            "counts": counts(self.claims),
            "errata": count_errata(self.claims),
            "package": counts(self.claims, PACKAGE),
            "family": {"rate": FAMILY_WISE, "comparisons": self.ledger.comparisons},
            "manifest": self.manifest,
        }

    def save(self, folder: str | Path) -> list[Path]:
        """Write claims.json, CLAIMS.md and claims.parquet, with what earlier runs left there.

        Each file is complete or not there.

        Raises:
            ResourceError: the folder cannot be written to, or has a CLAIMS.md or claims.json that
                no run has written.
        """
        folder = writable_folder(_arguments.path("folder", folder))
        together = self.joined(read_entries(folder, self.ledger))
        text = json.dumps(together.to_json(), indent=1, allow_nan=False) + "\n"
        page, written = markdown(together.claims, self.ledger), [folder / name for name in _NAMES]
        write_atomically(written[0], lambda path: path.write_text(text, encoding="utf-8"))
        write_atomically(written[1], lambda path: path.write_text(page, encoding="utf-8"))
        return written + super(VerificationResult, together).save(folder)

    @classmethod
    def load(cls, folder: str | Path, ledger: Ledger | None = None) -> Self:
        """What :meth:`save` has written into a folder, by the ledger as it is now.

        Raises:
            ResourceError: it is not there or cannot be read.
        """
        ledger = ledger or load_ledger()
        path = _arguments.path("folder", folder) / _NAMES[0]
        if not path.is_file():
            msg = f"there is no {path}; run verify with results kept there first"
            raise ResourceError(msg)
        entries, manifest = _read(path, ledger)
        return cls(manifest=manifest, ledger=ledger, claims=entries)

    @classmethod
    def _stored_name(cls, table: str) -> str:
        return table

    def _plain(self, table: str) -> list[dict[str, Any]]:
        return [one.row() for one in getattr(self, table)]


def read_entries(folder: Path, ledger: Ledger) -> tuple[Entry, ...]:
    """What earlier runs have left in a folder; nothing where there was none.

    An entry whose claim is no longer in the ledger, or has another check or arguments or number of
    estimates by now, is dropped; of the others the observation is kept, and judged by the rule that
    holds now.

    Raises:
        ResourceError: there is a claims.json or CLAIMS.md that no run has written.
    """
    data, page = (folder / name for name in _NAMES)
    if page.is_file() and WRITTEN_BY not in page.read_text(encoding="utf-8", errors="replace"):
        msg = f"{page} was not written here; move it away, or choose another folder"
        raise ResourceError(msg)
    return _read(data, ledger)[0] if data.exists() else ()


def _read(path: Path, ledger: Ledger) -> tuple[tuple[Entry, ...], dict[str, Any]]:
    claims = {claim.id: claim for claim in ledger.claims}
    entries = []
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        for one in document["claims"]:
            found = Measurement.from_json({"estimates": one["estimates"], "note": one["remark"]})
            how = (Tier(one["tier"]), one["seed"], one["seconds"], tuple(one["data"]))
            version, claim = one["version"], claims.get(one["id"])
            if claim and definition(claim) == one["definition"] and not claim.objection(found):
                entries.append(Entry(claim, found, ledger.error_rate(claim), *how, version))
        return tuple(entries), document.get("manifest", {})
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        msg = f"{path} cannot be read ({type(error).__name__}); move it away and run again"
        raise ResourceError(msg) from error


def _replaces(new: Entry, old: Entry) -> bool:
    if Verdict.NOT_RUN in (new.verdict, old.verdict):
        return old.verdict is Verdict.NOT_RUN
    if new.data != old.data:
        return True
    deeper = new.tier.depth - old.tier.depth
    if deeper or old.stale:
        return deeper >= 0
    return new.seed == old.seed or new.verdict is old.verdict
