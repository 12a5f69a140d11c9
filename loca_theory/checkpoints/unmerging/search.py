"""The search for the adapter in one layer, with what a merge of the result gives back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from loca_theory.checkpoints.change.pair import UNCHANGED, check_finite, wider
from loca_theory.checkpoints.change.task import Pairs
from loca_theory.checkpoints.form.cells import LayerCell
from loca_theory.checkpoints.form.text import text_of
from loca_theory.checkpoints.source.checkpoint import LeftOutError, Reason, Skipped
from loca_theory.checkpoints.unmerging.rows import NEITHER, NOT_ROUNDED, SWAPPED, UnmergedLayer
from loca_theory.errors import InvalidArgumentError
from loca_theory.increments.truncated_svd import truncated_svd
from loca_theory.rounding import (
    ComponentSearch,
    CosineFit,
    Guess,
    LowRankFit,
    Misses,
    Outcome,
    RankSearch,
    Recipe,
    RoundingCells,
    find_adapter,
    fit_cosines,
    format_of,
    identical_entries,
)

LORA, LOCA = "LoRA", "LoCA"
# Significant bits of float32.
_FULL = 24
# A fit in the right direction has more entries inside: it ends when 1e-4 are outside.
_CERTAIN = 0.9995


@dataclass(frozen=True)
class LayerChange:
    """The row of a layer, and the tensors of the adapter, by the last parts of their names.

    Attributes:
        row: The row.
        factors: Tensors as text; "" if there are none.
        misses: Entries that each merge by one rounding leaves outside; none if not compared.
    """

    row: UnmergedLayer
    factors: str = ""
    misses: tuple[Misses, ...] = ()


@dataclass(frozen=True)
class UnmergeCell(LayerCell):
    """The search for the adapter in one layer.

    Attributes:
        dtype: Type of the stored factors.
        guess: What was found in the same weight of another layer.
        guessed_form: Form of the guess.
        with_cosines: Whether LoCA is looked for without a guess.
    """

    experiment: ClassVar[str] = "unmerge"
    result: ClassVar[Any] = LayerChange | Skipped

    dtype: str
    guess: Guess | None = None
    guessed_form: str | None = None
    with_cosines: bool = True


def compute_unmerged(cell: UnmergeCell, pairs: Pairs, device: str) -> LayerChange:
    """The row of a layer, and the factors.

    Raises:
        DamagedError: an entry is not finite.
        LeftOutError: the layer did not change, or cannot be compared.
    """
    (pair,), layer = pairs.values(), cell.layer
    matrix = pair.matrices[cell.name]
    sides = (side for side in (pair.base, pair.tuned) if side is not None)
    base, tuned = (wider(matrix.load(side)) for side in sides)
    if base.dtype == tuned.dtype and torch.equal(base, tuned):
        raise LeftOutError(UNCHANGED)
    for side in (base, tuned):
        check_finite(side)
    base, tuned = (side.T if layer.is_transposed else side for side in (base, tuned))
    base, tuned = base.to(device), tuned.to(device)
    try:
        row, search = _search(cell, base, tuned)
    except InvalidArgumentError as error:
        raise LeftOutError(Reason(str(error))) from error
    if search is None or search.fit is None:
        return LayerChange(row)
    stored = _stored(search.fit, getattr(torch, cell.dtype))
    identical = _identical(search, base, tuned, stored)
    is_low_rank = isinstance(search, RankSearch)
    row = replace(
        row,
        form=LORA if is_low_rank else LOCA,
        rank=search.rank if is_low_rank else None,
        components=None if is_low_rank else search.components,
        recipe=search.recipe and search.recipe.value,
        base_was_rounded=search.base_was_rounded,
        inside=search.fit.inside,
        held_out=search.held_out,
        identical=identical,
        identical_unrounded=(
            identical if cell.dtype == "float32" else _identical(search, base, tuned, search.fit)
        ),
        identical_svd=_identical(search, base, tuned, _without_cells(search.fit, base, tuned)),
        unknowns=search.unknowns,
    )
    return LayerChange(row, text_of(_parameters(stored)), search.misses)


def guess_of(row: UnmergedLayer) -> Guess | None:
    """The guess that a row gives for the same weight of another layer."""
    size = row.components if row.rank is None else row.rank
    if size is None or row.recipe is None:
        return None
    return Guess(size, Recipe(row.recipe), row.base_was_rounded)


def _search(
    cell: UnmergeCell, base: torch.Tensor, tuned: torch.Tensor
) -> tuple[UnmergedLayer, RankSearch | ComponentSearch | None]:
    """The beginning of the row, and the search unless there is nothing to find."""
    form = format_of(tuned, "the fine-tune")
    is_rounded = form is not None and form.significant_bits < _FULL
    if form is None:
        changed = float((base != tuned).double().mean())
    else:
        nothing = torch.zeros((), device=base.device).expand(base.shape)
        changed = 1 - identical_entries(base, tuned, nothing, form)
    if not changed:
        raise LeftOutError(UNCHANGED)
    row = UnmergedLayer(
        name=cell.layer.weight,
        shape=cell.layer.shape,
        outcome=NOT_ROUNDED,
        format=form.name if form else str(tuned.dtype).removeprefix("torch."),
        changed=changed,
    )
    if not is_rounded:
        return row, None
    search = find_adapter(
        base,
        tuned,
        guess=cell.guess,
        is_cosine=cell.guessed_form == LOCA,
        with_cosines=cell.with_cosines,
    )
    if _may_be_swapped(cell, search) and _is_swapped(base, tuned, search):
        return replace(row, outcome=SWAPPED), None
    is_neither = search.outcome is Outcome.NOT_OF_FORM
    return replace(row, outcome=NEITHER if is_neither else search.outcome.value), search


def _may_be_swapped(cell: UnmergeCell, search: RankSearch | ComponentSearch) -> bool:
    """Whether the other direction is worth a search; it is as well as known of a verified guess.

    A swapped merge fits except where it moved a weight to a binade of larger steps.
    """
    if cell.guess is not None or not cell.with_cosines:
        return search.recipe is Recipe.ROUNDED_TWICE and not search.is_confirmed
    return (
        search.fit is None or search.fit.inside < _CERTAIN or search.recipe is Recipe.ROUNDED_TWICE
    )


def _is_swapped(
    base: torch.Tensor, tuned: torch.Tensor, search: RankSearch | ComponentSearch
) -> bool:
    """Whether a change that was added to the fine-tune by one rounding gives the base, or more so.

    Changes that are much smaller than the steps fit in both directions.
    """
    try:
        other = find_adapter(tuned, base)
    except InvalidArgumentError:  # of fewer bits
        return False
    if other.fit is None or other.recipe is Recipe.ROUNDED_TWICE:
        return False
    is_wide = search.recipe is Recipe.ROUNDED_TWICE
    return search.fit is None or is_wide or other.fit.inside > search.fit.inside


def _stored(fit: LowRankFit | CosineFit, dtype: torch.dtype) -> LowRankFit | CosineFit:
    """The fit with its numbers as they are stored."""
    if isinstance(fit, CosineFit):
        return replace(fit, coefficients=fit.coefficients.to(dtype))
    return replace(fit, b=fit.b.to(dtype), a=fit.a.to(dtype))


def _without_cells(
    fit: LowRankFit | CosineFit, base: torch.Tensor, tuned: torch.Tensor
) -> LowRankFit | CosineFit:
    """The best approximation of the difference, of the same form and size."""
    d = tuned.float() - base.float()
    if isinstance(fit, CosineFit):
        return fit_cosines(d, RoundingCells(d, d), len(fit.coefficients), turns=0)
    svd = truncated_svd(d, fit.rank)
    return LowRankFit(svd.u * svd.s, svd.vh, 0.0)


def _identical(
    search: RankSearch | ComponentSearch,
    base: torch.Tensor,
    tuned: torch.Tensor,
    fit: LowRankFit | CosineFit,
) -> float:
    """Entries that a merge by the recipe gives back, of the product of factors in float32."""
    if search.recipe is None:
        return 0.0
    start = search.form.round(base.double()) if search.base_was_rounded else base
    increment = _stored(fit, torch.float32).increment()
    return identical_entries(start, tuned, increment, search.form, search.recipe)


def _parameters(fit: LowRankFit | CosineFit) -> dict[str, torch.Tensor]:
    """The parameters as PEFT names them."""
    if isinstance(fit, CosineFit):
        return {
            "loca_spectrum.coefficients": fit.coefficients,
            "loca_spectrum.indices": fit.indices,
            "loca_spectrum.shape": torch.tensor(fit.shape),
        }
    return {"lora_A.weight": fit.a, "lora_B.weight": fit.b}
