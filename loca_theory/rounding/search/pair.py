"""A pair of matrices that is searched: its rows and columns that changed, or a part of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.rounding.cells import Recipe, pair_format
from loca_theory.rounding.formats import Format
from loca_theory.rounding.search.candidates import Candidate
from loca_theory.sweeps import generator

# Sides above twice this number are searched in this many rows or columns.
_SEARCHED = 1024
# Changed entries per row from which a row without any is unchanged, and not so by chance.
_PER_ROW = 20


@dataclass(frozen=True)
class Pair:
    """A base, as stored and rounded to the format of a fine-tune, and the fine-tune.

    Attributes:
        base: W as stored, shape (p, q).
        rounded: W rounded to the format; the same object if W is of the format.
        tuned: W'.
        form: The format of the fine-tune.
        changed: Number of entries in which the rounded base and the fine-tune differ.
    """

    base: torch.Tensor
    rounded: torch.Tensor
    tuned: torch.Tensor
    form: Format
    changed: int

    @classmethod
    def of(cls, base: torch.Tensor, tuned: torch.Tensor) -> Pair:
        """Check both matrices, and compare them.

        Raises:
            InvalidArgumentError: as :func:`~loca_theory.rounding.pair_format`, or no entry changed.
        """
        form = pair_format(base, tuned)
        rounded = base if form.holds(base) else form.round(base.double())
        changed = int((rounded != tuned).count_nonzero())
        if not changed:
            raise InvalidArgumentError(
                f"no entry changed between base and tuned, both rounded to {form.name}; "
                "pass the fine-tune of this base"
            )
        return cls(base, rounded, tuned, form, changed)

    @property
    def fraction_changed(self) -> float:
        """Fraction of the entries that changed."""
        return self.changed / self.tuned.numel()

    @property
    def changed_per_unknown(self) -> float:
        """Changed entries per unknown number of a change of rank 1."""
        return self.changed / sum(self.tuned.shape)

    def is_wide(self) -> bool:
        """Whether the base has more bits than the fine-tune."""
        return self.rounded is not self.base

    def changed_sides(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Indices of the rows and of the columns that changed; all if a few did not by chance."""
        is_changed = self.rounded != self.tuned
        sides = []
        for axis, side in ((1, self.tuned.shape[0]), (0, self.tuned.shape[1])):
            indices = is_changed.any(dim=axis).nonzero().flatten()
            is_part = len(indices) < side and self.changed > _PER_ROW * len(indices)
            sides.append(indices if is_part else torch.arange(side, device=indices.device))
        return sides[0], sides[1]

    def at(self, rows: torch.Tensor, columns: torch.Tensor) -> Pair:
        """The pair in some rows and columns."""
        if (len(rows), len(columns)) == self.tuned.shape:
            return self
        base, rounded, tuned = (
            matrix[rows][:, columns] for matrix in (self.base, self.rounded, self.tuned)
        )
        changed = int((rounded != tuned).count_nonzero())
        return replace(
            self,
            base=base,
            rounded=rounded if self.is_wide() else base,
            tuned=tuned,
            changed=changed,
        )

    def part(self) -> Pair | None:
        """Random rows and columns of a large pair; None of a smaller one."""
        if min(self.tuned.shape) <= 2 * _SEARCHED:
            return None
        source = generator(0, "searched rows and columns")
        rows, columns = (
            torch.from_numpy(source.permutation(side)[:_SEARCHED]).to(self.tuned.device)
            for side in self.tuned.shape
        )
        return self.at(rows, columns)

    def candidate(self, recipe: Recipe, *, rounded: bool) -> Candidate:
        """A candidate for what led to the fine-tune, by a recipe."""
        base = self.rounded if rounded else self.base
        return Candidate(base, self.tuned, self.form, recipe, rounded)

    def candidates(self) -> tuple[list[Candidate], list[Candidate]]:
        """The candidates for what led to the fine-tune, with narrow cells and with wide ones."""
        bases = [False, True] if self.is_wide() else [False]
        narrow = [
            self.candidate(recipe, rounded=rounded)
            for recipe in (Recipe.EXACT, Recipe.ROUNDED_INCREMENT)
            for rounded in bases
        ]
        return narrow, [self.candidate(Recipe.ROUNDED_TWICE, rounded=bases[-1])]
