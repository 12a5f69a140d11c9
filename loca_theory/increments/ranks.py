r"""Ranks of a matrix in three senses, from its squared singular values :math:`λ_1 ≥ λ_2 ≥ …`.

- *Stable rank*: :math:`\sum_i λ_i/λ_1`.
- *Effective rank*: the exponential of the entropy of the singular values,
  :math:`\exp(-\sum_i π_i \ln π_i)` with :math:`π_i = \sqrt{λ_i}/\sum_j\sqrt{λ_j}`.
- *Rank of a fraction f of the energy*: the smallest r with
  :math:`\sum_{i ≤ r} λ_i ≥ f\sum_i λ_i`.

Source: O. Roy and M. Vetterli, The effective rank, EUSIPCO 2007; D. Biderman et al., LoRA learns
less and forgets less, arXiv 2405.09673, for the rank of 90% of the energy of a full fine-tune.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from loca_theory.errors import InvalidArgumentError
from loca_theory.increments.spectrum import checked_spectrum


def stable_rank(eigenvalues: ArrayLike) -> float:
    """‖W‖²_F/‖W‖²₂, between 1 and the rank."""
    values, _ = checked_spectrum(eigenvalues)
    return float(values.sum() / values.max())


def effective_rank(eigenvalues: ArrayLike) -> float:
    """Exponential of the entropy of the singular values, between 1 and the rank.

    >>> round(effective_rank([4.0, 4.0, 4.0, 0.0]), 12)
    3.0
    """
    values, _ = checked_spectrum(eigenvalues)
    fractions = np.sqrt(values[values > 0])
    fractions /= fractions.sum()
    return float(np.exp(-(fractions @ np.log(fractions))))


def energy_ranks(eigenvalues: ArrayLike, fractions: Sequence[float]) -> tuple[int, ...]:
    """Smallest rank at which the truncated SVD retains each fraction of the energy.

    >>> energy_ranks([6.0, 3.0, 1.0], [0.5, 0.9, 0.95])
    (1, 2, 3)
    """
    values, _ = checked_spectrum(eigenvalues)
    if not all(0 < fraction <= 1 for fraction in fractions):
        raise InvalidArgumentError(
            f"fractions must be above 0 and at most 1, not {', '.join(map(str, fractions))}"
        )
    retained = np.cumsum(np.sort(values)[::-1])
    # Divide by the last sum, so that rounding cannot make a fraction of 1 unreachable.
    ranks = np.searchsorted(retained / retained[-1], fractions, side="left") + 1
    return tuple(ranks.tolist())
