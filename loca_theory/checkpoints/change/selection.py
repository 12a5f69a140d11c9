"""Which matrices of checkpoints are compared."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from loca_theory import _arguments
from loca_theory._lookup import find
from loca_theory.checkpoints.source.layouts import EXPERT_LAYOUTS, Experts


@dataclass(frozen=True)
class MatrixSelection:
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
    smallest_side: int = 16
    experts: Experts = "each"

    def __post_init__(self) -> None:
        for name in ("include", "exclude"):
            _arguments.expression(name, getattr(self, name))
        if self.max_size is not None:
            _arguments.positive_number("max_size", self.max_size)
        find("interpretation of experts", self.experts, EXPERT_LAYOUTS)

    def of_extraction(self) -> MatrixSelection:
        """The same matrices as an adapter changes them: of any size, and all experts together."""
        return replace(self, smallest_side=1, experts="stacked")

    def selects(self, name: str) -> bool:
        """Whether include and exclude admit a name."""
        is_included = bool(re.search(self.include or "", name))
        return is_included and (self.exclude is None or not re.search(self.exclude, name))
