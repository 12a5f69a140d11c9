"""The ordering of Theorem 1, decided at every rank by exact errors."""

from dataclasses import replace
from itertools import pairwise

import pytest

from loca_theory.expressivity import Accounting, Budget, exact_error
from loca_theory.expressivity.theorem1.ordering import THEOREM_1_ORDER, Ordering
from loca_theory.sweeps import Runner

ALONE = Runner(jobs=1)


def rows_of(*sizes, **options):
    return Ordering(sizes, **options).run(ALONE).rows


def test_a_row_is_the_tightest_pair_of_neighbours():
    rows = rows_of(13, accountings=(Accounting.DOF,))
    assert [row.r for row in rows] == [1, 2, 3, 4]
    for row in rows:
        budget = Budget(13, 13, row.r, Accounting.DOF)
        errors = [(name, exact_error(name, budget)) for name in THEOREM_1_ORDER]
        worse, better = min(pairwise(errors), key=lambda pair: pair[0][1] - pair[1][1])
        assert (row.worse, row.better) == (worse[0], better[0])
        assert row.margin == pytest.approx(worse[1] - better[1], abs=1e-12)


def test_the_papers_ordering_fails_only_at_size_4():
    rows = rows_of(*range(2, 25), accountings=(Accounting.PAPER,))
    assert len(rows) == sum((size - 1) // 3 for size in range(2, 25))
    failing = [row for row in rows if not row.holds]
    assert [(row.K, row.r, row.worse, row.better) for row in failing] == [
        (4, 1, "LoRA", "Fourier pairs")
    ]
    assert all(row.bound < 1e-10 < abs(row.margin) for row in rows)


def test_under_degrees_of_freedom_it_breaks_before_a_third():
    """In the limit, R meets F2 at r/K = 0.32675."""
    rows = {row.r: row for row in rows_of(200, accountings=(Accounting.DOF,))}
    assert rows[66].holds is False
    assert (rows[66].worse, rows[66].better) == ("LoRA", "Fourier pairs")
    assert rows[60].holds


def test_every_accounting_has_its_rows():
    rows = rows_of(4, 9)
    assert [(row.K, row.r) for row in rows if row.accounting == "bits"] == [(4, 1), (9, 1), (9, 2)]
    assert {row.accounting for row in rows} == {"paper", "trainable", "dof", "bits"}
    assert {row.worse for row in rows} <= set(THEOREM_1_ORDER)
    assert rows[-1].holds
    assert replace(rows[-1], bound=1.0).holds is None, "a margin within its bound decides nothing"
