"""The row of one layer."""

from __future__ import annotations

from dataclasses import dataclass

NOT_ROUNDED = "stored in 24 bits or more: rounding hides nothing, and extract makes the adapter"
NEITHER = "neither of low rank nor of few cosine components"
SWAPPED = "swapped"


@dataclass(frozen=True)
class UnmergedLayer:
    """The change of one layer, as far as the stored pair tells.

    Attributes:
        name: Name of the weight.
        shape: (p, q), after a ``Conv1D`` weight is transposed.
        outcome: Whether an adapter was found, or why none is claimed.
        format: The format of the fine-tune, by its values.
        changed: Fraction of the entries that changed.
        form: ``LoRA`` or ``LoCA``, the adapter that makes this change; None unless it was found, as
            all that follows. That one was merged is not known: a step of plain gradient descent on
            few tokens is of low rank as well.
        rank: Rank of a LoRA.
        components: Number of coefficients of a LoCA, to 2%.
        recipe: How the merge rounded: ``exact``, ``rounded increment`` or ``rounded twice``.
        base_was_rounded: Whether the merge began from a base rounded to the format, where the one
            that was passed has more bits.
        inside: Fraction of the entries of the recovered change in their rounding cells, before the
            factors are rounded to the stored type.
        held_out: Fraction of the changed entries in their cells, of those that a fit had not seen.
        identical: Fraction of the entries that are the same to the bit if the factors, as they are
            stored, are merged again by the recipe, their product in float32.
        identical_unrounded: The same for the factors before they are rounded to the stored type.
        identical_svd: The same for the best approximation of the difference in this form and size,
            in float32: a truncated singular value decomposition, or the largest coefficients.
        unknowns: r(p + q) per changed entry, of the rows and columns that changed; for LoCA, two
            per coefficient.
    """

    name: str
    shape: tuple[int, int]
    outcome: str
    format: str
    changed: float
    form: str | None = None
    rank: int | None = None
    components: int | None = None
    recipe: str | None = None
    base_was_rounded: bool = False
    inside: float | None = None
    held_out: float | None = None
    identical: float | None = None
    identical_unrounded: float | None = None
    identical_svd: float | None = None
    unknowns: float | None = None
