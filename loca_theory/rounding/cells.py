r"""The rounding cell of each entry: all increments Δ from which the stored number follows.

Let w and w' be the stored numbers before and after, both of one format, and rd its rounding to
nearest. Three recipes of a merge lead from one to the other:

- *exact*: w' = rd(w + Δ). Δ ends half a step below and above w' - w, where the upper and the lower
  step of w' differ at a power of two.
- *rounded increment*: w' = rd(w + rd(Δ)), as PEFT merges adapters of half precision, and always
  with ``safe_merge=True``. rd(Δ) is in the exact cell, so Δ lies between the midpoints that enclose
  the numbers of the format in that cell.
- *rounded twice*: two merges one after the other, or a base that was cast after the merge. A
  further rounding error is at most half of a step at the weight in between, whose magnitude is
  taken to be at most that of w or w' plus the root mean square of w' - w. The increment may be
  rounded too.

Ends belong to a cell if the tie is to the even number w', as in the rounding itself.

Source: the definition of rounding to nearest, ties to even (IEEE 754-2019, 4.3.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.rounding.formats import Format, format_of

# Entries that are computed at a time, so that float64 numbers stay in the cache.
_ENTRIES, _ROWS = 2**16, 128
_SHRUNK, _SHRUNK_AT_MOST = 0.1, 0.3
# How many rows the median width is computed from.
_SAMPLED_ROWS = 64
# Added to a number, it shows the direction of the next one.
_FAR = 2.0**120


class Recipe(StrEnum):
    """How a merge rounds, from the narrowest cells to the widest; see the module."""

    EXACT = "exact"
    ROUNDED_INCREMENT = "rounded increment"
    ROUNDED_TWICE = "rounded twice"


@dataclass(frozen=True)
class RoundingCells:
    """Intervals that contain the increment of each entry.

    Attributes:
        low: Smallest increments, shape (p, q).
        high: Largest increments, shape (p, q). Both ends belong to the cell.
    """

    low: torch.Tensor
    high: torch.Tensor

    def contain(self, increment: torch.Tensor) -> torch.Tensor:
        """Which entries of an increment of shape (p, q) lie in their cells."""
        return (increment >= self.low) & (increment <= self.high)

    def nearest(self, increment: torch.Tensor) -> torch.Tensor:
        """The increment with each entry moved to the nearest point of its cell."""
        return increment.clamp(self.low, self.high)

    def shrunk(self, unknowns: int) -> RoundingCells:
        """Cells that are narrower at both ends by 0.1·unknowns/pq of the median width.

        At most 0.3 of its own width is taken from an end of a cell.
        """
        p, q = self.low.shape
        width = (self.high - self.low)[:: max(1, p // _SAMPLED_ROWS)]
        limit = _SHRUNK * float(width[width.isfinite()].median()) * unknowns / (p * q)
        cells = RoundingCells(self.low.clone(), self.high.clone())
        for low, high in zip(cells.low.split(_ROWS), cells.high.split(_ROWS), strict=True):
            margin = high.sub(low).mul_(_SHRUNK_AT_MOST).clamp_(min=0, max=limit)
            low.add_(margin)
            high.sub_(margin)
        return cells


def rounding_cells(
    base: torch.Tensor,
    tuned: torch.Tensor,
    form: Format,
    recipe: Recipe = Recipe.EXACT,
    *,
    dtype: torch.dtype = torch.float32,
) -> RoundingCells:
    """The cells of a pair of matrices.

    For *exact* and *rounded increment*, every number of ``dtype`` between the ends leads to the
    stored number, and the next numbers outside do not. If no increment does, low exceeds high.

    Args:
        base: w, numbers of the format for all recipes but *exact*, of any floating type.
        tuned: w', numbers of the format, of the same shape.
        form: The format that the fine-tune is stored in.
        recipe: How the merge rounded.
        dtype: Type of the ends, float32 or float64.

    Returns:
        The cells, on the device of the pair.

    Raises:
        InvalidArgumentError: the shapes differ, or ``dtype`` is another type.
    """
    _check_shapes(base, tuned)
    if dtype not in (torch.float32, torch.float64):
        raise InvalidArgumentError(f"dtype must be torch.float32 or torch.float64, not {dtype}")
    # Midpoints of 16-bit formats are float32 numbers, and half as many bytes.
    is_short = form.dtype.itemsize <= 2 and base.dtype.itemsize <= 4 and tuned.dtype.itemsize <= 4
    fits = dtype is torch.float32 and is_short and recipe is not Recipe.ROUNDED_TWICE
    work = torch.float32 if fits else torch.float64
    spread = _root_mean_square(base, tuned) if recipe is Recipe.ROUNDED_TWICE else 0.0
    low, high = (torch.empty(tuned.shape, dtype=dtype, device=tuned.device) for _ in range(2))
    flat = base.reshape(-1), tuned.reshape(-1), low.view(-1), high.view(-1)
    for w, image, lowest, highest in zip(*(part.split(_ENTRIES) for part in flat), strict=True):
        before, after = w.to(work), image.to(work)
        if recipe is Recipe.ROUNDED_TWICE:
            below, above = _widest_ends(before, after, form, spread, dtype)
        else:
            below, above = _ends(before, after, form, recipe, dtype)
        lowest.copy_(below)
        highest.copy_(above)
    return RoundingCells(low, high)


def difference(base: torch.Tensor, tuned: torch.Tensor) -> torch.Tensor:
    """W' - W in float32, rounded once."""
    change = torch.empty(base.shape, dtype=torch.float32, device=base.device)
    parts = (part.split(_ROWS) for part in (base, tuned, change))
    work = torch.float64 if base.dtype.itemsize + tuned.dtype.itemsize > 8 else torch.float32
    for before, after, part in zip(*parts, strict=True):
        part.copy_(after.to(work) - before.to(work))
    return change


