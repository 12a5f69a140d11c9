r"""The number of cosine components of the change that a merge made, from the stored pair alone.

As for a :mod:`~loca_theory.rounding.search.rank`: the smallest number of components whose fit has
99.8% of the entries in their cells, believed if

- twice the number is at most a quarter of the changed entries (each has a value and a location),
- three quarters of the components have at most 99% inside,
- of the changed entries of 5% held-out cells, at least 60% are met.

The number is searched to 2%. Components too small to move an entry out of its cell are not counted.

A short fit of twice the components that d shows decides whether to search at all. Of the entries
that are outside without a change, it brings 74% and more inside where d has cosine components for
up to a quarter of the changed entries, and at most 1% of other changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from loca_theory.rounding.cells import Recipe, RoundingCells
from loca_theory.rounding.fit.cosine import CosineFit, fit_cosines
from loca_theory.rounding.formats import Format
from loca_theory.rounding.search.candidates import INSIDE, INSIDE_BEFORE, Candidate
from loca_theory.rounding.search.held_out import hold_out
from loca_theory.rounding.search.outcome import Guess, Outcome
from loca_theory.rounding.search.pair import Pair
from loca_theory.rounding.search.rank import BELIEVED
from loca_theory.rounding.search.recipes import Misses
from loca_theory.transforms import dct2

UNKNOWN_COMPONENTS = 0.125
"""Largest number of components per changed entry at which they are claimed."""
_BEFORE = 0.75
_RESOLUTION = 1.02
# The fraction of the entries outside without a change that are inside after a short fit of LoCA.
_SHORT_FIT = 0.25


@dataclass(frozen=True)
class ComponentSearch:
    """The number of cosine components of a change, or why there is none.

    Attributes:
        outcome: Whether a number was found, or why not.
        form: The format of the fine-tune.
        changed: Fraction of the entries that changed.
        components: N, None unless it was found; the same holds for what follows.
        recipe: How the merge rounded.
        base_was_rounded: Whether the merge began from a base rounded to the format, where the one
            that was passed has more bits.
        fit: The increment of N components.
        held_out: Fraction of the changed entries in their cells, of those that a fit had not seen.
        unknowns: 2N per changed entry.
        is_confirmed: Whether a guess led to it.
        misses: Entries that each merge by one rounding leaves outside with N components.
    """

    outcome: Outcome
    form: Format
    changed: float
    components: int | None = None
    recipe: Recipe | None = None
    base_was_rounded: bool = False
    fit: CosineFit | None = None
    held_out: float | None = None
    unknowns: float | None = None
    is_confirmed: bool = False
    misses: tuple[Misses, ...] = ()


def find_components(
    base: torch.Tensor, tuned: torch.Tensor, *, guess: Guess | None = None
) -> ComponentSearch:
    """Find the number of cosine components of the change, by the rule of the module.

    Args:
        base: W as stored, shape (p, q), numbers of the format of the fine-tune or of more bits.
        tuned: W' as stored.
        guess: What was found of a similar matrix, from which the search begins.

    Raises:
        InvalidArgumentError: as :func:`pair_format`, or no entry changed.
    """
    pair = Pair.of(base, tuned)
    outcome, claims = Outcome.NOT_OF_FORM, list[ComponentSearch]()
    if guess is not None:
        candidate = pair.candidate(guess.recipe, rounded=guess.base_was_rounded and pair.is_wide())
        claim = _claim(candidate, pair, guess.size)
        if isinstance(claim, ComponentSearch):
            claim = _compared(claim, pair)
            merge = candidate.misses(claim.fit.inside if claim.fit else 0.0)
            if not any(other.is_clearly_better(merge) for other in claim.misses):
                return replace(claim, is_confirmed=True)
    for candidate in pair.candidates()[0]:
        claim = _claim(candidate, pair)
        if isinstance(claim, ComponentSearch):
            claims.append(claim)
        elif outcome is Outcome.NOT_OF_FORM:
            outcome = claim
    if not claims:
        return ComponentSearch(outcome, pair.form, pair.fraction_changed)
    # The fit of a wrong recipe needs further components for what the recipe leaves outside.
    return _compared(min(claims, key=_size), pair)


def _compared(claim: ComponentSearch, pair: Pair) -> ComponentSearch:
    """The claim, with the misses of each merge by one rounding at its size."""
    misses = []
    for candidate in pair.candidates()[0]:
        fit = fit_cosines(candidate.change(), candidate.cells(), claim.components or 1)
        misses.append(candidate.misses(fit.inside))
    return replace(claim, misses=tuple(misses))


def _claim(candidate: Candidate, pair: Pair, guess: int | None = None) -> ComponentSearch | Outcome:
    """The number of components by a recipe, or why none is claimed."""
    limit = int(UNKNOWN_COMPONENTS * pair.changed)
    change, cells = candidate.change(), candidate.cells()
    visible = max(1, _visible(change))
    if limit < 1 or not _is_promising(change, cells, min(2 * visible, limit)):
        return Outcome.NOT_OF_FORM
    fit = _smallest(change, cells, _trials(visible, guess, limit))
    if fit is None:
        return Outcome.TOO_FEW_CHANGED
    components = len(fit.coefficients)
    if fit_cosines(change, cells, max(1, int(_BEFORE * components))).inside > INSIDE_BEFORE:
        return Outcome.NOT_OF_FORM
    hidden = hold_out(candidate.base, candidate.tuned, pair.form, change, cells)
    seen = fit_cosines(change, cells, components)
    held_out, _ = hidden.fraction_met(seen.increment()[hidden.rows, hidden.columns])
    if held_out < BELIEVED:
        return Outcome.NOT_BELIEVED
    return ComponentSearch(
        Outcome.FOUND,
        pair.form,
        pair.fraction_changed,
        components=components,
        recipe=candidate.recipe,
        base_was_rounded=candidate.base_was_rounded,
        fit=fit,
        held_out=held_out,
        unknowns=2 * components / pair.changed,
    )


def _size(claim: ComponentSearch) -> float:
    """The number of components; numbers that differ by less than the search resolves are equal."""
    is_exact = claim.recipe is Recipe.EXACT
    return (claim.components or 0) / (_RESOLUTION**2 if is_exact else 1)


def _is_promising(change: torch.Tensor, cells: RoundingCells, components: int) -> bool:
    """Whether a short fit brings entries inside that were outside without a change."""
    zero = float(cells.contain(torch.zeros((), device=change.device)).double().mean())
    short = fit_cosines(change, cells, components, turns=1)
    return short.inside - zero >= _SHORT_FIT * (1 - zero)


def _trials(visible: int, guess: int | None, limit: int) -> Iterator[int]:
    """Numbers of components to try until one is inside: around a guess, then twice as many each."""
    count = min(visible, limit)
    if guess is not None and guess < limit:
        yield from (max(1, int(guess / _RESOLUTION)), guess)
        count = int(guess * _RESOLUTION) + 1
    while count < limit:
        yield count
        count *= 2
    yield limit


def _smallest(
    change: torch.Tensor, cells: RoundingCells, trials: Iterator[int]
) -> CosineFit | None:
    """The fit of the smallest number of components that is inside, up to the last trial."""
    low = 0
    for high in trials:
        fit = fit_cosines(change, cells, high)
        if fit.inside >= INSIDE:
            break
        low = high
    else:
        return None
    while high > max(low + 1, _RESOLUTION * low):
        middle = (low + high) // 2
        trial = fit_cosines(change, cells, middle)
        if trial.inside >= INSIDE:
            high, fit = middle, trial
        else:
            low = middle
    return fit


def _visible(change: torch.Tensor) -> int:
    """Number of coefficients of d above four times their root mean square."""
    spectrum = dct2(change).abs()
    return int((spectrum > 4 * spectrum.square().mean().sqrt()).count_nonzero())
