"""Errors from the singular values alone: against closed laws, random matrices and the limit."""

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, special, stats

from loca_theory.expressivity import (
    METHODS,
    Accounting,
    Budget,
    compare_with_low_rank,
    exact_error,
    spectral_error,
)
from loca_theory.expressivity.limits import coefficient_fraction
from loca_theory.expressivity.matrices import mean_retained_energies
from loca_theory.expressivity.methods import Entries, Selection
from loca_theory.expressivity.methods.registry import find_method, find_methods
from loca_theory.expressivity.spectral import has_spectral_error
from loca_theory.sweeps import generator

SELECTIONS = ("LoCA", "entries", "Fourier", "Fourier pairs")
# Measured differences from the mean over singular vectors, over 1/p + 1/q: for any spectrum, and
# for those with ‖s‖⁴ ≥ 2 Σ s⁴.
FINITE_SIZE, OF_SEVERAL = 0.15, 0.05


def padded(values, size):
    return np.concatenate([values, np.zeros(size - len(values))])


# Laws of a coordinate of unit variance: P(|x| > c), by its density, with the energy per item.
def product_of_normals(c):
    return integrate.quad(lambda x: 2 / np.pi * special.k0(x), c, np.inf, **QUAD)[0]


QUAD = {"epsabs": 0, "epsrel": 1e-13, "limit": 200}
# Spectra with a closed law of |x|: P(|x| > c), and the energy of one coordinate or location.
CLOSED = {
    # g h
    "one, D": ("LoCA", [3.0], product_of_normals, 1),
    # (g₁h₁ + g₂h₂)/√2 has the law of Laplace.
    "two equal, D": ("LoCA", [0.2, 0.2], lambda c: np.exp(-(2**0.5) * c), 1),
    "one, F3": ("Fourier", [7.0], lambda c: np.exp(-(2**0.5) * c), 1),
    # |ζ η| √2 with complex normal ζ and η
    "one, F2": ("Fourier pairs", [1.0], lambda c: 2**0.5 * c * special.k1(2**0.5 * c), 2),
    # Pairs of equal values: a mixture of Laplace's laws, with the weights of partial fractions.
    "pairs, D": (
        "LoCA",
        [3.0, 3.0, 2.0, 2.0, 1.0, 1.0],
        lambda c: (
            81 / 40 * np.exp(-c * 28**0.5 / 3)
            - 16 / 15 * np.exp(-c * 28**0.5 / 2)
            + 1 / 24 * np.exp(-c * 28**0.5)
        ),
        1,
    ),
}


@pytest.mark.parametrize("rank", [3, 12], ids=["few", "many"])
@pytest.mark.parametrize(
    ("method", "values", "above", "energy"), CLOSED.values(), ids=CLOSED.keys()
)
def test_the_law_of_a_coordinate_where_it_is_known(method, values, above, energy, rank):
    """P(|x| > c) = f gives c; E[x²; |x| > c] = c² f + ∫ 2x P(|x| > x) dx, less δ c³ density."""
    p, q = 40, 60
    budget = Budget(p, q, rank)
    count = budget.chosen_locations if method == "Fourier pairs" else budget.chosen_coefficients
    f = energy * count / (p * q)
    c = optimize.brentq(lambda c: above(c) - f, 1e-3, 50, xtol=1e-15)
    beyond = c * c * f + integrate.quad(lambda x: 2 * x * above(x), c, 45, **QUAD)[0]
    step = 1e-5 * c
    density = 8 * (above(c - step) - above(c + step)) - above(c - 2 * step) + above(c + 2 * step)
    delta = (1 / p + 1 / q) / 2 * (1 if method == "LoCA" else 0.5)
    expected = 1 - (beyond - delta * c**3 * density / (12 * step)) / energy
    error = spectral_error(padded(values, 40), method, budget)
    # The density is a difference quotient of a function of absolute accuracy 1e-15.
    assert error == pytest.approx(expected, abs=1e-9)
    huge = Budget(40 * 2**15, 60 * 2**15, rank * 2**15)
    without = spectral_error(padded(values, 40 * 2**15), method, huge)
    assert without == pytest.approx(1 - beyond / energy, abs=1e-6)


def spectra(size):
    i = np.arange(1.0, size + 1)
    noise = np.linalg.svd(generator(3, size).standard_normal((size, size)), compute_uv=False)
    return {
        "1/i": 1 / i,
        "i^-1/2": i**-0.5,
        "spike": padded([noise[0] * 2, *noise[1:]], size),
        "rank one": padded([1.0], size),
        "flat, rank 8": padded([1.0] * 8, size),
        "geometric": 0.7**i,
        "noise": noise,
    }


def haar(rng, size, rank):
    q, r = np.linalg.qr(rng.standard_normal((size, rank)))
    return q * np.sign(np.diag(r))


def simulated(p, q, values, budget, draws, rng):
    """Errors of the selections on random matrices, shape (draws, methods)."""
    values = values[values > 0]
    total, errors = (values**2).sum(), []
    for _ in range(draws):
        w = (haar(rng, p, len(values)) * values) @ haar(rng, q, len(values)).T
        retained = mean_retained_energies(torch.from_numpy(w), find_methods(SELECTIONS), [budget])
        errors.append([1 - retained[method][0] / total for method in SELECTIONS])
    return np.array(errors)


