"""The outcome of a run, saved as a table, a page and a file, and merged with earlier runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from loca_theory import _arguments
from loca_theory.claims.claim import OTHER_MODEL, PACKAGE
from loca_theory.claims.entries import Entry
from loca_theory.claims.estimates import Tier
from loca_theory.claims.ledger import Ledger, load_ledger
from loca_theory.claims.observation import MEASURED, ClaimCell
from loca_theory.claims.page import WRITTEN_BY, count_errata, counts, page
from loca_theory.claims.rules import FAMILY_WISE, Verdict
from loca_theory.errors import LocaTheoryError, ResourceError
from loca_theory.sweeps import Result, ResultStore
from loca_theory.sweeps.files import writable_folder, write_atomically
from loca_theory.sweeps.results import rows
from loca_theory.sweeps.tables import store_rows

if TYPE_CHECKING:
    import pandas as pd

_NAMES = ("claims.json", "CLAIMS.md")
# Where ``loca-theory verify`` stores finished observations, below the folder of its claims.json.
_POINTS = "points"


class VerdictsChangedError(LocaTheoryError):
    """The verdicts of some claims are not those that the ledger expects."""


@dataclass(frozen=True, repr=False)
class VerificationResult(Result):
    """The outcome of a run.

    Attributes:
        ledger: The ledger.
        claims: An entry per claim, in the order of the ledger.
    """

    command: ClassVar[str] = "verify"
    names: ClassVar[tuple[str, ...]] = ("id",)
    ledger: Ledger
    claims: tuple[Entry, ...] = rows(Entry)

    def require_expected(self) -> None:
        """Raise an error unless every verdict is the one that the ledger expects.

        Raises:
            VerdictsChangedError: a verdict differs, or is inconclusive although the ledger expects
                a decision.
        """
        if wrong := [entry.id for entry in self.claims if entry.changed or entry.lost]:
            are = "1 verdict is" if len(wrong) == 1 else f"{len(wrong)} verdicts are"
            raise VerdictsChangedError(
                f"{are} not as the ledger expects: {', '.join(wrong)}; if this is right, change "
                "'expected_verdict' in claims.toml (or 'undecided', the tiers that need not "
                "decide), and give the reason in 'note'"
            )

    def joined(self, earlier: Sequence[Entry]) -> Self:
        """Merge this outcome with that of earlier runs, in the order of the ledger.

        A new entry replaces an old one unless

        - the old one was run and the new one was not;
        - the old one was measured at a deeper tier, even by older code (it is then marked as
          ``stale``).

        If the two entries read different tables, or no stored observation backs the old one, only
        the first exception applies. See :meth:`beside` for two seeds.
        """
        entries = {entry.id: entry for entry in earlier}
        for entry in self.beside(earlier).claims:
            if entry.id not in entries or _replaces(entry, entries[entry.id]):
                entries[entry.id] = entry
        order = (claim.id for claim in self.ledger.claims)
        return replace(self, claims=tuple(entries[name] for name in order if name in entries))

    def beside(self, earlier: Sequence[Entry]) -> Self:
        """This outcome, with the verdicts of earlier runs that differ in the seed alone.

        A claim whose seeds disagree is inconclusive.
        """
        before = {entry.id: entry for entry in earlier}
        claims = tuple(entry.beside(before.get(entry.id)) for entry in self.claims)
        return replace(self, claims=claims)

    def overview(self) -> pd.DataFrame:
        """One row per claim: its id, its verdict, and what was observed."""
        return self.to_frame()[["id", "verdict", "observed"]]

    def to_json(self) -> dict[str, Any]:
        """The content of claims.json.

        The keys are ``claims``, ``counts`` (verdicts of the claims of the paper), ``errata`` (how
        many of the unsupported ones are errata), ``other_models`` (verdicts of the paper's
        statements on other models), ``package`` (verdicts of the claims about this package),
        ``family`` (the family-wise error rate and the number of comparisons) and ``manifest``.
        """
        return {
            "claims": [entry.to_json() for entry in self.claims],
            "counts": counts(self.claims),
            "errata": count_errata(self.claims),
            "other_models": counts(self.claims, OTHER_MODEL),
            "package": counts(self.claims, PACKAGE),
            "family": {"rate": FAMILY_WISE, "comparisons": self.ledger.comparisons},
            "manifest": self.manifest,
        }

    def save(self, folder: str | Path) -> list[Path]:
        """Write claims.json, CLAIMS.md and claims.parquet, merged with those of earlier runs.

        The observations are stored beside them, in ``points``. Each file is written completely or
        not at all.

        Raises:
            ResourceError: the folder cannot be written to, or it has a CLAIMS.md or claims.json
                that was not written by a run.
        """
        folder = writable_folder(_arguments.path("folder", folder))
        store = ResultStore(folder / _POINTS)
        for entry in self.claims:
            if store.load(entry.cell) != entry.measured:
                store.save(entry.cell, entry.measured)
        together = self.joined(read_entries(folder, self.ledger))
        text = json.dumps(together.to_json(), indent=1, allow_nan=False) + "\n"
        markdown, written = page(together.claims, self.ledger), [folder / name for name in _NAMES]
        write_atomically(written[0], lambda path: path.write_text(text, encoding="utf-8"))
        write_atomically(written[1], lambda path: path.write_text(markdown, encoding="utf-8"))
        return written + store_rows(together._plain("claims"), self.manifest, folder, "claims")

    @classmethod
    def load(cls, folder: str | Path, ledger: Ledger | None = None) -> Self:
        """Read what :meth:`save` wrote into a folder, and judge it by the current ledger.

        Raises:
            ResourceError: the file does not exist or cannot be read.
        """
        ledger = ledger or load_ledger()
        path = _arguments.path("folder", folder) / _NAMES[0]
        if not path.is_file():
            raise ResourceError(
                f"there is no {path}; run verify and save its result in that folder first"
            )
        entries, manifest = _read(path, ledger)
        return cls(manifest=manifest, ledger=ledger, claims=entries)

    def _plain(self, table: str) -> list[dict[str, Any]]:
        return [row.row() for row in getattr(self, table)]


def read_entries(folder: Path, ledger: Ledger) -> tuple[Entry, ...]:
    """Read the entries that earlier runs left in a folder; none if there was no run.

    An entry is dropped if the ledger lacks its claim, or gives it another check, other
    arguments or another number of estimates. The other measurements are judged by the current rule.
    Their numbers are those of the stored observations. An entry without one is not backed, and
    gives way to the next measurement: nothing that was written into a claims.json by hand outlives
    a run.
    """
    data, markdown = (folder / name for name in _NAMES)
    if markdown.is_file() and WRITTEN_BY not in markdown.read_text(
        encoding="utf-8", errors="replace"
    ):
        raise ResourceError(
            f"{markdown} was not written by verify; move it away, or choose another folder"
        )
    return _read(data, ledger)[0] if data.exists() else ()


def _read(path: Path, ledger: Ledger) -> tuple[tuple[Entry, ...], dict[str, Any]]:
    claims = {claim.id: claim for claim in ledger.claims}
    points, store, entries = path.parent / _POINTS, None, []
    with suppress(ResourceError):  # of a folder that cannot be written to
        store = ResultStore(points) if points.is_dir() else None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        for row in document["claims"]:
            claim = claims.get(row["id"])
            if claim is None or claim.definition != row["definition"]:
                continue
            run = (Tier(row["tier"]), row["seed"], tuple(row["data"]), str(row["version"]))
            cell = ClaimCell(claim, *run)
            stored = store.load(cell) if store else None
            measured, is_backed = stored or MEASURED.validate_python(row), stored is not None
            if not claim.objection(measured):
                seeds = {int(seed): word for seed, word in row.get("other_seeds", {}).items()}
                entries.append(Entry(cell, measured, ledger.error_rate(claim), is_backed, seeds))
        return tuple(entries), document.get("manifest", {})
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ResourceError(
            f"{path} cannot be read ({type(error).__name__}); move it away and run again"
        ) from error


def _replaces(new: Entry, old: Entry) -> bool:
    if Verdict.NOT_RUN in (new.verdict, old.verdict):
        return old.verdict is Verdict.NOT_RUN
    is_other = not old.backed or new.cell.tables != old.cell.tables
    return is_other or new.cell.tier.depth >= old.cell.tier.depth
