"""Histograms of eigenvalues: complete counts, in units that show the law or the decades."""

import math

import numpy as np
import pytest

from loca_theory.checkpoints import analyze

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
    p, q = matrix.shape
    singular = np.linalg.svd(matrix / np.abs(matrix).max(), compute_uv=False)
    if found.is_logarithmic:
        largest = singular.max()
        values = [2 * math.log10(max(one / largest, 1e-30)) for one in singular]
    else:
        unit = math.sqrt(max(p, q)) * row.mp_sigma / np.abs(matrix).max()
        values = [(one / unit) ** 2 for one in singular]
    width = (found.stop - found.start) / 40
    # An eigenvalue within 1e-6 of an edge may be counted on either side of it.
    for cell, count in enumerate(found.counts):
        low, high = found.start + cell * width, found.start + (cell + 1) * width
        surely = sum(low + 1e-6 < one < high - 1e-6 for one in values)
        assert surely <= count <= sum(low - 1e-6 <= one <= high + 1e-6 for one in values)
    assert found.below + sum(found.counts) + found.above == min(p, q)
    beyond = sorted((one for one in values if one > found.stop + 1e-6), reverse=True)
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
