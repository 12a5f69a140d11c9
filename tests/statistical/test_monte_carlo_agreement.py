"""Do the simulated errors have the expectations, the laws and the standard errors they claim?"""

import numpy as np
import pytest
import torch
from scipy import stats

from loca_theory.expressivity import METHODS, Budget, exact_error, retained_energies
from loca_theory.expressivity.monte_carlo import ErrorCell, Sampler, estimate
from loca_theory.sweeps import Runner, generator

ALONE = Runner(jobs=1)
# A correct package fails some of at most 60 tests for one root seed in a thousand; the seeds are
# fixed, so a failure is a defect or that one seed. A tenth of each test's part is used: means of
# skewed draws have tails heavier than the normal ones by e^(γz³/6√n), below three for these draws.
ERROR_RATE = 1e-3 / 60 / 10


def each(comparisons):
    """False-alarm rate of one of several comparisons (Šidák's correction)."""
    return 1 - (1 - ERROR_RATE) ** (1 / comparisons)


REDUCED = (
    "LoRA",
    "random Fourier",
    "random DCT",
    "FourierFT",
    "Fourier pairs",
    "Fourier",
    "LoCA",
    "entries",
)
# Squares and rectangles, odd and even, with 1, 2 and 4 self-conjugate entries.
SHAPES = [(5, 5), (6, 9), (12, 12), (16, 7), (30, 30), (13, 40)]
every_method = pytest.mark.parametrize("method", REDUCED)
# The means of all reduced samplers are tested; the joint law of two ranks, where these are nested.
SAMPLED = [m.name for m in METHODS.values() if m.defines("sample")]


def ranks_of(p, q):
    largest = p * q // (p + q)
    return tuple(sorted({1, max(1, largest // 3), largest}))


def estimates_of(series, draws, seed):
    """Moments of series: a method, a shape, ranks and a sampler each."""
    cells = [
        ErrorCell(METHODS[name], tuple(Budget(p, q, r) for r in ranks), sampler, (0, draws), seed)
        for name, p, q, ranks, sampler in series
    ]
    return estimate(cells, ALONE)


def deviations(method, sampler, draws):
    """(mean − exact)/standard error of every shape and rank that has an exact value."""
    series = []
    for p, q in SHAPES:
        fitting = [r for r in ranks_of(p, q) if METHODS[method].exists(Budget(p, q, r))]
        if fitting and "exact" in METHODS[method].engines(Budget(p, q, fitting[0])):
            series.append((method, p, q, tuple(fitting), sampler))
    z_scores = {}
    estimates = estimates_of(series, draws, 11)
    for (_, p, q, ranks, _), moments in zip(series, estimates, strict=True):
        for r, mean, error in zip(ranks, moments.mean, moments.standard_error, strict=True):
            gap = mean - exact_error(method, Budget(p, q, r))
            if error < 1e-12:  # complete: nothing varies, nothing may differ
                assert abs(gap) < 1e-12
                continue
            z_scores[p, q, r] = gap / error
    return z_scores


def assert_near(z_scores, draws):
    limit = stats.t.isf(each(len(z_scores)) / 2, draws - 1)
    assert {cell: z for cell, z in z_scores.items() if abs(z) > limit} == {}


@pytest.mark.parametrize("method", SAMPLED)
def test_reduced_means_are_the_exact_ones(method):
    draws = 1000
    z_scores = deviations(method, Sampler.REDUCED, draws)
    assert_near(z_scores, draws)


def dense_draw(method, budgets, seed):
    """Kept energies of one matrix; for R its fractions of ‖W‖², as the reduced sampler has them."""
    p, q = budgets[0].p, budgets[0].q
    matrix = torch.from_numpy(generator(5, "matrix", p, q, seed).standard_normal((p, q)))
    retained = retained_energies(matrix, method, budgets, generator(5, "choice", p, q, seed))
    return retained / float(matrix.square().sum()) if method == "LoRA" else retained / (p * q)


@every_method
def test_reduced_draws_have_the_law_of_dense_ones(method):
    """Kolmogorov–Smirnov, for each rank and for the step between two: their joint law as well."""
    draws, shapes = 500, [(6, 6), (9, 7), (16, 12)]
    rejected, comparisons = {}, 3 * len(shapes)
    for p, q in shapes:
        ranks = ranks_of(p, q)
        budgets = [Budget(p, q, r) for r in (ranks[0], ranks[-1])]
        dense = np.array([dense_draw(method, budgets, seed) for seed in range(draws)])
        rng = generator(5, "reduced", p, q, method)
        ours = 1 - np.array([METHODS[method].sample(budgets, rng) for _ in range(draws)])
        for name, weights in (("low", (1, 0)), ("high", (0, 1)), ("step", (-1, 1))):
            pvalue = stats.ks_2samp(ours @ weights, dense @ weights).pvalue
            if pvalue < each(comparisons):
                rejected[p, q, name] = pvalue
    assert rejected == {}


@pytest.mark.parametrize("method", ["LoRA", "Fourier pairs"])
def test_standard_errors_are_the_spread_of_the_means(method):
    """F-test of the means' variance over seeds against the variance that they report.

    Both are χ² apart from the draws' kurtosis, which averages out in the means.
    """
    seeds, draws = 60, 25
    series = [(method, 14, 12, (2, 5), Sampler.REDUCED)]
    runs = [estimates_of(series, draws, seed)[0] for seed in range(seeds)]
    means = np.array([run.mean for run in runs])
    reported = np.array([run.standard_error for run in runs])
    ratio = means.var(axis=0, ddof=1) / (reported**2).mean(axis=0)
    law = stats.f(seeds - 1, seeds * (draws - 1))
    tail = each(2) / 2
    assert law.isf(1 - tail) < ratio.min()
    assert ratio.max() < law.isf(tail)


@pytest.mark.parametrize(
    "ranks",
    [(4, 60), pytest.param((4, 340), marks=pytest.mark.deep)],
    ids=["an eighth of the locations", "two thirds of the locations"],
)
def test_random_locations_of_a_large_spectrum_agree_with_the_exact_value(ranks):
    """More than 2²⁰ locations: up to a half with repeats dropped, the others by a permutation."""
    draws = 25
    series = [("FourierFT", 1030, 1030, ranks, Sampler.REDUCED)]
    (ours,) = estimates_of(series, draws, 14)
    exact = [exact_error("FourierFT", Budget(1030, 1030, r)) for r in ranks]
    z_scores = dict(zip(ranks, np.subtract(ours.mean, exact) / ours.standard_error, strict=True))
    assert_near(z_scores, draws)


def test_every_simulated_method_is_covered():
    simulated = {m.name for m in METHODS.values() if "monte-carlo" in m.engines(Budget(8, 8, 2))}
    fitted = {"DoRA", "VeRA", "LoHa", "HiRA", "GLoRA", "Uni-LoRA", "VB-LoRA", "RandLoRA"}
    assert simulated - set(SAMPLED) == fitted


@pytest.mark.deep
@pytest.mark.parametrize("method", SAMPLED)
@pytest.mark.parametrize("sampler", [*Sampler], ids=[sampler.value for sampler in Sampler])
def test_means_are_the_exact_ones_over_many_draws(method, sampler):
    draws = 5000 if sampler is Sampler.REDUCED else 1000
    z_scores = deviations(method, sampler, draws)
    assert_near(z_scores, draws)
