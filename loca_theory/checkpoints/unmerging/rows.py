"""The row of one layer, and what is computed for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from loca_theory.checkpoints.change.pair import UNCHANGED
from loca_theory.checkpoints.change.task import Pairs
from loca_theory.checkpoints.form.cells import LayerCell
from loca_theory.checkpoints.source.checkpoint import LeftOutError, Reason
from loca_theory.errors import InvalidArgumentError
from loca_theory.increments.truncated_svd import truncated_svd
from loca_theory.rounding import (
    LowRankFit,
    RankSearch,
    Recipe,
    find_rank,
    format_of,
    identical_entries,
)

NOT_ROUNDED = "stored in 24 bits or more: rounding hides nothing, and extract finds the rank"
SWAPPED = "swapped, it seems: what was passed as the base is a merge into the other"
# Significant bits of float32.
_FULL = 24
_FACTORS = "lora_A.weight", "lora_B.weight"


@dataclass(frozen=True)
class UnmergedLayer:
    """What the stored pair tells of the change of one layer.

    Attributes:
        name: Name of the weight.
        shape: (p, q), after a ``Conv1D`` weight is transposed.
        outcome: Whether the change is of low rank, or why that is not claimed.
        format: The format of the fine-tune, by its values.
        changed: Fraction of the entries that changed.
        rank: Rank of the change; None unless it was found, as all that follows.
        form: ``LoRA``.
        recipe: How the merge rounded: ``exact``, ``rounded increment`` or ``rounded twice``.
        base_was_rounded: Whether the merge began from a base rounded to the format, where the one
            that was passed has more bits.
        inside: Fraction of the entries of the recovered change in their rounding cells, before the
            factors are rounded to the stored type.
        held_out: Fraction of the changed entries in their cells, of those that a fit had not seen.
        identical: Fraction of the entries that are the same to the bit if the factors, as they are
            stored, are merged again.
        identical_svd: The same for the truncated singular value decomposition of this rank.
        unknowns: r(p + q) per changed entry.
    """

    name: str
    shape: tuple[int, int]
    outcome: str
    format: str
    changed: float
    rank: int | None = None
    form: str | None = None
    recipe: str | None = None
    base_was_rounded: bool = False
    inside: float | None = None
    held_out: float | None = None
    identical: float | None = None
    identical_svd: float | None = None
    unknowns: float | None = None


@dataclass(frozen=True)
class UnmergeCell(LayerCell):
    """The search for the adapter in one layer; ``dtype`` is the type of its stored factors."""

    experiment: ClassVar[str] = "unmerge"

    dtype: str


def compute_unmerged(cell: UnmergeCell, pairs: Pairs, device: str) -> dict[str, Any]:
    """The row of a layer, and the factors by the last parts of their names."""
    (pair,), layer = pairs.values(), cell.layer
    matrix = pair.matrices[cell.name]
    base, tuned = (matrix.load(side) for side in (pair.base, pair.tuned) if side is not None)
    base, tuned = (side.T if layer.is_transposed else side for side in (base, tuned))
    base, tuned = base.to(device), tuned.to(device)
    try:
        form = format_of(tuned, "the fine-tune")
        is_rounded = form is not None and form.significant_bits < _FULL
        before = base.double() if form is None or not is_rounded else form.round(base.double())
        changed = int((before != tuned.double()).count_nonzero())
        if not changed:
            raise LeftOutError(UNCHANGED)
        row = UnmergedLayer(
            name=layer.weight,
            shape=layer.shape,
            outcome=NOT_ROUNDED,
            format=form.name if form else str(tuned.dtype).removeprefix("torch."),
            changed=changed / tuned.numel(),
        )
        if not is_rounded:
            return {"row": vars(row), "factors": {}}
        search = find_rank(base, tuned)
        if search.recipe is Recipe.ROUNDED_TWICE and _is_swapped(base, tuned):
            return {"row": vars(replace(row, outcome=SWAPPED)), "factors": {}}
    except InvalidArgumentError as error:
        raise LeftOutError(Reason(str(error))) from error
    row = replace(row, outcome=search.outcome.value)
    if search.fit is None:
        return {"row": vars(row), "factors": {}}
    fit = _stored(search.fit, cell.dtype)
    found = {
        "rank": search.rank,
        "form": "LoRA",
        "recipe": search.recipe and search.recipe.value,
        "base_was_rounded": search.base_was_rounded,
        "inside": search.fit.inside,
        "held_out": search.held_out,
        "identical": _identical(search, base, tuned, fit),
        "identical_svd": _identical(search, base, tuned, _decomposed(base, tuned, fit.rank)),
        "unknowns": search.unknowns,
    }
    factors = dict(zip(_FACTORS, (fit.a.cpu(), fit.b.cpu()), strict=True))
    return {"row": vars(row) | found, "factors": factors}


def _is_swapped(base: torch.Tensor, tuned: torch.Tensor) -> bool:
    """Whether the base is the fine-tune with a change that was added to it by one rounding."""
    try:
        other = find_rank(tuned, base)
    except InvalidArgumentError:  # of fewer bits
        return False
    return other.recipe in (Recipe.EXACT, Recipe.ROUNDED_INCREMENT)


def _stored(fit: LowRankFit, dtype: str) -> LowRankFit:
    """The factors as they are stored."""
    b, a = (factor.to(getattr(torch, dtype)).contiguous() for factor in (fit.b, fit.a))
    return LowRankFit(b, a, fit.inside)


def _decomposed(base: torch.Tensor, tuned: torch.Tensor, rank: int) -> LowRankFit:
    """The truncated singular value decomposition of the difference."""
    svd = truncated_svd(tuned.float() - base.float(), rank)
    return LowRankFit(svd.u * svd.s, svd.vh, 0.0)


def _identical(
    search: RankSearch, base: torch.Tensor, tuned: torch.Tensor, fit: LowRankFit
) -> float:
    """Entries that a merge by the recipe gives back, of the product of factors in float32."""
    if search.recipe is None:
        return 0.0
    increment = fit.b.float() @ fit.a.float()
    start = search.form.round(base.double()) if search.base_was_rounded else base
    return identical_entries(start, tuned, increment, search.form, search.recipe)


def rank_settings(ranks: Mapping[str, int]) -> dict[str, Any]:
    """PEFT's settings in which α is the rank of every module, so that ΔW is BA."""
    from loca_theory.checkpoints.form.config import usual_size

    usual, exceptions = usual_size(ranks)
    return {
        "r": usual,
        "lora_alpha": usual,
        "rank_pattern": exceptions,
        "alpha_pattern": exceptions,
    }
