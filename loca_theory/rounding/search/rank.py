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
the fit and its cells. Wide cells are tried only when the narrow ones have no signal
left: they hold a steep spectrum without its last singular values. The cells of
an exact and of a rounded increment are equally wide: where both hold, the
:mod:`entries outside <loca_theory.rounding.search.recipes>` decide, and then held-out cells. Rows
and columns without a change are left out, and where few are left, ranks above a few cannot be told.
The rank of a large matrix is searched in some of its rows and columns, and verified in all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from loca_theory.rounding.cells import Recipe, difference
from loca_theory.rounding.fit.low_rank import ENOUGH, LowRankFit
from loca_theory.rounding.formats import Format
from loca_theory.rounding.search.candidates import INSIDE, Candidate, RankClaim, best_claim
from loca_theory.rounding.search.outcome import Guess, Outcome
from loca_theory.rounding.search.pair import Pair
from loca_theory.rounding.search.recipes import Misses
from loca_theory.rounding.search.signals import count_signals

BELIEVED = 0.6
"""Fraction of changed held-out entries in their cells from which a rank is believed."""
UNKNOWNS = {Recipe.EXACT: 0.5, Recipe.ROUNDED_INCREMENT: 0.5, Recipe.ROUNDED_TWICE: 0.25}
"""Largest number of unknowns per changed entry at which a rank is claimed, by recipe."""
TOLD = 8
"""Where fewer ranks could be told if every entry had changed, no other form is excluded."""
_ROUNDS = 12
# From here on, one more rank is tried even where no signal is left in the gap.
_NEARLY = 0.98
# How many larger ranks by one rounding are tried before two roundings are claimed.
_MORE = 6


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
        unknowns: r(p + q) per changed entry, of the rows p and columns q that changed.
        is_confirmed: Whether it is what a guess said.
        misses: Entries that each merge by one rounding leaves outside at this rank, in the part
            that was searched; none if they were not compared.
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
    is_confirmed: bool = False
    misses: tuple[Misses, ...] = ()


def find_rank(base: torch.Tensor, tuned: torch.Tensor, *, guess: Guess | None = None) -> RankSearch:
    """Find the rank of the change from the rounding cells, by the rule of the module.

    Args:
        base: W as stored, shape (p, q).
        tuned: W' as stored.
        guess: What was found of a similar matrix; verified first, in less time than a search.

    Returns:
        The smallest rank that a recipe holds for, with its fit, or the reason why there is none.

    Raises:
        InvalidArgumentError: as :func:`pair_format`, or no entry changed.
    """
    full = Pair.of(base, tuned)
    rows, columns = full.changed_sides()
    pair = full.at(rows, columns)
    result = _searched(pair, guess)
    if result.fit is not None and pair is not full:
        result = replace(result, fit=_enlarged(result.fit, full, rows, columns))
    return replace(result, changed=full.fraction_changed)


def _searched(pair: Pair, guess: Guess | None) -> RankSearch:
    """The search in a part of a large pair or in all of it, after that of a guess."""
    part = pair.part()
    if part is None or not part.changed:
        return (_confirmed(pair, guess) if guess else None) or _search(pair)
    confirmed = _confirmed(part, guess) if guess else None
    if confirmed and (verified := _verified(confirmed, pair)):
        return verified
    result = _search(part)
    if result.outcome is Outcome.NOT_OF_FORM:
        return result
    if result.outcome is Outcome.FOUND and (verified := _verified(result, pair)):
        return verified
    return _search(pair)


def _confirmed(pair: Pair, guess: Guess) -> RankSearch | None:
    """The search that confirms a guess; None if the guess does not hold."""
    if guess.size > UNKNOWNS[guess.recipe] * pair.changed_per_unknown:
        return None
    candidate = pair.candidate(guess.recipe, rounded=guess.base_was_rounded and pair.is_wide())
    fit = candidate.fit(guess.size)
    claim = candidate.claim(fit) if fit.inside >= INSIDE else None
    if claim is None or claim.fit.rank != guess.size or claim.held_out < BELIEVED:
        return None
    misses = ()
    if claim.candidate.recipe is not Recipe.ROUNDED_TWICE and fit.inside < 1 - 2 * ENOUGH:
        misses = _compared(claim, pair, {})
        merge = claim.candidate.misses(claim.fit.inside)
        if any(other.is_clearly_better(merge) for other in misses):
            return None
    return replace(_result(claim, pair), is_confirmed=True, misses=misses)


