"""How far a simulated number may lie from the expected one, for the whole set of tests at once."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from scipy import stats

# A correct package fails some test of this folder for at most one root seed in a thousand. The
# seeds are fixed, so a failure is a defect or that one seed; nothing is rerun until it passes.
FAMILY_WISE = 1e-3
# At least as many as there are tests, parametrised ones counted one by one.
TESTS = 60


@dataclass(frozen=True)
class Gate:
    """Critical values that share one test's part of the false positives (Šidák's correction).

    A tenth of the part is used: means of skewed draws have tails a little heavier than the normal
    ones, by e^(γz³/6√n), which stays below three here: a sum over pq entries has γ ≈ √(8/pq), so
    that γ/√n ≤ 0.035 for the shapes and draws taken, and z ≤ 5.5.
    """

    error_rate: float = FAMILY_WISE / TESTS

    def each(self, comparisons: int) -> float:
        """False-alarm rate of one of several comparisons."""
        return 1 - (1 - self.error_rate / 10) ** (1 / comparisons)

    def t(self, comparisons: int, freedom: float = float("inf")) -> float:
        """Two-sided critical value of Student's t (normal without ``freedom``)."""
        tail = self.each(comparisons) / 2
        return float(
            stats.norm.isf(tail) if freedom == float("inf") else stats.t.isf(tail, freedom)
        )


@pytest.fixture(scope="session")
def gate() -> Gate:
    return Gate()
