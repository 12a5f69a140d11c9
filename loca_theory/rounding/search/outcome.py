"""The outcome of a search in rounding cells, and a guess to begin it with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from loca_theory.rounding.cells import Recipe


class Outcome(StrEnum):
    """The outcome of a search for a rank, or for a number of components."""

    FOUND = "found"
    NOT_OF_FORM = "not of this form"
    TOO_FEW_CHANGED = "cannot tell: too few changed entries for its size"
    UNDECIDED = (
        "cannot tell between a higher rank than the changed entries show, several merges, and no "
        "low rank"
    )
    TOO_SMALL = "cannot tell: the changed rows and columns are too few"
    NOT_BELIEVED = "not believed: held-out entries are not met"


@dataclass(frozen=True)
class Guess:
    """The form of a similar matrix, such as the same weight of another layer.

    A search tries it first, and checks it like any other candidate.

    Attributes:
        size: Rank or number of components.
        recipe: How the merge rounded.
        base_was_rounded: Whether the merge began from a base rounded to the format.
    """

    size: int
    recipe: Recipe
    base_was_rounded: bool = False
