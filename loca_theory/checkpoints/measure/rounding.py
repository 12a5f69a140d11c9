"""How much of a stored change is rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from loca_theory._types import Array
from loca_theory.rounding import Format, format_of, rounded_change

# Significant bits of float32: a change that is stored in as many is not called rounded.
_FULL = 24
# Where more of the entries changed, steps are fine: errors are uniform, of mean square u²/12.
_FINE = 0.9
# Standard deviations of changes, in units of that of the weights, between which the law is
# interpolated, up to the first of fine steps. Below the smallest, it grows like 1/changed.
_SIZES = np.logspace(-4, 1, 26)
# From this many binades above the smallest normal number on, the law does not depend on the size
# of the weights: 0.3% of them are subnormal.
_BINADES = 8


@dataclass(frozen=True)
class StoredChange:
    """The rounding of a pair of matrices, as far as their values tell.

    Attributes:
        format: The narrowest format that holds the fine-tuned matrix; "" beyond float32.
        changed: Fraction of the entries that differ from the base rounded to this format; None if
            the format has 24 bits or more, as for what follows.
        rounding: Energy of the errors of rounding in units of that of the stored change, for
            independent normal weights and changes, of which as many entries change; for a base of
            more bits, that of rounding the base, which is the least that the errors can be. Where
            nearly all entries change, errors are uniform within a step. None if none changed.
    """

    format: str
    changed: float | None = None
    rounding: float | None = None


def stored_change(base: torch.Tensor, tuned: torch.Tensor) -> StoredChange:
    """The format of a fine-tuned matrix by its values, and what it hides of the change."""
    form = format_of(tuned)
    if form is None or form.significant_bits >= _FULL:
        return StoredChange("" if form is None else form.name)
    is_on_grid = form.holds(base)
    before = base if is_on_grid else form.round(base.double())
    changed = int((tuned.to(before.dtype) != before).count_nonzero()) / tuned.numel()
    if not changed:
        return StoredChange(form.name, changed)
    if is_on_grid and changed < _FINE:
        return StoredChange(form.name, changed, _rounding(form, changed, _exponent(form, base)))
    # Of fine steps, and of the base's own rounding.
    steps, change = form.steps(base.float()), tuned.float() - base.float()
    norms = (torch.linalg.vector_norm(matrix, dtype=torch.float64) for matrix in (steps, change))
    lost, stored = map(float, norms)
    return StoredChange(form.name, changed, lost**2 / (12 * stored**2) if stored else None)


def _exponent(form: Format, base: torch.Tensor) -> int:
    """The power of 2 nearest to the weights' root mean square; 0 where the law is the same."""
    norm = float(torch.linalg.vector_norm(base.float(), dtype=torch.float64))
    size = norm / math.sqrt(base.numel())
    constant = form.smallest_exponent + _BINADES
    least = math.log2(form.smallest_step)
    exponent = round(max(least, math.log2(size) if size else least))
    return exponent if exponent < constant else max(0, constant)


def _rounding(form: Format, changed: float, exponent: int) -> float:
    """E(d − Δ)²/E d² where this fraction of the numbers changes."""
    fractions, errors = _law(form, exponent)
    if changed < fractions[0]:
        return float(errors[0] * fractions[0] / changed)
    return float(np.exp(np.interp(np.log(changed), np.log(fractions), np.log(errors))))


@lru_cache
def _law(form: Format, exponent: int) -> tuple[Array, Array]:
    """Fractions of changed numbers, and the relative errors of rounding that go with them."""
    weight = 2.0**exponent
    fractions, errors = [0.0], [math.inf]
    for size in _SIZES:
        if fractions[-1] > _FINE:
            break
        law = rounded_change(form, float(size) * weight, weight)
        if law.energy > 0:  # the smallest changes may leave every number of 8 bits as it is
            fractions.append(law.changed)
            errors.append(law.error / law.energy)
    return np.array(fractions[1:]), np.array(errors[1:])
