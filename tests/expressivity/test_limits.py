"""Large-matrix limits: their ends, and the crossings against other formulas."""

import math

import pytest
from scipy import optimize, stats

from loca_theory.expressivity import Accounting
from loca_theory.expressivity.limits import (
    coefficient_fraction,
    limit_crossings,
    location_fraction,
    low_rank_fraction,
)


def quarter_circle(rho):
    """x − sin x cos x = πρ/2, kept (4/π)(x/2 − sin(4x)/8)."""
    x = optimize.brentq(lambda x: x - math.sin(x) * math.cos(x) - math.pi * rho / 2, 0, math.pi / 2)
    return 4 / math.pi * (x / 2 - math.sin(4 * x) / 8)


@pytest.mark.parametrize("aspect", [1.0, 0.4, 1 / 64], ids=lambda c: f"aspect {c:.3g}")
def test_low_rank_share_at_its_ends(aspect):
    assert low_rank_fraction(0.0, aspect) == 0
    assert low_rank_fraction(1.0, aspect) == 1
    assert low_rank_fraction(math.nextafter(1, 0), aspect) == pytest.approx(1)
    assert low_rank_fraction(1 - 1e-12, aspect) == pytest.approx(1, abs=1e-11)
    assert low_rank_fraction(1e-9, aspect) < 1e-8


@pytest.mark.parametrize("function", [coefficient_fraction, location_fraction])
def test_fractions_at_their_ends(function):
    assert function(0) == 0
    assert function(1) == 1
    assert function(1.2) == 1
    assert function(-0.1) == 0


def test_at_a_crossing_both_methods_have_its_error_by_other_formulas():
    crossings = limit_crossings()
    pairs = [(crossing.lower, crossing.upper) for crossing in crossings]
    assert pairs == [
        ("LoRA", "printed line"),
        ("LoCA", "Fourier pairs"),
        ("LoCA", "printed line"),
        ("Fourier pairs", "printed line"),
    ]
    normal = stats.norm
    errors = {
        "printed line": lambda rho: 1 - 2 * rho,
        "LoRA": lambda rho: 1 - quarter_circle(rho),
        "Fourier pairs": lambda rho: 1 - 4 * rho / 3 * (1 - math.log(4 * rho / 3)),
        "LoCA": lambda rho: 1 - rho - 2 * (z := normal.isf(rho / 2)) * normal.pdf(z),
    }
    for crossing in crossings:
        lower, upper = (errors[method] for method in (crossing.lower, crossing.upper))
        for error in (lower, upper):
            assert error(crossing.ratio) == pytest.approx(crossing.error, abs=1e-9)
        assert lower(crossing.ratio - 1e-3) < upper(crossing.ratio - 1e-3)
        assert lower(crossing.ratio + 1e-3) > upper(crossing.ratio + 1e-3)
    assert limit_crossings("dof") == limit_crossings(Accounting.DOF)
    assert limit_crossings("dof")[0].ratio == pytest.approx(0.32675, abs=1e-5)