def _compared(
    claim: RankClaim, pair: Pair, fits: dict[tuple[Recipe, bool, int], LowRankFit]
) -> tuple[Misses, ...]:
    """The misses of each merge with one rounding, at the rank of a claim."""
    rank, claimed = claim.fit.rank, claim.candidate
    fits[claimed.recipe, claimed.base_was_rounded, rank] = claim.fit
    misses = []
    for candidate in pair.candidates()[0]:
        key = candidate.recipe, candidate.base_was_rounded, rank
        fit = fits.get(key) or candidate.fit(rank)
        misses.append(candidate.misses(fit.inside))
    return tuple(misses)


def _enlarged(fit: LowRankFit, full: Pair, rows: torch.Tensor, columns: torch.Tensor) -> LowRankFit:
    """The fit of some rows and columns, with zeros in all others, which are in their cells."""
    p, q = full.tuned.shape
    b, a = fit.b.new_zeros(p, fit.rank), fit.a.new_zeros(fit.rank, q)
    b[rows], a[:, columns] = fit.b, fit.a
    outside = (1 - fit.inside) * len(rows) * len(columns) / (p * q)
    return LowRankFit(b, a, 1 - outside)


def _search(pair: Pair) -> RankSearch:
    """The search in all rows and columns of a pair."""
    form, changed = pair.form, pair.fraction_changed
    narrow, wide = pair.candidates()
    p, q = pair.tuned.shape
    is_small = UNKNOWNS[Recipe.EXACT] * p * q / (p + q) < TOLD
    outcome = Outcome.TOO_SMALL if is_small else Outcome.NOT_OF_FORM
    rank = max(1, count_signals(difference(pair.rounded, pair.tuned)))
    for candidates in (narrow, wide):
        for _ in range(_ROUNDS):
            if rank > UNKNOWNS[candidates[0].recipe] * pair.changed_per_unknown:
                outcome = Outcome.TOO_SMALL if is_small else Outcome.UNDECIDED
                return RankSearch(outcome, form, changed)
            fits = [(candidate, candidate.fit(rank)) for candidate in candidates]
            claims = [candidate.claim(fit) for candidate, fit in fits if fit.inside >= INSIDE]
            believed = [claim for claim in claims if claim and claim.held_out >= BELIEVED]
            if believed and candidates is wide:
                believed = _in_narrow_cells(narrow, rank, pair) or believed
            if believed:
                return _chosen(best_claim(believed), pair, fits)
            outcome = Outcome.NOT_BELIEVED if any(claims) else outcome
            signals = max(count_signals(candidate.gap(fit)) for candidate, fit in fits)
            if not signals and max(fit.inside for _, fit in fits) <= _NEARLY:
                break
            rank += signals or 1
    return RankSearch(outcome, form, changed)


def _in_narrow_cells(narrow: list[Candidate], rank: int, pair: Pair) -> list[RankClaim]:
    """Claims of a somewhat larger rank by one rounding, before two are claimed.

    Wide cells hold a steep spectrum without its last singular values.
    """
    for larger in range(rank + 1, rank + 2 + min(rank, _MORE)):
        if larger > UNKNOWNS[Recipe.EXACT] * pair.changed_per_unknown:
            return []
        fits = [(candidate, candidate.fit(larger)) for candidate in narrow]
        claims = [candidate.claim(fit) for candidate, fit in fits if fit.inside >= INSIDE]
        believed = [claim for claim in claims if claim and claim.held_out >= BELIEVED]
        if believed:
            return believed
    return []


def _chosen(claim: RankClaim, pair: Pair, fits: list[tuple[Candidate, LowRankFit]]) -> RankSearch:
    """The result of a claim, with the misses of other merges by one rounding."""
    if claim.candidate.recipe is Recipe.ROUNDED_TWICE:
        return _result(claim, pair)
    fitted = {(c.recipe, c.base_was_rounded, fit.rank): fit for c, fit in fits}
    return replace(_result(claim, pair), misses=_compared(claim, pair, fitted))


def _result(claim: RankClaim, pair: Pair) -> RankSearch:
    return RankSearch(
        Outcome.FOUND,
        pair.form,
        pair.fraction_changed,
        rank=claim.fit.rank,
        recipe=claim.candidate.recipe,
        base_was_rounded=claim.candidate.base_was_rounded,
        fit=claim.fit,
        held_out=claim.held_out,
        unknowns=claim.fit.rank / pair.changed_per_unknown,
    )


def _verified(result: RankSearch, pair: Pair) -> RankSearch | None:
    """The result for the whole of a pair, of which a part was searched; None if it fails there."""
    if result.rank is None or result.recipe is None:
        return None
    unknowns = result.rank / pair.changed_per_unknown
    if unknowns > UNKNOWNS[result.recipe]:
        return None
    fit = pair.candidate(result.recipe, rounded=result.base_was_rounded).fit(result.rank)
    return replace(result, fit=fit, unknowns=unknowns) if fit.inside >= INSIDE else None
