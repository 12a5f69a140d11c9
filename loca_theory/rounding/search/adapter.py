"""The adapter that was merged into a matrix: one of low rank, or one of cosine components."""

from __future__ import annotations

import torch

from loca_theory.rounding.fit.low_rank import LowRankFit
from loca_theory.rounding.search.components import ComponentSearch, find_components
from loca_theory.rounding.search.outcome import Guess, Outcome
from loca_theory.rounding.search.rank import RankSearch, find_rank
from loca_theory.transforms import dct

_ROWS = 256


def find_adapter(
    base: torch.Tensor,
    tuned: torch.Tensor,
    *,
    guess: Guess | None = None,
    is_cosine: bool = False,
    with_cosines: bool = True,
) -> RankSearch | ComponentSearch:
    """Find the rank of the change or, if it has none that can be told, its cosine components.

    Few cosine components are of low rank as well: N components with 2N unknowns count then, not the
    rank r with r(p + q).

    Args:
        base: W as stored, shape (p, q).
        tuned: W' as stored.
        guess: What was found of a similar matrix.
        is_cosine: Whether the guess is a number of components; a rank otherwise.
        with_cosines: Whether to look for components without a guess of them.

    Returns:
        The search that found something; if neither did, that of the rank, unless only the other
        cannot tell.

    Raises:
        InvalidArgumentError: as :func:`find_rank`.
    """
    if guess is not None and is_cosine:
        components = find_components(base, tuned, guess=guess)
        if components.fit is not None:
            return components
    ranks = find_rank(base, tuned, guess=None if is_cosine else guess)
    is_sparse = ranks.fit is not None and _is_sparse_in_cosines(ranks.fit)
    if is_sparse or (ranks.fit is None and with_cosines and not is_cosine):
        components = find_components(base, tuned)
        is_more_likely = (
            ranks.outcome in (Outcome.NOT_OF_FORM, Outcome.UNDECIDED)
            and components.outcome is Outcome.TOO_FEW_CHANGED
        )
        if components.fit is not None or is_more_likely:
            return components
    return ranks


def _is_sparse_in_cosines(fit: LowRankFit) -> bool:
    """Whether fewer cosine coefficients than p + q hold the energy of BA.

    Of coefficients of energies e, (Σe)²/Σe² is the effective number; of a random BA it is a ninth
    to a third of pq.
    """
    left, right = dct(fit.b.mT).mT, dct(fit.a)
    total = fourth = 0.0
    for rows in left.split(_ROWS):
        energies = (rows @ right).square_().double()
        total, fourth = total + float(energies.sum()), fourth + float(energies.square_().sum())
    return total**2 < fourth * (len(left) + right.shape[1])
