"""The ledger as data: its claims in sections, and its reader."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from loca_theory import _arguments
from loca_theory._lookup import nearest
from loca_theory.claims.claim import EMPIRICAL, Claim, LedgerError, Text
from loca_theory.claims.role import Role
from loca_theory.claims.rules import FAMILY_WISE, STRICT
from loca_theory.errors import InvalidArgumentError


@dataclass(frozen=True)
class Ledger:
    """The claims of a ledger.

    Attributes:
        claims: All claims, in the order of the paper.
        questions: The questions that the doubtful claims answer, in the order in which they lead.
    """

    claims: tuple[Claim, ...]
    questions: tuple[str, ...] = ()

    @property
    def comparisons(self) -> int:
        """Number of confidence intervals of all claims, including those that are not run."""
        return sum(claim.comparisons for claim in self.claims)

    def error_rate(self, claim: Claim) -> float:
        """Probability with which an interval of the claim may miss the true value.

        Half of the family-wise rate goes to the empirical claims, half to all others. Empirical
        claims rest on a few seeds, and could not be decided if they had to share the rate with
        every simulated claim.
        """
        is_empirical = claim.kind == EMPIRICAL
        same_kind = (claim for claim in self.claims if (claim.kind == EMPIRICAL) == is_empirical)
        return FAMILY_WISE / 2 / max(1, sum(claim.comparisons for claim in same_kind))

    def find(self, names: Sequence[str]) -> list[Claim]:
        """The claims with these names, in the order of the ledger; all claims without a name.

        A name is the id of a claim. Otherwise it stands for all claims below it, such as
        ``theorem1`` or ``theorem1.`` for ``theorem1.order``, or for a section by its title.

        Raises:
            InvalidArgumentError: some names are unknown; the message has the nearest names of each.
        """
        ids_by_name = [(name, self.named(str(name))) for name in names]
        if unknown := [name for name, ids in ids_by_name if not ids]:
            claims = "claim" if len(unknown) == 1 else "claims"
            raise InvalidArgumentError(
                f"unknown {claims} {', '.join(map(self._hint, unknown))}; "
                "loca_theory.claims.load_ledger() has all"
            )
        chosen = {claim_id for _, ids in ids_by_name for claim_id in ids}
        return [claim for claim in self.claims if not names or claim.id in chosen]

    def named(self, name: str) -> list[str]:
        """The claim of this id, else those below it, else those of the section of this title."""
        ids = [claim.id for claim in self.claims]
        if name in ids:
            return [name]
        prefix = f"{name.removesuffix('.')}."
        if below := [claim_id for claim_id in ids if claim_id.startswith(prefix)]:
            return below
        titles = {claim.id: claim.section.casefold() for claim in self.claims if claim.section}
        wording = name.casefold()
        return [key for key, title in titles.items() if wording in (title, title.partition(":")[0])]

    def by_question(self, listed: Iterable[Any]) -> dict[str, list[Any]]:
        """Group the doubtful ones among claims, or their entries, by question or else section."""
        grouped: dict[str, list[Any]] = {question: [] for question in self.questions}
        for item in listed:
            claim: Claim = getattr(item, "claim", item)
            if claim.role is Role.DOUBTFUL:
                grouped.setdefault(claim.question or claim.section, []).append(item)
        return {question: items for question, items in grouped.items() if items}

    def _hint(self, name: object) -> str:
        """An unknown name with the nearest claims and families."""
        ids = {key for claim in self.claims for key in (claim.id, claim.id.partition(".")[0])}
        near = " or ".join(nearest(name, sorted(ids)))
        return f"{name!r} (did you mean {near}?)" if near else repr(name)


def by_section(listed: Iterable[Any]) -> dict[str, list[Any]]:
    """Group claims, or their entries, by the heading of their section."""
    sections: dict[str, list[Any]] = {}
    for entry in listed:
        sections.setdefault(entry.section, []).append(entry)
    return sections


@dataclass(frozen=True, config=STRICT)
class _Section:
    title: Text
    claim: tuple[Claim, ...]


@dataclass(frozen=True, config=STRICT)
class _Document:
    questions: dict[str, Text] = field(default_factory=dict)
    claim: tuple[Claim, ...] = ()  # under no heading
    section: tuple[_Section, ...] = ()


def load_ledger(path: str | Path | None = None) -> Ledger:
    """Read the ledger that the package ships, or another one.

    Args:
        path: Ledger file; None for the package's own.

    Raises:
        InvalidArgumentError: path is not a path.
        LedgerError: the file cannot be read, or a claim is invalid; the message names it.
    """
    name = "claims.toml" if path is None else str(path)
    shipped = files("loca_theory.claims") / name
    source = shipped if path is None else _arguments.path("ledger", path)
    data: dict[str, Any] = {}
    try:
        data = tomllib.loads(source.read_text(encoding="utf-8"))
        return _ledger_of(TypeAdapter(_Document).validate_python(data))
    except OSError as error:
        msg = f"cannot read the ledger {name}: {error.strerror or error}"
    except tomllib.TOMLDecodeError as error:
        msg = f"{name} is not TOML: {error}"
    except ValidationError as error:
        msg = f"{name} is not a ledger: {_first(error, data)}"
    except ValueError as error:
        msg = f"{name} is not a ledger: {error}"
    raise LedgerError(msg)


def _ledger_of(document: _Document) -> Ledger:
    """The claims, each with the title of its section and with its question in words."""
    claims = list(document.claim)
    for section in document.section:
        claims += [replace(claim, section=section.title) for claim in section.claim]
    if not claims:
        raise ValueError("it has no claims")
    for name, count in Counter(claim.id for claim in claims).items():
        if count > 1:
            raise ValueError(f"the id {name!r} is used twice")
    questions = {"": "", **document.questions}
    if unknown := [claim.id for claim in claims if claim.question not in questions]:
        raise ValueError(f"claim {unknown[0]!r}: its question is not among the keys of [questions]")
    worded = (replace(claim, question=questions[claim.question]) for claim in claims)
    return Ledger(tuple(worded), tuple(document.questions.values()))


def _first(error: ValidationError, data: dict[str, Any]) -> str:
    """The first fault of a document, in one line that names the claim and the field."""
    first = error.errors()[0]
    where, keys, entry = "", list(first["loc"]), data
    while len(keys) > 1 and keys[0] in ("section", "claim"):
        # The name of a table, and its number among those of the same name.
        table, number, *keys = keys
        entry = entry[str(table)][int(number)]
        name = entry.get("id", entry.get("title")) if isinstance(entry, dict) else None
        where = f"{table} {name!r}: " if name else f"{table} {int(number) + 1}: "
    why = str(first.get("ctx", {}).get("error", first["msg"]))
    return where + ": ".join([*map(str, keys), why])