def pair_format(base: torch.Tensor, tuned: torch.Tensor) -> Format:
    """The format in which a fine-tune is stored, by its values, after checks of the pair.

    Args:
        base: W, shape (p, q).
        tuned: W', of the same shape.

    Raises:
        InvalidArgumentError: one of them is not a matrix of a floating type with finite entries;
            their shapes differ; W' has more than 24 significant bits; or W' has 24 and W fewer.
    """
    for matrix, name in ((base, "base"), (tuned, "tuned")):
        if matrix.ndim != 2 or not matrix.numel():
            raise InvalidArgumentError(
                f"{name} must be a matrix with entries, not of shape {tuple(matrix.shape)}"
            )
    _check_shapes(base, tuned)
    before, after = format_of(base, "base"), format_of(tuned, "tuned")
    if after is None:
        raise InvalidArgumentError(
            "tuned has more than 24 significant bits, so its rounding hides nothing; use its SVD"
        )
    if after.dtype is torch.float32 and before is not None and before is not after:
        raise InvalidArgumentError(
            f"tuned has the 24 bits of float32 and base those of {before.name}: pass the base "
            "first; if they are not swapped, rounding hides nothing here, so use the SVD"
        )
    return after


def _root_mean_square(base: torch.Tensor, tuned: torch.Tensor) -> float:
    parts = zip(base.reshape(-1).split(_ENTRIES), tuned.reshape(-1).split(_ENTRIES), strict=True)
    energy = sum(
        float((after.double() - before.double()).square().sum()) for before, after in parts
    )
    return math.sqrt(energy / max(1, base.numel()))


def _check_shapes(base: torch.Tensor, tuned: torch.Tensor) -> None:
    if base.shape != tuned.shape:
        raise InvalidArgumentError(
            f"base and tuned must have one shape, not {tuple(base.shape)} and "
            f"{tuple(tuned.shape)}; pass the same matrix of both"
        )


def _ends(
    w: torch.Tensor, image: torch.Tensor, form: Format, recipe: Recipe, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Smallest and largest increment from w to its image, as numbers of a type."""
    sign = torch.ones_like(image).copysign_(image)
    image, w = image.abs(), w * sign
    low, high, is_odd = form.midpoint_below(image), form.midpoint_above(image), form.is_odd(image)
    if recipe is Recipe.EXACT:
        low, high = _least(low, -w, is_odd, dtype), -_least(-high, w, is_odd, dtype)
        return _mirrored(low, high, sign)
    first = -form.floor(-_least(low, -w, is_odd, w.dtype))
    last = form.floor(-_least(-high, w, is_odd, w.dtype))
    low, high, zero = form.midpoint_below(first), form.midpoint_above(last), torch.zeros_like(w)
    low = _least(low, zero, form.is_odd(first), dtype)
    high = -_least(-high, zero, form.is_odd(last), dtype)
    return _mirrored(low, high, sign)


def _mirrored(
    low: torch.Tensor, high: torch.Tensor, sign: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Intervals, those of negative sign turned over: products take less time than a selection."""
    positive = sign.add(1).mul_(0.5).to(low.dtype)
    negative = positive - 1
    turned = torch.addcmul(positive * low, negative, high)
    return turned, torch.addcmul(positive * high, negative, low)


def _widest_ends(
    w: torch.Tensor, image: torch.Tensor, form: Format, spread: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Increments that two roundings may have led from, where weights move by about a spread."""
    low, high = form.midpoint_below(image), form.midpoint_above(image)
    further = 0.5 * form.steps(torch.maximum(w.abs(), image.abs()).add_(spread))
    low, high = low - w - further, high - w + further
    low, high = low - 0.5 * form.steps(low), high + 0.5 * form.steps(high)
    outwards = torch.tensor(torch.inf, dtype=dtype, device=w.device)
    return low.to(dtype).nextafter(-outwards), high.to(dtype).nextafter(outwards)


def _least(
    a: torch.Tensor, b: torch.Tensor, strict: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """The smallest number of a type that is at least a + b, or more than it where strict is 1.

    The rounded sum plus the error of its rounding (D. E. Knuth's TwoSum) is exact. Products take
    less time than selections by masks.
    """
    total = a + b
    part = total - a
    error = (a - (total - part)).add_(b - part)
    # Positive where the sum is above its rounded value, or equal to it and strict.
    error.add_(strict, alpha=math.ulp(0) if total.dtype is torch.float64 else 2.0**-149)
    nearest = total.to(dtype)
    if dtype is not total.dtype:
        back = nearest.to(total.dtype)
        error = torch.where(back == total, error, total - back)
    return nearest.nextafter(nearest.add(error > 0, alpha=_FAR))
