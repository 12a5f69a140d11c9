"""Estimates: blocks, merging, stored results, seeds; and what they must not depend on."""

from typing import NamedTuple

import numpy as np
import pytest

from loca_theory.expressivity import METHODS, Budget, monte_carlo
from loca_theory.expressivity.monte_carlo import ErrorCell, Sampler, evaluate
from loca_theory.sweeps import ResultStore, Runner, generator
from loca_theory.sweeps.random import Moments

ALONE = Runner(jobs=1)

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
# The same numbers gathered in another order, or R's eigenvalues of a matrix cut elsewhere.
ROUNDING = 1e-12


class Estimate(NamedTuple):
    error: float
    standard_error: float | None
    draws: int


def budgets_of(p, q, ranks):
    return tuple(Budget(p, q, r) for r in ranks)


def estimates(series, draws=30, runner=ALONE, **options):
    """Estimates of series: a method, a shape, ranks and a sampler each; one per rank."""
    cells = [
        ErrorCell(METHODS[name], budgets_of(*shape_and_ranks), sampler, (0, draws), **options)
        for name, *shape_and_ranks, sampler in series
    ]
    by_series = []
    for moments in monte_carlo.estimate(cells, runner):
        errors = [None] * len(moments.mean) if moments.count == 1 else moments.standard_error
        by_series.append(
            [
                Estimate(mean, error, moments.count)
                for mean, error in zip(moments.mean, errors, strict=True)
            ]
        )
    return by_series


def estimate(method, shape, ranks, sampler=Sampler.REDUCED, draws=30, **options):
    return estimates([(method, *shape, tuple(ranks), sampler)], draws, **options)[0]


def single_draws(method, shape, ranks, count, sampler="reduced", seed=0):
    """Each draw as a block of its own."""
    arguments = (METHODS[method], budgets_of(*shape, ranks), Sampler(sampler))
    cells = [ErrorCell(*arguments, (k, k + 1), seed=seed) for k in range(count)]
    return np.array([evaluate(cell).mean for cell in cells])


@pytest.mark.parametrize("sampler", ["reduced", "dense"])
@pytest.mark.parametrize("draws", [2, 25, 26, 60], ids=lambda draws: f"{draws} draws")
def test_an_estimate_is_the_mean_of_its_draws_and_their_standard_error(draws, sampler):
    by_draw = single_draws("LoCA", (12, 9), (1, 3), draws, sampler)
    ours = estimate("LoCA", (12, 9), (1, 3), Sampler(sampler), draws)
    means = by_draw.mean(axis=0)
    errors = by_draw.std(axis=0, ddof=1) / np.sqrt(draws)
    assert [row.draws for row in ours] == [draws, draws]
    np.testing.assert_allclose([row.error for row in ours], means, rtol=ROUNDING)
    np.testing.assert_allclose([row.standard_error for row in ours], errors, rtol=1e-10)


def test_a_single_draw_has_no_standard_error():
    ours = estimate("LoCA", (12, 9), (1, 3), draws=1)
    errors = single_draws("LoCA", (12, 9), (1, 3), 1)[0]
    assert ours == [Estimate(error, None, 1) for error in errors]


@pytest.fixture
def computed(monkeypatch):
    """The draws of each block that is computed, in order."""
    blocks = []

    def counting(cell):
        blocks.append((cell.method.name, *cell.draws))
        return evaluate(cell)

    monkeypatch.setattr(monte_carlo, "evaluate", counting)
    return blocks


def test_more_draws_extend_a_stored_run(tmp_path, computed):
    series = [("LoCA", 10, 10, (1, 2), Sampler.REDUCED)]
    store = ResultStore(tmp_path)
    first = estimates(series, 30, Runner(store, jobs=1))
    assert computed == [("LoCA", 0, 25), ("LoCA", 25, 30)]
    computed.clear()
    longer = estimates(series, 60, Runner(store, jobs=1))
    assert computed == [("LoCA", 25, 50), ("LoCA", 50, 60)]
    computed.clear()
    assert estimates(series, 60, Runner(store, jobs=1)) == longer
    assert estimates(series, 30, Runner(store, jobs=1)) == first
    assert computed == []
    assert store.rejected == []
    # A fresh run computes the same as was read back.
    assert estimates(series, 60, ALONE) == longer
    assert estimates(series, 30, ALONE) == first


@pytest.mark.parametrize("method", REDUCED)
@pytest.mark.parametrize("sampler", [*Sampler], ids=[sampler.value for sampler in Sampler])
def test_an_estimate_does_not_depend_on_what_else_is_asked_for(method, sampler):
    """Not on other ranks (R's only to rounding), other methods, other shapes or their order."""
    alone = estimate(method, (14, 11), (2,), sampler)[0]
    among_ranks = estimate(method, (14, 11), (1, 5, 2), sampler)[2]
    assert among_ranks.error == pytest.approx(alone.error, rel=ROUNDING)
    assert among_ranks.standard_error == pytest.approx(alone.standard_error, rel=1e-9)
    other_series = [
        ("random DCT", 14, 11, (1, 3), sampler),
        (method, 11, 14, (2,), sampler),
        (method, 14, 11, (2,), sampler),
    ]
    assert estimates(other_series, 30, ALONE)[2] == [alone]


@pytest.mark.parametrize("sampler", [*Sampler], ids=[sampler.value for sampler in Sampler])
def test_seeds_and_methods_have_draws_of_their_own(sampler):
    first = estimate("random Fourier", (12, 12), (2,), sampler, seed=0)
    other = estimate("random Fourier", (12, 12), (2,), sampler, seed=1)
    assert first[0].error != other[0].error
    # V1 keeps the same number of coordinates of the same white noise at other locations.
    assert estimate("random DCT", (12, 12), (2,), sampler)[0].error != first[0].error


def test_a_draw_is_the_samplers_from_a_generator_of_its_own():
    """A block's draw is the sampler's, from the generator that the seed and the point name."""
    rng = generator(4, "expressivity.monte-carlo", 9, 9, "reduced", "F2", 0)  # the letter
    direct = METHODS["Fourier pairs"].sample([Budget(9, 9, r) for r in (1, 2)], rng)
    np.testing.assert_array_equal(
        single_draws("Fourier pairs", (9, 9), (1, 2), 1, seed=4)[0], direct
    )


def test_on_a_gpu_one_process_does_all_the_work():
    seen = []

    class Watched(Runner):
        def run(self, points, *_):
            seen.append(self.jobs)
            return [Moments.of([[0.5], [0.5]]) for _ in points]

    series = [("LoCA", 8, 8, (1,), Sampler.DENSE)]
    for device in ("cpu", "cuda:0"):
        estimates(series, 2, Watched(jobs=4), device=device)
    assert seen == [4, 1]
