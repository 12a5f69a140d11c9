"""The asymptotic engine: the limits at a budget's own shares, and the approach to them."""

import math

import pytest

from loca_theory.expressivity import METHODS, Accounting, Budget, exact_error
from loca_theory.expressivity.limits import low_rank_fraction
from loca_theory.expressivity.methods.engine import Engine
from loca_theory.expressivity.methods.registry import find_method

WITH_LIMIT = [m.name for m in METHODS.values() if Engine.ASYMPTOTIC in m.engines(Budget(8, 8, 2))]


def test_only_the_simulated_methods_lack_a_limit():
    assert set(METHODS) - set(WITH_LIMIT) == {
        "DoRA",
        "VeRA",
        "LoHa",
        "HiRA",
        "GLoRA",
        "Uni-LoRA",
        "VB-LoRA",
        "RandLoRA",
    }


def test_values_at_a_budget_by_hand():
    """K = 768, r = 8: N0/pq = 1/48, so 1/72 of the locations for F2, and 1/96 of the rank."""
    budget = Budget(768, 768, 8)
    values = {
        "FourierFT": 0.5 + 0.5 * (47 / 48) ** 2,  # half the space is out of reach
        "Fourier pairs": 1 - (1 + math.log(72)) / 72,
        "rate-distortion": 2 ** (-2 * 16 / 48),
        "LoRA": 1 - low_rank_fraction(1 / 96),
    }
    for method, limit in values.items():
        assert find_method(method).limit(budget) == pytest.approx(limit)


# Of spectra, and of groups that do not grow with the number of entries, the limits are further off.
SLOW = {"LoRA", "GraLoRA", "BD-LoRA", "QWHA", "DCT-columns"}
CASES = [(shape, Accounting.PAPER) for shape in ((1, 1), (1, 4), (3, 2))]
CASES += [((1, 4), accounting) for accounting in Accounting if accounting is not Accounting.PAPER]


@pytest.mark.parametrize("method", [name for name in WITH_LIMIT if name not in SLOW])
@pytest.mark.parametrize(
    ("shape", "accounting"), CASES, ids=[f"{p}:{q} {name}" for (p, q), name in CASES]
)
def test_exact_values_approach_their_limits(method, shape, accounting):
    """The distance is O(1/pq), beside what rounding down loses.

    In units of the largest of pq energies, on average below 2 ln(pq) + 5: one for the item that a
    count rounded down falls short of its fraction, two for each of the s ≤ 4 self-conjugate entries
    that a limit takes for half a pair, one for the threshold's own variance.
    """
    for scale in (60, 960):
        p, q = scale * shape[0], scale * shape[1]
        budget = Budget(p, q, scale // 20, accounting)
        distance = abs(exact_error(method, budget) - find_method(method).limit(budget))
        assert distance < 10 * (2 * math.log(p * q) + 5) / (p * q)


@pytest.mark.parametrize(("p", "q", "r"), [(64, 64, 4), (960, 240, 24), (60, 4096, 3)], ids=str)
def test_the_best_columns_become_any_columns(p, q, r):
    """Their mean energy is at most 1 + 2√(L/p) + 2L/p of the usual, with L = ln(q/N).

    By Gibbs' variational formula and the generating function of χ²_p.
    """
    budget, method = Budget(p, q, r), find_method("DCT-columns")
    count = method.count(budget)
    depth = math.log(q / count) / p
    gain = (1 - exact_error(method, budget)) * q / count
    assert 1 <= gain <= 1 + 2 * math.sqrt(depth) + 2 * depth
    # An index of each column is what the limit leaves out.
    assert count / q == pytest.approx(1 - method.limit(budget), abs=1 / p + 1 / q)
