"""The bidiagonal model: its truncation to rounding, its law against dense decompositions."""

import numpy as np
import pytest

from loca_theory.expressivity.laws.bidiagonal import leading_rows, sample_leading_eigenvalues


def whole_bidiagonal(p, q, rng):
    """Every squared singular value, by a dense decomposition of the model's matrix.

    χ²_{p−i} on the diagonal and χ²_{q−1−i} above it, drawn row by row in one call.
    """
    small, large = min(p, q), max(p, q)
    freedoms = [k for i in range(small) for k in (large - i, small - 1 - i)][:-1]
    squares = rng.chisquare(np.array(freedoms, dtype=float))
    matrix = np.diag(np.sqrt(squares[::2])) + np.diag(np.sqrt(squares[1::2]), k=1)
    return np.linalg.svd(matrix, compute_uv=False) ** 2


SHAPES = [(1, 1), (1, 6), (6, 1), (2, 2), (3, 2), (8, 8), (64, 64), (200, 60), (60, 900)]


@pytest.mark.parametrize(("p", "q"), SHAPES, ids=[f"{p}x{q}" for p, q in SHAPES])
def test_truncation_changes_nothing_beyond_rounding(p, q):
    """The leading values of the cut matrix are those of the whole one, for r up to half of it.

    Two backward stable algorithms on n rows: each is off by some n + 8 ulps of the largest value.
    """
    small = min(p, q)
    for seed in range(5):
        uncut = whole_bidiagonal(p, q, np.random.default_rng(seed))
        for r in sorted({1, 2, 3, small // 8, small // 4, small // 2, small} - {0}):
            if r > small:
                continue
            cut, total = sample_leading_eigenvalues(p, q, r, np.random.default_rng(seed))
            assert cut.shape == (r,)
            tolerance = (small + 8) * np.finfo(float).eps * uncut[0]
            np.testing.assert_allclose(cut, uncut[:r], rtol=0, atol=tolerance)
            assert total == pytest.approx(uncut.sum(), rel=1e-12)


@pytest.mark.parametrize("r", [1, 2, 8], ids=lambda r: f"r = {r}")
def test_truncation_holds_in_unlucky_draws(r):
    """One draw in a hundred localises late: many draws, one comparison to rounding each."""
    p = q = 200
    assert leading_rows(p, q, r) < q / 2
    for seed in range(300):
        cut, _ = sample_leading_eigenvalues(p, q, r, np.random.default_rng(seed))
        uncut, _ = sample_leading_eigenvalues(p, q, q, np.random.default_rng(seed))
        tolerance = q * np.finfo(float).eps * uncut[0]
        np.testing.assert_allclose(cut, uncut[:r], rtol=0, atol=tolerance)
