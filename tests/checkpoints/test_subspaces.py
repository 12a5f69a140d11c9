"""Alignment, intruder dimensions and overlaps, against dense decompositions."""

import numpy as np
import pytest
import torch

from loca_theory.checkpoints import analyze
from loca_theory.checkpoints.statistics.comparison import compare, compare_subspaces

generator = torch.Generator().manual_seed(0)


@pytest.mark.parametrize("k", [1, 5, 40, 100])
def test_the_numbers_are_those_of_dense_decompositions(k):
    # A decaying spectrum.
    w = torch.randn(60, 40, generator=generator) @ torch.diag(10 * 0.9 ** torch.arange(40))
    change = 0.8 * torch.randn(60, 40, generator=generator)
    found = compare_subspaces(change, w, k)
    k = min(k, 40)
    (ud, _, vd), (u0, _, v0), (ua, _, _) = (
        np.linalg.svd(one.double().numpy()) for one in (change, w, w + change)
    )
    cosines = np.abs(u0[:, : min(4 * k, 40)].T @ ua[:, :k]).max(axis=0)
    assert np.abs(cosines - 0.5).min() > 1e-3, "no cosine is too close to the threshold"
    assert found["intruders"] == (cosines < 0.5).sum()
    assert 0 <= found["subspace_error"] < 1e-4
    # Angles between spans move by the rounding over the gap of the singular values, here about 1%.
    assert found["left_alignment"] == pytest.approx(
        ((u0[:, :k].T @ ud[:, :k]) ** 2).sum() / k, abs=1e-3
    )
    assert found["right_alignment"] == pytest.approx(((v0[:k] @ vd[:k].T) ** 2).sum() / k, abs=1e-3)


def test_two_increments_are_compared_by_their_entries():
    a, b = (torch.randn(30, 20, generator=generator, dtype=torch.float64) for _ in range(2))
    a[:, :4], b[:, 2:6] = 0, 0
    found = compare("layers.3.q_proj.weight", ("x", "y"), 1e30 * a, 1e-30 * b, 4)
    x, y = a.numpy().ravel(), b.numpy().ravel()
    both = (x != 0) & (y != 0)
    assert found.cosine == pytest.approx(x @ y / np.linalg.norm(x) / np.linalg.norm(y), abs=1e-12)
    assert found.sign_conflict == (x[both] * y[both] < 0).mean()
    assert (found.kind, found.layer, found.first, found.second) == ("query", 3, "x", "y")
    opposite = compare("w", ("x", "y"), a, -a, 4)
    assert (opposite.cosine, opposite.sign_conflict) == (pytest.approx(-1), 1)
    assert opposite.left_overlap == pytest.approx(1, abs=1e-5)
    assert opposite.right_overlap == pytest.approx(1, abs=1e-5)
    apart = compare("w", ("x", "y"), torch.eye(8), torch.eye(8).flip(0))
    assert (apart.cosine, apart.sign_conflict, apart.left_overlap) == (0, None, None)


def test_an_analysis_has_these_columns_only_on_request():
    base = {"w": torch.randn(40, 30, generator=generator)}
    tuned = {"w": base["w"] + torch.randn(40, 30, generator=generator)}
    (plain,) = analyze(base, tuned, ranks=2).matrices
    (row,) = analyze(base, tuned, ranks=2, subspaces=3).matrices
    found = compare_subspaces(tuned["w"] - base["w"], base["w"], 3)
    assert {key: getattr(row, key) for key in found} == pytest.approx(found)
    assert (plain.left_alignment, plain.intruders, plain.subspace_error) == (None, None, None)
