r"""The rank of the change that a merge made, from the stored pair alone.

At the true rank the fraction of entries inside their cells jumps to 1. Guards keep a claim from
what would get inside anyway:

- *unknowns*: r(p + q) per changed entry, at most 0.5, and 0.25 where the merge rounded twice. With
  more, matrices of rank r meet all cells that have nothing to do with the change.
- *jump*: at least 99.8% inside at r, at most 99% at r - 1. The fit of a wrong recipe creeps up.
- *further rounding*: where the merge rounded twice, at least 5% are outside the exact cells, and
  the gap does not lie along the rows or columns of W, as it would if DoRA had scaled them.
- *held-out cells*: of 5% of the entries, which a second fit has not seen, those that changed are
  met to at least 60%.

The candidates begin at the singular values of d above noise, and grow by those of the gap between
the fit and its cells. At each rank all recipes are tried, the narrowest cells first. The cells of
an exact and of a rounded increment are equally wide: where both hold, held-out cells decide. The
rank of a large matrix is searched in some of its rows and columns, and verified in all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.rounding.candidates import INSIDE, Candidate, Claim
from loca_theory.rounding.cells import Recipe, difference, pair_format
from loca_theory.rounding.formats import Format
from loca_theory.rounding.low_rank import LowRankFit
from loca_theory.rounding.signals import count_signals
from loca_theory.sweeps import generator

BELIEVED = 0.6
"""Fraction of changed held-out entries in their cells from which a rank is believed."""
UNKNOWNS = {Recipe.EXACT: 0.5, Recipe.ROUNDED_INCREMENT: 0.5, Recipe.ROUNDED_TWICE: 0.25}
"""Largest number of unknowns per changed entry at which a rank is claimed, by recipe."""
_ROUNDS = 12
# From here on, one more rank is tried even where no signal is left in the gap.
_NEARLY = 0.98
# How many larger ranks by one rounding are tried before two roundings are claimed.
_MORE = 6
# Standard errors by which held-out cells have to differ to decide between recipes.
_SIGNIFICANT = 2
# Of sides above twice this number, so many rows or columns are searched.
_SEARCHED = 1024


class Outcome(StrEnum):
    """What the search for a rank, or for a number of components, came to."""

    FOUND = "found"
    NOT_OF_FORM = "not of this form"
    TOO_FEW_CHANGED = "cannot tell: too few changed entries for the rank"
    NOT_BELIEVED = "not believed: held-out entries are not met"


@dataclass(frozen=True)
class RankSearch:
    """The rank of a change, or why there is none.

    Attributes:
        outcome: Whether a rank was found, or why not.
        form: The format of the fine-tune.
        changed: Fraction of the entries that differ from the base rounded to the format.
        rank: r, None unless it was found; the same holds for what follows.
        recipe: How the merge rounded.
        base_was_rounded: Whether the merge began from a base rounded to the format, where the one
            that was passed has more bits.
        fit: The matrix of rank r.
        held_out: Fraction of the changed entries in their cells, of those that a fit had not seen.
        unknowns: r(p + q) per changed entry.
    """

    outcome: Outcome
    form: Format
    changed: float
    rank: int | None = None
    recipe: Recipe | None = None
    base_was_rounded: bool = False
    fit: LowRankFit | None = None
    held_out: float | None = None
    unknowns: float | None = None


def find_rank(base: torch.Tensor, tuned: torch.Tensor) -> RankSearch:
    """Find the rank of the change from the rounding cells, by the rule of the module.

    Args:
        base: W as stored, shape (p, q).
        tuned: W' as stored.

    Returns:
        The smallest rank that a recipe holds for, with its fit, or the reason why there is none.

    Raises:
        InvalidArgumentError: as :func:`pair_format`, or no entry changed.
    """
    form = pair_format(base, tuned)
    pair = _Pair(base, base if form.holds(base) else form.round(base.double()), tuned, form)
    if not pair.changed:
        msg = f"no entry changed between base and tuned, both rounded to {form.name}; "
        raise InvalidArgumentError(msg + "pass the fine-tune of this base")
    part = pair.part()
    if part is not None and part.changed:
        result = replace(_search(part), changed=pair.changed / tuned.numel())
        if result.outcome is Outcome.NOT_OF_FORM:
            return result
        if result.outcome is Outcome.FOUND and (verified := _verified(result, pair)):
            return verified
    return _search(pair)


class _Pair:
    """The matrices of a base, as stored and rounded, and of a fine-tune."""

    def __init__(
        self, base: torch.Tensor, rounded: torch.Tensor, tuned: torch.Tensor, form: Format
    ) -> None:
        self.base, self.rounded, self.tuned, self.form = base, rounded, tuned, form
        self.changed = int((rounded != tuned).count_nonzero())
        self.allowed = self.changed / sum(tuned.shape)

    def part(self) -> _Pair | None:
        """Random rows and columns of a large pair."""
        if min(self.tuned.shape) <= 2 * _SEARCHED:
            return None
        source = generator(0, "searched rows and columns")
        rows, columns = (
            torch.from_numpy(source.permutation(side)[:_SEARCHED]).to(self.tuned.device)
            for side in self.tuned.shape
        )
        base, rounded, tuned = (
            matrix[rows][:, columns] for matrix in (self.base, self.rounded, self.tuned)
        )
        return _Pair(base, base if self.rounded is self.base else rounded, tuned, self.form)

    def candidate(self, recipe: Recipe, *, rounded: bool) -> Candidate:
        base = self.rounded if rounded else self.base
        return Candidate(base, self.tuned, self.form, recipe, rounded)

    def candidates(self) -> tuple[list[Candidate], list[Candidate]]:
        """All that may have led to the fine-tune, with narrow cells and with wide ones."""
        bases = [False] if self.rounded is self.base else [False, True]
        narrow = [
            self.candidate(recipe, rounded=rounded)
            for recipe in (Recipe.EXACT, Recipe.ROUNDED_INCREMENT)
            for rounded in bases
        ]
        return narrow, [self.candidate(Recipe.ROUNDED_TWICE, rounded=bases[-1])]


def _search(pair: _Pair) -> RankSearch:
    """The search in all rows and columns of a pair."""
    form, changed = pair.form, pair.changed / pair.tuned.numel()
    narrow, wide = pair.candidates()
    outcome = Outcome.NOT_OF_FORM
    rank = max(1, count_signals(difference(pair.rounded, pair.tuned)))
    for _ in range(_ROUNDS):
        if rank > UNKNOWNS[Recipe.EXACT] * pair.allowed:
            return RankSearch(Outcome.TOO_FEW_CHANGED, form, changed)
        fits = list[tuple[Candidate, LowRankFit]]()
        for candidates in (narrow, wide):
            tried = [
                (candidate, candidate.fit(rank))
                for candidate in candidates
                if rank <= UNKNOWNS[candidate.recipe] * pair.allowed
            ]
            claims = [candidate.claim(fit) for candidate, fit in tried if fit.inside >= INSIDE]
            believed = [claim for claim in claims if claim and claim.held_out >= BELIEVED]
            if believed and candidates is wide:
                believed = _in_narrow_cells(narrow, rank, pair) or believed
            if believed:
                return _result(_best(believed), pair)
            outcome = Outcome.NOT_BELIEVED if any(claims) else outcome
            fits += tried
        more = max(count_signals(candidate.gap(fit)) for candidate, fit in fits)
        if not more and max(fit.inside for _, fit in fits[: len(narrow)]) <= _NEARLY:
            break
        rank += more or 1
    return RankSearch(outcome, form, changed)


def _in_narrow_cells(narrow: list[Candidate], rank: int, pair: _Pair) -> list[Claim]:
    """Claims of a somewhat larger rank by one rounding, before two are claimed.

    Wide cells hold a steep spectrum without its last singular values.
    """
    for larger in range(rank + 1, rank + 2 + min(rank, _MORE)):
        for candidate in narrow:
            if larger > UNKNOWNS[candidate.recipe] * pair.allowed:
                return []
            fit = candidate.fit(larger)
            claim = candidate.claim(fit) if fit.inside >= INSIDE else None
            if claim and claim.held_out >= BELIEVED:
                return [claim]
    return []


def _best(claims: list[Claim]) -> Claim:
    """The claim of smallest rank; of equal ranks the first, unless held-out cells say otherwise."""
    smallest = min(claim.fit.rank for claim in claims)
    best, *others = (claim for claim in claims if claim.fit.rank == smallest)
    for claim in others:
        margin = _SIGNIFICANT * math.hypot(best.standard_error, claim.standard_error)
        if claim.held_out > best.held_out + margin:
            best = claim
    return best


def _result(claim: Claim, pair: _Pair) -> RankSearch:
    return RankSearch(
        Outcome.FOUND,
        pair.form,
        pair.changed / pair.tuned.numel(),
        rank=claim.fit.rank,
        recipe=claim.candidate.recipe,
        base_was_rounded=claim.candidate.base_was_rounded,
        fit=claim.fit,
        held_out=claim.held_out,
        unknowns=claim.fit.rank / pair.allowed,
    )


def _verified(result: RankSearch, pair: _Pair) -> RankSearch | None:
    """The result for the whole of a pair, of which a part was searched; None if it fails there."""
    if result.rank is None or result.recipe is None:
        return None
    unknowns = result.rank / pair.allowed
    if unknowns > UNKNOWNS[result.recipe]:
        return None
    fit = pair.candidate(result.recipe, rounded=result.base_was_rounded).fit(result.rank)
    return replace(result, fit=fit, unknowns=unknowns) if fit.inside >= INSIDE else None
