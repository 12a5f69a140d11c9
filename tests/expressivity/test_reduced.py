"""The reduced sampler's structure: prefixes, locations, bookkeeping; not its law."""

import numpy as np
import pytest

from loca_theory.expressivity import METHODS, Budget
from loca_theory.expressivity.methods.coordinates.coordinate_method import CoordinateMethod
from loca_theory.expressivity.methods.coordinates.shared import SharedCoordinates
from loca_theory.expressivity.random_choices import random_indices

REDUCED = [m.name for m in METHODS.values() if isinstance(m, CoordinateMethod)]
every_method = pytest.mark.parametrize("method", [*REDUCED, "LoRA"])

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
        # The distinct numbers of these chunks, on average (above it, another is drawn) and in fact.
        expected = int(-LARGE * np.expm1(-chunks * chunk / LARGE))
        held = len(np.unique(stream[: chunks * chunk]))
        assert expected != held
        for count in (*range(expected - 1, expected + 3), held - 1, held, held + 1):
            ours = random_indices(LARGE, count, np.random.default_rng(2))
            np.testing.assert_array_equal(ours, distinct[:count])


@pytest.mark.parametrize(
    ("p", "q"), [(1, 1), (1, 6), (2, 2), (3, 3), (4, 4), (5, 8), (7, 6), (9, 9)], ids=str
)
def test_pairs_of_indices_are_those_of_the_table(p, q):
    method, budget = METHODS["FourierFT"], Budget(p, q, 1, "dof")
    labels = method.labels(np.arange(p * q), budget)
    table = SharedCoordinates.labels(method, np.arange(p * q), budget)
    np.testing.assert_array_equal(np.equal.outer(labels, labels), np.equal.outer(table, table))
