"""Spectra of increments and weights: histograms of eigenvalues, leading subspaces, and overlaps."""

import math

import numpy as np
import pytest
import torch

from loca_theory.checkpoints import analyze
from loca_theory.checkpoints.statistics.comparison import compare, compare_subspaces
from tests.checkpoints.files import normal

RNG = np.random.default_rng(0)
NOISE = RNG.normal(size=(90, 60))
SPIKE = 3 * np.outer(RNG.normal(size=90), RNG.normal(size=60))
LOW_RANK = RNG.normal(size=(90, 3)) @ RNG.normal(size=(3, 60))
# The smallest eigenvalue is 10^-5.9: at 10^-6, rounding would decide in which decade it is.
DECADES = np.linalg.qr(RNG.normal(size=(60, 60)))[0] * 10.0 ** -np.linspace(0, 2.95, 60)
MATRICES = {
    "noise": NOISE,
    "noise with a spike": NOISE + SPIKE,
    "low rank": LOW_RANK,
    "decades": DECADES,
    "tiny entries": 1e-200 * NOISE,
}


def analysed(matrix):
    found = analyze(matrix, ranks=[1])
    return found.matrices[0], found.spectra[0]


@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES)
def test_every_eigenvalue_is_counted_in_its_cell(matrix):
    row, found = analysed(matrix)
    singular = np.linalg.svd(matrix, compute_uv=False)
    if found.is_logarithmic:
        values = 2 * np.log10(np.maximum(singular / singular.max(), 1e-30))
    else:
        values = (singular / (math.sqrt(max(matrix.shape)) * row.mp_sigma)) ** 2
    below = found.below + np.cumsum([0, *found.counts])
    # An eigenvalue within 1e-6 of an edge may be counted on either side of it.
    for edge, count in zip(np.linspace(found.start, found.stop, 41), below, strict=True):
        assert (values < edge - 1e-6).sum() <= count <= (values <= edge + 1e-6).sum()
    assert below[-1] + found.above == len(values)
    beyond = [one for one in values if one > found.stop + 1e-6]
    assert found.leading == pytest.approx(beyond[:12], rel=1e-5)


def test_a_bulk_is_shown_beside_its_law_and_the_rest_by_decades():
    found = {name: analysed(matrix) for name, matrix in MATRICES.items()}
    logarithmic = {name for name, (_, spectrum) in found.items() if spectrum.is_logarithmic}
    assert logarithmic == {"low rank", "decades"}
    _, spectrum = found["noise with a spike"]
    assert (spectrum.start, spectrum.above) == (0, 1)
    assert spectrum.stop == pytest.approx(1.3 * (1 + math.sqrt(60 / 90)) ** 2)
    _, spectrum = found["low rank"]
    assert (spectrum.below, sum(spectrum.counts), spectrum.stop) == (57, 3, 0)
    _, spectrum = found["decades"]
    assert (spectrum.below, spectrum.start) == (0, -6)
    assert max(spectrum.counts) == 2, "60 eigenvalues at equal distances in 40 cells"


@pytest.mark.parametrize("k", [1, 5, 40, 100])
def test_the_numbers_are_those_of_dense_decompositions(k):
    # A decaying spectrum.
    w = normal(60, 40) @ torch.diag(10 * 0.9 ** torch.arange(40))
    change = 0.8 * normal(60, 40, seed=1)
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
    a, b = normal(2, 30, 20).double()
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
    before, after = normal(2, 40, 30)
    (plain,) = analyze(before, after, ranks=2).matrices
    (row,) = analyze(before, after, ranks=2, subspaces=3).matrices
    found = compare_subspaces(after - before, before, 3)
    assert {key: getattr(row, key) for key in found} == pytest.approx(found)
    assert (plain.left_alignment, plain.intruders, plain.subspace_error) == (None, None, None)
