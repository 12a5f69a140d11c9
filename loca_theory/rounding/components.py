r"""The number of cosine components of the change that a merge made, from the stored pair alone.

As for a :mod:`~loca_theory.rounding.rank`: the smallest number of components whose fit has 99.8% of
the entries in their cells, believed if

- twice the number is at most a quarter of the changed entries (each has a value and a location),
- three quarters of the components have at most 99% inside,
- of the changed entries of 5% held-out cells, at least 60% are met.

The number is searched to 2%. Components too small to move an entry out of its cell are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.rounding.candidates import INSIDE, INSIDE_BEFORE
from loca_theory.rounding.cells import (
    Recipe,
    RoundingCells,
    difference,
    pair_format,
    rounding_cells,
)
from loca_theory.rounding.cosine import CosineFit, fit_cosines
from loca_theory.rounding.formats import Format
from loca_theory.rounding.held_out import hold_out
from loca_theory.rounding.rank import BELIEVED, Outcome
from loca_theory.transforms import dct2

UNKNOWN_COMPONENTS = 0.125
"""Largest number of components per changed entry at which they are claimed."""
_BEFORE = 0.75
_RESOLUTION = 1.02


@dataclass(frozen=True)
class ComponentSearch:
    """The number of cosine components of a change, or why there is none.

    Attributes:
        outcome: Whether a number was found, or why not.
        form: The format of the fine-tune.
        changed: Fraction of the entries that changed.
        components: N, None unless it was found; the same holds for what follows.
        recipe: How the merge rounded.
        fit: The increment of N components.
        held_out: Fraction of the changed entries in their cells, of those that a fit had not seen.
        unknowns: 2N per changed entry.
    """

    outcome: Outcome
    form: Format
    changed: float
    components: int | None = None
    recipe: Recipe | None = None
    fit: CosineFit | None = None
    held_out: float | None = None
    unknowns: float | None = None


def find_components(base: torch.Tensor, tuned: torch.Tensor) -> ComponentSearch:
    """Find the number of cosine components of the change, by the rule of the module.

    Args:
        base: W as stored, shape (p, q), numbers of the format of the fine-tune or of more bits.
        tuned: W' as stored.

    Raises:
        InvalidArgumentError: as :func:`pair_format`, or no entry changed.
    """
    form = pair_format(base, tuned)
    count = int((form.round(base.double()) != tuned.double()).count_nonzero())
    if not count:
        msg = f"no entry changed between base and tuned, both rounded to {form.name}; "
        raise InvalidArgumentError(msg + "pass the fine-tune of this base")
    changed, most = count / tuned.numel(), int(UNKNOWN_COMPONENTS * count)
    change = difference(base, tuned)
    outcomes, claims = list[Outcome](), list[ComponentSearch]()
    for recipe in (Recipe.EXACT, Recipe.ROUNDED_INCREMENT):
        cells = rounding_cells(base, tuned, form, recipe)
        fit = _smallest(change, cells, most)
        if fit is None:
            outcomes.append(Outcome.TOO_FEW_CHANGED)
            continue
        components = len(fit.coefficients)
        if fit_cosines(change, cells, max(1, int(_BEFORE * components))).inside > INSIDE_BEFORE:
            outcomes.append(Outcome.NOT_OF_FORM)
            continue
        shown = change.clone()
        hidden = hold_out(base, tuned, form, shown, cells)
        seen = fit_cosines(shown, cells, components)
        held_out, _ = hidden.fraction_met(seen.increment()[hidden.rows, hidden.columns])
        if held_out < BELIEVED:
            outcomes.append(Outcome.NOT_BELIEVED)
            continue
        claims.append(
            ComponentSearch(
                Outcome.FOUND,
                form,
                changed,
                components=components,
                recipe=recipe,
                fit=fit,
                held_out=held_out,
                unknowns=2 * components / count,
            )
        )
    # The fit of a wrong recipe needs further components for what the recipe leaves outside.
    return min(claims, key=_size) if claims else ComponentSearch(outcomes[0], form, changed)


def _size(claim: ComponentSearch) -> float:
    """The number of components; numbers that differ by less than the search resolves are equal."""
    is_exact = claim.recipe is Recipe.EXACT
    return (claim.components or 0) / (_RESOLUTION**2 if is_exact else 1)


def _smallest(change: torch.Tensor, cells: RoundingCells, most: int) -> CosineFit | None:
    """The fit of the smallest number of components that is inside, up to a number of them."""
    low, high = 0, max(1, min(most, _visible(change)))
    fit = fit_cosines(change, cells, high)
    while fit.inside < INSIDE:
        if high >= most:
            return None
        low, high = high, min(most, 2 * high)
        fit = fit_cosines(change, cells, high)
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