SIZES = [
    (32, 32, 3, 100),
    (48, 24, 1, 100),
    (64, 64, 2, 60),
    pytest.param(128, 128, 16, 400, marks=pytest.mark.deep),
    pytest.param(256, 256, 8, 100, marks=pytest.mark.deep),
    pytest.param(96, 384, 20, 200, marks=pytest.mark.deep),
]


@pytest.mark.parametrize(("p", "q", "r", "draws"), SIZES)
def test_random_singular_vectors_leave_what_is_predicted(p, q, r, draws):
    budget = Budget(p, q, r)
    # All 3 sizes of a tier together are wrong with probability 0.001.
    names = spectra(min(p, q))
    limit = stats.norm.isf(0.001 / 2 / (3 * len(names) * len(SELECTIONS)))
    for i, (name, values) in enumerate(names.items()):
        errors = simulated(p, q, values, budget, draws, generator(0, "spectral", p, q, i))
        tolerance = FINITE_SIZE if name == "rank one" else OF_SEVERAL
        for method, column in zip(SELECTIONS, errors.T, strict=True):
            slack = limit * column.std(ddof=1) / np.sqrt(draws) + tolerance * (1 / p + 1 / q)
            gap = column.mean() - spectral_error(values, method, budget)
            assert abs(gap) < slack, (name, method)


def test_low_rank_and_linear_families_are_exact():
    values = np.array([3.0, 0.0, 1.0, 2.0] + [0.5] * 20)
    budget = Budget(24, 30, 2)
    assert spectral_error(values, "LoRA", budget) == pytest.approx(1 - 13 / (14 + 20 * 0.25))
    for method in ("random Fourier", "random DCT", "FourierFT"):
        assert spectral_error(values, method, budget) == exact_error(method, budget)


@pytest.mark.parametrize("method", ["LoRA", "random Fourier", "LoCA", "Fourier pairs", "Fourier"])
def test_neither_unit_nor_order_matters(method):
    values, budget = generator(2).uniform(size=24), Budget(24, 30, 2)
    expected = spectral_error(values, method, budget)
    for scale in (1e-200, 1e200):
        assert spectral_error(scale * values[::-1], method, budget) == pytest.approx(expected)


def test_whole_and_small_matrices():
    assert spectral_error([1.0, 0.5], "LoCA", Budget(2, 2, 1, Accounting.TRAINABLE)) == 0
    for shape in ((2, 2), (2, 3), (3, 60)):
        budget = Budget(*shape, 1)
        for method in SELECTIONS:
            retained = 1 - spectral_error([1.0] * min(shape), method, budget)
            # The largest coordinates hold at least their fraction of the energy.
            assert 2 * budget.chosen_locations / (shape[0] * shape[1]) <= retained <= 1


class OwnBasis(Entries):
    atom_singular_values = None


class OwnSelection(Selection):
    pass


def test_which_methods_have_one():
    covered = {name for name, method in METHODS.items() if has_spectral_error(method)}
    bounds = {"printed line", "upper bound", "lower bound", "rate-distortion"}
    fitted = {"DoRA", "VeRA", "LoHa", "HiRA", "GLoRA", "Uni-LoRA", "VB-LoRA", "RandLoRA"}
    # Blocks, Kronecker products, columns and quotas have other laws.
    assert set(METHODS) - covered == bounds | fitted | {
        "GraLoRA",
        "BD-LoRA",
        "LoKr",
        "QWHA",
        "MaCP",
        "DCT-columns",
    }
    assert spectral_error(np.arange(1, 9), "C3A", Budget(8, 8, 2)) == 1 - 32 / 64
    # Whoever selects in another way, or in a basis of atoms that are not known
    assert not has_spectral_error(OwnSelection("own", basis=Entries()))
    assert not has_spectral_error(Selection("own", basis=OwnBasis()))


def test_the_criterion_compares_two_energy_fractions():
    budget = Budget(300, 300, 8)
    noise = np.linalg.svd(generator(4).standard_normal((300, 300)), compute_uv=False)
    for fraction, better in ((0.08, "LoCA"), (0.12, "LoRA")):  # the crossing is at 0.0986
        spiked = np.append(noise[1:], np.sqrt(fraction / (1 - fraction) * (noise**2).sum()))
        comparison = compare_with_low_rank(spiked, budget)
        assert comparison.better == better
        assert comparison.low_rank == pytest.approx(1 - spectral_error(spiked, "LoRA", budget))
        assert comparison.other == 1 - spectral_error(spiked, "LoCA", budget)
        assert comparison.normal_limit == pytest.approx(coefficient_fraction(8 / 300))
    other = compare_with_low_rank(spiked, budget, find_method("Fourier pairs"))
    assert (other.method, other.other) == (
        "Fourier pairs",
        1 - spectral_error(spiked, "Fourier pairs", budget),
    )
