"""The role of a claim in the ledger."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """The role of a claim. Tables lead with the doubtful ones, and count each role apart."""

    DOUBTFUL = "doubtful"
    VARIANT = "variant"
    LEMMA = "lemma"
    COUNT = "count"
    ERRATUM = "erratum"

    @property
    def heading(self) -> str:
        """The claims of this role, in words."""
        return _HEADINGS[self]


_HEADINGS = {
    Role.DOUBTFUL: "Statements that somebody could doubt",
    Role.VARIANT: "Other interpretations and special cases",
    Role.LEMMA: "Identities and bounds of proofs",
    Role.COUNT: "Counts and comparisons of printed numbers",
    Role.ERRATUM: "Errata",
}
