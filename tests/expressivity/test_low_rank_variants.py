"""DoRA: naive computations."""

import math

import numpy as np
import pytest
import torch

from loca_theory.expressivity import Accounting, Budget, approximate, retained_energies

from .dense import ROUNDING, approximated, gaussian

SHAPES = [(8, 8, 2), (9, 5, 2), (5, 9, 2), (16, 7, 3), (7, 16, 1), (12, 40, 4)]
shapes = pytest.mark.parametrize(
    ("p", "q", "r"), SHAPES, ids=[f"{p}x{q} r{r}" for p, q, r in SHAPES]
)


def best_rank(matrix, r):
    u, s, vh = np.linalg.svd(matrix, full_matrices=False)
    return (u[:, :r] * s[:r]) @ vh[:r]


def naive_dora(matrix, r):
    """Column by column: unit directions, their best rank-r approximation, the lengths put back."""
    lengths = [math.sqrt(sum(x * x for x in column)) for column in matrix.T]
    directions = np.array([column / n for column, n in zip(matrix.T, lengths, strict=True)]).T
    return best_rank(directions, r) * np.array(lengths)


@shapes
def test_doras_energies_of_several_ranks_are_those_of_the_naive_computation(p, q, r):
    matrix = gaussian(p, q)
    ranks = sorted({1, r, max(1, r - 1)}, reverse=True)
    ours = retained_energies(torch.from_numpy(matrix), "DoRA", [Budget(p, q, k) for k in ranks])
    total = np.sum(matrix**2)
    naive = [total - np.sum((matrix - naive_dora(matrix, k)) ** 2) for k in ranks]
    np.testing.assert_allclose(ours, naive, rtol=ROUNDING)


def test_an_empty_column_is_approximated_by_itself():
    matrix = gaussian(6, 5)
    matrix[:, 2] = 0
    approximation = approximated(matrix, "DoRA", Budget(6, 5, 2))
    np.testing.assert_allclose(approximation[:, 2], 0, atol=ROUNDING)


def test_dora_without_a_rank_left_keeps_nothing():
    """Charged for its magnitudes, DoRA has no rank left at r = 1."""
    matrix = torch.from_numpy(gaussian(8, 8))
    budget = Budget(8, 8, 1, Accounting.TRAINABLE)
    assert retained_energies(matrix, "DoRA", [budget])[0] == 0
    assert not approximate(matrix, "DoRA", budget).any()


def test_a_wide_matrix_needs_no_square_of_its_width():
    """64x20000 in float64 is 10 MB; a 20000x20000 Gram matrix would be 3.2 GB and take hours."""
    matrix = gaussian(64, 20_000)
    energy = retained_energies(torch.from_numpy(matrix), "DoRA", [Budget(64, 20_000, 4)])[0]
    loss = np.sum((matrix - naive_dora(matrix, 4)) ** 2)
    assert energy == pytest.approx(np.sum(matrix**2) - loss, rel=1e-9)
