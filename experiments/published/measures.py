"""What each form of adapter retains of one increment, and what decides it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from loca_theory.checkpoints.settings import Settings
from loca_theory.checkpoints.statistics.matrix_errors import fitting_budget
from loca_theory.expressivity import Accounting, Budget, spectral_error
from loca_theory.expressivity.matrices import retained_energies
from loca_theory.expressivity.methods.registry import find_methods
from loca_theory.increments.ranks import effective_rank, energy_ranks
from loca_theory.transforms import dct, dct2

Row = dict[str, Any]

RANKS = (2, 4, 8, 16)
ACCOUNTINGS = (Accounting.PAPER, Accounting.TRAINABLE, Accounting.BITS)
METHODS = ("R", "D", "S", "F2", "FourierFT")
SHUFFLES = 8  # random orders of the shuffled axes
LEADING, ALIKE = 10, 0.5  # singular vectors that may be intruders, and the cosine that clears them
SMALLEST = 16  # sides below this have no ranks to compare


def rows(delta: torch.Tensor, rng: np.random.Generator) -> Iterator[Row]:
    """One row per rank, accounting and form: the fraction of ‖ΔW‖² that is retained.

    The forms are the package's methods; ``D``, its axes in random order (mean over orders); and the
    largest coefficients of the DCT along one axis. ``predicted`` is the fraction that the singular
    values alone predict.
    """
    delta = delta.double()
    total, singular = float(delta.square().sum()), torch.linalg.svdvals(delta).numpy()
    p, q = delta.shape
    spectra = {name: _sorted(spectrum) for name, spectrum in _spectra(delta, rng).items()}
    for accounting in ACCOUNTINGS:
        settings = Settings(RANKS, find_methods(METHODS), accounting=accounting)
        budgets = [one for r in RANKS if (one := fitting_budget(p, q, r, settings))]
        for method in METHODS if budgets else ():
            found = retained_energies(delta, method, budgets, rng) / total
            for budget, retained in zip(budgets, found, strict=True):
                predicted = None
                if method != "FourierFT":
                    predicted = 1 - spectral_error(singular, method, budget)
                yield _row(budget, method, float(retained), predicted)
        for form, cumulative in spectra.items():
            for budget in budgets:
                yield _row(budget, form, cumulative[budget.chosen_coefficients - 1] / total, None)


def _row(budget: Budget, method: str, retained: float, predicted: float | None) -> Row:
    given = {"r": budget.r, "accounting": budget.accounting.value, "method": method}
    return {**given, "retained": retained, "predicted": predicted}


def _sorted(spectra: list[torch.Tensor]) -> np.ndarray:
    """Energy of the 1, 2, … largest coefficients, in the mean over spectra."""
    ordered = (np.sort(one.flatten().square().numpy())[::-1].cumsum() for one in spectra)
    return np.mean(list(ordered), axis=0)


def _spectra(delta: torch.Tensor, rng: np.random.Generator) -> dict[str, list[torch.Tensor]]:
    p, q = delta.shape
    orders = [(rng.permutation(p), rng.permutation(q)) for _ in range(SHUFFLES)]
    return {
        "D, outputs shuffled": [dct2(delta[rows]) for rows, _ in orders],
        "D, inputs shuffled": [dct2(delta[:, columns]) for _, columns in orders],
        "D, both shuffled": [dct2(delta[rows][:, columns]) for rows, columns in orders],
        "DCT along outputs": [dct(delta.T.contiguous())],
        "DCT along inputs": [dct(delta)],
    }


def statistics(base: torch.Tensor, tuned: torch.Tensor) -> Row:
    """Statistics of one increment and its weights."""
    base, tuned = base.double(), tuned.double()
    delta = tuned - base
    squares = torch.linalg.svdvals(delta).square().numpy()
    centred = delta - delta.mean()
    kurtosis = float(centred.pow(4).mean() / centred.square().mean() ** 2 - 3)
    return {
        "p": delta.shape[0],
        "q": delta.shape[1],
        "relative_norm": float(delta.norm() / base.norm()),
        "cosine": float((base * tuned).sum() / (base.norm() * tuned.norm())),
        "excess_kurtosis": kurtosis,
        "effective_rank": effective_rank(squares[::-1]),
        "rank_90": energy_ranks(squares[::-1], (0.9,))[0],
        "unchanged": float((delta == 0).double().mean()),
        "intruders": _intruders(base, tuned),
    }


def _intruders(base: torch.Tensor, tuned: torch.Tensor) -> int:
    """Number of the leading left singular vectors of W′ that are like none of all of W₀'s."""
    before, after = (torch.linalg.svd(one, full_matrices=False).U for one in (base, tuned))
    cosines = (before.T @ after[:, :LEADING]).abs().amax(0)
    return int((cosines < ALIKE).sum())
