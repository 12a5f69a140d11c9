"""The reduced sampler's structure: prefixes, locations, bookkeeping; not its law."""

import numpy as np
import pytest
from scipy import stats

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import METHODS, Budget
from loca_theory.expressivity.methods.coordinates import CoordinateMethod
from loca_theory.expressivity.methods.names import display_name
from loca_theory.expressivity.random_choices import first_hits, random_indices, required

REDUCED = [m.name for m in METHODS.values() if isinstance(m, CoordinateMethod)]
every_method = pytest.mark.parametrize("method", [*REDUCED, "R"])

# Sums of the same numbers in the same order; R's values come from matrices of other sizes.
ROUNDING = 1e-12

# Above this many locations random_places draws with replacement and drops repeats.
LARGE = (1 << 20) + 5


@every_method
@pytest.mark.parametrize("shape", [(2, 2), (12, 12), (9, 20)], ids=str)
def test_a_smaller_budget_reads_a_prefix(method, shape):
    p, q = shape
    ranks = range(1, p * q // (p + q) + 1)
    budgets = [Budget(p, q, r) for r in ranks]
    together = METHODS[method].sample(budgets, np.random.default_rng(3))
    alone = [METHODS[method].sample([budget], np.random.default_rng(3))[0] for budget in budgets]
    np.testing.assert_allclose(alone, together, rtol=0, atol=ROUNDING)
    assert (np.diff(together) <= ROUNDING).all()


@pytest.mark.parametrize(
    ("method", "larger"),
    [
        *((method, 9) for method in (*REDUCED, "R")),
        *((method, larger) for method in ("F1", "V1", "FourierFT") for larger in (200, 300)),
    ],
)
def test_a_smaller_budget_reads_a_prefix_of_a_large_matrix(method, larger):
    """1030² locations: FourierFT draws its 2060 a rank with replacement up to half of them."""
    small = Budget(1030, 1030, 8)
    alone = METHODS[method].sample([small], np.random.default_rng(3))
    both = METHODS[method].sample([Budget(1030, 1030, larger), small], np.random.default_rng(3))
    assert alone[0] == pytest.approx(both[1], abs=ROUNDING)


@pytest.mark.parametrize("method", ["U", "M1", "M2", "RD", "DoRA", "VeRA"])
def test_a_method_without_reduced_form_is_refused(method):
    with pytest.raises(
        InvalidArgumentError,
        match=f'{display_name(method)} has no reduced sampler; use sampler="dense"',
    ):
        METHODS[method].sample([Budget(8, 8, 1)], np.random.default_rng(0))


def test_random_methods_without_a_generator_are_refused():
    with pytest.raises(InvalidArgumentError, match=r"pass rng=numpy\.random\.default_rng\(seed\)"):
        required(None)


def test_many_locations_are_all_there_are_and_fewer_are_the_first_of_more():
    longest = random_indices(LARGE, LARGE, np.random.default_rng(1))
    np.testing.assert_array_equal(np.sort(longest), np.arange(LARGE))
    for count in (0, 1, 8192, 100_000, LARGE // 2, LARGE // 2 + 1):
        ours = random_indices(LARGE, count, np.random.default_rng(1))
        np.testing.assert_array_equal(ours, longest[:count])


def test_many_locations_are_a_stream_of_uniform_integers_without_its_repeats():
    """Against a loop over the stream, for counts that just fill chunks or just do not."""
    chunk = 8192
    stream = np.random.default_rng(2).integers(0, LARGE, 40 * chunk)
    distinct = np.array(list(dict.fromkeys(stream.tolist())))
    for chunks in (1, 2, 10):
        # What so many chunks hold on average, from where on one more is drawn, and what they hold.
        expected = int(-LARGE * np.expm1(-chunks * chunk / LARGE))
        held = len(np.unique(stream[: chunks * chunk]))
        assert expected != held
        for count in (*range(expected - 1, expected + 3), held - 1, held, held + 1):
            ours = random_indices(LARGE, count, np.random.default_rng(2))
            np.testing.assert_array_equal(ours, distinct[:count])


def test_every_ordering_of_few_locations_is_equally_likely():
    """χ² over the 5·4·3 ordered choices of 3 locations among 5; one false positive in 10⁴ seeds."""
    rng = np.random.default_rng(3)
    draws = [random_indices(5, 3, rng) for _ in range(6000)]
    codes = [int(25 * a + 5 * b + c) for a, b, c in draws]
    counts = np.unique(codes, return_counts=True)[1]
    assert len(counts) == 60
    assert stats.chisquare(counts).pvalue > 1e-4


def test_many_locations_are_uniform_at_every_position():
    """χ² over 64 equal parts of the range, for the first places and for those beyond half.

    One false positive in 10⁴ seeds over the three comparisons.
    """
    rng = np.random.default_rng(4)
    n = 64 * 16_400
    assert n > 1 << 20
    first = np.concatenate([random_indices(n, 400, rng) for _ in range(50)])
    counts = np.bincount(first // 16_400, minlength=64)
    assert stats.chisquare(counts).pvalue > 1e-4 / 3
    whole = random_indices(n, n, rng)
    for part in (whole[n // 2 - 20_000 : n // 2], whole[n // 2 : n // 2 + 20_000]):
        counts = np.bincount(part // 16_400, minlength=64)
        # Without replacement the counts vary a little less; the test is conservative.
        assert stats.chisquare(counts).pvalue > 1e-4 / 3


def naive_first_hits(indices, p, q):
    met, hits = set(), []
    for index in indices.tolist():
        i, j = divmod(index, q)
        pair = frozenset([(i, j), ((p - i) % p, (q - j) % q)])
        hits.append(pair not in met)
        met.add(pair)
    return np.array(hits, dtype=bool)


@pytest.mark.parametrize(
    ("p", "q"), [(1, 1), (1, 6), (2, 2), (3, 3), (4, 4), (5, 8), (7, 6), (9, 9)], ids=str
)
def test_first_hits_are_those_of_a_loop(p, q):
    for seed in range(20):
        indices = np.random.default_rng(seed).permutation(p * q)
        hits = first_hits(indices, p, q)
        np.testing.assert_array_equal(hits, naive_first_hits(indices, p, q))
        # One hit for each self-conjugate entry and each pair.
        own = (1 + (p % 2 == 0)) * (1 + (q % 2 == 0))
        assert hits.sum() == (p * q + own) / 2


def test_first_hits_of_nothing():
    assert first_hits(np.empty(0, dtype=np.int64), 4, 4).shape == (0,)
