"""Which matrices of a checkpoint to compare."""

from __future__ import annotations

import re
from dataclasses import dataclass

from loca_theory._arguments import expression, positive_number
from loca_theory._lookup import find
from loca_theory.checkpoints.weights.layouts import EXPERTS, Experts

SMALLEST_SIDE = 16
"""Fewest rows and fewest columns for which the statistics are computed; smaller matrices are
skipped."""


@dataclass(frozen=True)
class Selection:
    """Which matrices to compare.

    Attributes:
        include: Regular expression; the name must contain a match.
        exclude: Regular expression; the name must not contain a match.
        max_size: Largest number of entries, or None for no limit.
        smallest_side: Matrices with fewer rows or fewer columns are left out.
        experts: What the weights of several experts in one tensor are: ``each``, one matrix per
            expert, ``NAME[0]``, ``NAME[1]``, …; ``stacked``, one matrix with the rows of all.

    Raises:
        InvalidArgumentError: an expression is not valid, max_size is not a positive integer, or
            experts is neither of the two.
    """

    include: str | None = None
    exclude: str | None = None
    max_size: int | None = None
    smallest_side: int = SMALLEST_SIDE
    experts: Experts = "each"

    def __post_init__(self) -> None:
        for name in ("include", "exclude"):
            expression(name, getattr(self, name))
        if self.max_size is not None:
            positive_number("max_size", self.max_size)
        find("interpretation of experts", self.experts, EXPERTS)

    def selects(self, name: str) -> bool:
        """Whether include and exclude admit a name."""
        if self.include is not None and not re.search(self.include, name):
            return False
        return self.exclude is None or not re.search(self.exclude, name)
