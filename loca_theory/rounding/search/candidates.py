"""Candidates for what led to a fine-tune: a base and a recipe, fitted at some ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from loca_theory.rounding.cells import Recipe, RoundingCells, difference, rounding_cells
from loca_theory.rounding.fit.low_rank import LowRankFit, fit_low_rank
from loca_theory.rounding.formats import Format
from loca_theory.rounding.search.held_out import hold_out
from loca_theory.rounding.search.recipes import Misses
from loca_theory.rounding.search.signals import scaling_signal

INSIDE, INSIDE_BEFORE = 0.998, 0.99
"""Fraction of entries in their cells: at least at the rank, and at most at one less."""
# A further rounding leaves at least this fraction outside the exact cells: 0.09 where the change is
# a tenth of a step, 0.2 to 0.3 where it is larger.
_OUTSIDE = 0.05
# Mean squared cosine with the weights above chance. A base that was cast has 0.004, as its errors
# are a little larger where its weights are. DoRA has 0.02 and more.
_SCALED = 0.01
# Standard errors by which held-out cells have to differ to decide between recipes.
_SIGNIFICANT = 2
# Without the held-out entries, which are 0 in d at the start, a descent to a steep spectrum stays
# at nearly one distance for tens of steps, and then falls to the cells.
_PATIENCE = 200
_ROWS, _ENTRIES = 256, 2**18


@dataclass(frozen=True)
class RankClaim:
    """A rank at which the fraction inside jumps, and how a fit of it meets held-out entries."""

    candidate: Candidate
    fit: LowRankFit
    held_out: float
    standard_error: float


@dataclass(frozen=True)
class Candidate:
    """A base and a recipe that may have led to the fine-tune.

    The change and its cells are computed when they are used, so that one set is in memory.
    """

    base: torch.Tensor
    tuned: torch.Tensor
    form: Format
    recipe: Recipe
    base_was_rounded: bool

    def fit(self, rank: int) -> LowRankFit:
        """The fit of a rank."""
        return fit_low_rank(self.change(), self.cells(), rank)

    def claim(self, fit: LowRankFit) -> RankClaim | None:
        """The smallest rank at which as many entries are inside, if one less falls short of it."""
        before = self._inside_before()
        while fit.rank > 1:
            smaller = self.fit(fit.rank - 1)
            before = smaller.inside
            if before < INSIDE:
                break
            fit = smaller
        if before > INSIDE_BEFORE or self._is_not_rounding(fit):
            return None
        return self._held_out(fit)

    def _is_not_rounding(self, fit: LowRankFit) -> bool:
        """Whether the widest cells allow something other than a further rounding.

        One of those leaves entries outside of the exact cells, and does not scale rows.
        """
        if self.recipe is not Recipe.ROUNDED_TWICE:
            return False
        exact = replace(self, recipe=Recipe.EXACT)
        if exact.fit(fit.rank).inside > 1 - _OUTSIDE:
            return True
        return scaling_signal(exact.gap(fit), self.base) > _SCALED

    def misses(self, inside: float) -> Misses:
        """Entries outside of their cells, of a fit with this fraction of them inside."""
        entries = self.tuned.numel()
        return Misses(self.recipe, self.base_was_rounded, round((1 - inside) * entries), entries)

    def gap(self, fit: LowRankFit) -> torch.Tensor:
        """How far each entry of a fit is from its cell."""
        cells = self.cells()
        parts = (part.split(_ROWS) for part in (fit.b, cells.low, cells.high))
        for rows, low, high in zip(*parts, strict=True):
            product = rows @ fit.a
            torch.sub(RoundingCells(low, high).nearest(product), product, out=low)
        return cells.low

    def change(self) -> torch.Tensor:
        """The difference d = W' - W in float32."""
        return difference(self.base, self.tuned)

    def cells(self) -> RoundingCells:
        """The cells of all entries by the recipe."""
        return rounding_cells(self.base, self.tuned, self.form, self.recipe)

    def _inside_before(self) -> float:
        """Fraction of entries in their cells without any change: at rank 0."""
        zero = torch.zeros((), device=self.tuned.device)
        return float(self.cells().contain(zero).float().mean())

    def _held_out(self, fit: LowRankFit) -> RankClaim:
        """Fit 95% of the entries, and count the changed ones of the others in their cells."""
        change, cells = self.change(), self.cells()
        hidden = hold_out(self.base, self.tuned, self.form, change, cells)
        seen = fit_low_rank(change, cells, fit.rank, steps=_PATIENCE, is_patient=True)
        parts = zip(hidden.rows.split(_ENTRIES), hidden.columns.split(_ENTRIES), strict=True)
        products = torch.cat([(seen.b[i] * seen.a.mT[j]).sum(dim=1) for i, j in parts])
        fraction, standard_error = hidden.fraction_met(products)
        return RankClaim(self, fit, fraction, standard_error)


def best_claim(claims: list[RankClaim]) -> RankClaim:
    """The claim of smallest rank; of equal ranks the first that no other is clearly better than."""
    smallest = min(claim.fit.rank for claim in claims)
    best, *other_claims = (claim for claim in claims if claim.fit.rank == smallest)
    for claim in other_claims:
        merges = [other.candidate.misses(other.fit.inside) for other in (best, claim)]
        margin = _SIGNIFICANT * math.hypot(best.standard_error, claim.standard_error)
        if merges[0].is_clearly_better(merges[1]):
            continue
        if merges[1].is_clearly_better(merges[0]) or claim.held_out > best.held_out + margin:
            best = claim
    return best
