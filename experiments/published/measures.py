"""Measurements of one matrix: an increment, a control, or an increment that was rounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import torch

from experiments.tables import Row
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Accounting, Budget, spectral_error
from loca_theory.expressivity.limits import coefficient_fraction
from loca_theory.expressivity.matrices import retained_energies
from loca_theory.expressivity.methods.registry import find_method
from loca_theory.increments.ranks import effective_rank
from loca_theory.transforms import dct

ACCOUNTINGS = (Accounting.PAPER, Accounting.TRAINABLE, Accounting.BITS)
FORMS: tuple[str, ...] = ("LoRA", "LoCA", "entries")


def concentrations(matrix: torch.Tensor, singular_values: np.ndarray) -> tuple[float, float]:
    """How much the energy is concentrated on few frequencies, of the outputs and of the inputs.

    Let e be the energies of the p rows of C W, with the DCT matrix C, and w the energies of the
    singular directions, both of sum 1. The concentration is (p + 2) ∑e² / (1 + 2 ∑w²). It is 1 in
    expectation if the left singular vectors are uniformly random: of a random orthogonal matrix,
    E uᵢₖ⁴ = 3/(p(p + 2)) and E uᵢₖ²uᵢₗ² = 1/(p(p + 2)). It is larger if the vectors are smooth
    along the axis, constant, or few frequencies for another reason, and smaller if they hold all
    frequencies evenly.
    """
    weights = singular_values**2 / np.square(singular_values).sum()
    expected = 1 + 2 * float(np.square(weights).sum())

    def along(sides: torch.Tensor) -> float:
        energies = dct(sides.T.contiguous()).square().sum(0)  # of the rows of C W
        fractions = energies / energies.sum()
        return (len(fractions) + 2) * float(fractions.square().sum()) / expected

    return along(matrix), along(matrix.T)


def statistics(matrix: torch.Tensor, singular_values: np.ndarray) -> Row:
    """Statistics of a matrix."""
    ratios = concentrations(matrix, singular_values)
    centred = matrix - matrix.mean()
    variance = float(centred.square().mean())
    return {
        "p": matrix.shape[0],
        "q": matrix.shape[1],
        "effective_rank": effective_rank(singular_values**2),
        "excess_kurtosis": float(centred.pow(4).mean()) / variance**2 - 3 if variance else 0.0,
        "concentration": max(ratios),
        "unevenness": max(*ratios, *(1 / ratio for ratio in ratios)),
        "nonzero": float((matrix != 0).double().mean()),
    }


def retained(matrix: torch.Tensor, ranks: Sequence[int]) -> Iterator[Row]:
    """Rows by rank and accounting: statistics, and the energy fraction that each form retains.

    ``predicted`` is the fraction of LoCA that follows from the singular values alone if their
    vectors are random, ``normal_limit`` what it tends to if no few of them dominate.
    """
    matrix = matrix.double()
    singular_values = torch.linalg.svdvals(matrix).numpy()
    about, total = statistics(matrix, singular_values), float(matrix.square().sum())
    for accounting in ACCOUNTINGS:
        budgets = list(fitting_budgets(matrix.shape, ranks, accounting))
        energies = {
            form: retained_energies(matrix, form, budgets) / total for form in FORMS if budgets
        }
        for index, budget in enumerate(budgets):
            yield {
                **about,
                "accounting": accounting.value,
                "r": budget.r,
                **{form: float(values[index]) for form, values in energies.items()},
                "predicted": 1 - spectral_error(singular_values, "LoCA", budget),
                "normal_limit": normal_limit(budget),
            }


def fitting_budgets(
    shape: torch.Size, ranks: Sequence[int], accounting: Accounting
) -> Iterator[Budget]:
    """The budgets that do not exceed what the matrix holds for any form."""
    for r in ranks:
        with suppress(InvalidArgumentError):
            budget = Budget(shape[0], shape[1], r, accounting)
            if all(find_method(form).exists(budget) for form in FORMS):
                yield budget


def normal_limit(budget: Budget) -> float:
    """Energy fraction of the largest of independent normal coordinates, as many as LoCA chooses."""
    return float(coefficient_fraction(budget.chosen_coefficients / (budget.p * budget.q)))


def repeats(increments: Sequence[torch.Tensor], tolerance: float = 0.1) -> list[bool]:
    """Whether each matrix is nearly one before it, up to its sign and a relative distance."""
    flat = [matrix.flatten().double() for matrix in increments]
    return [
        any(
            min(float((vector - earlier).norm()), float((vector + earlier).norm()))
            < tolerance * max(float(vector.norm()), float(earlier.norm()))
            for earlier in flat[:index]
        )
        for index, vector in enumerate(flat)
    ]
