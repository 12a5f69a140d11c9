"""The experiment as a table: what it refuses, what its rows and traces say, what they depend on."""

import json
from dataclasses import asdict
from itertools import product

import numpy as np
import pytest
from scipy import stats

from loca_theory.convergence import ToyResult, simulation, toy
from loca_theory.convergence.interpretations import Interpretation, find_interpretation
from loca_theory.convergence.problems import ProblemFamily, draw
from loca_theory.convergence.searches import SEARCHES
from loca_theory.convergence.state import Rates, State
from loca_theory.convergence.study import ConvergenceStudy
from loca_theory.sweeps import Runner

from .cells import toy_cell

ALONE = Runner(jobs=1)

SMALL = {"problems": 30, "steps": 120, "seed": 4}


def tables(result):
    """Without the manifest, which says when it was made."""
    return result.rows, result.traces


def outcomes(study, search, interpretation="default"):
    """Results of all problems of one combination, in one block."""
    numbers = study.steps, study.seed, (0, study.problems)
    return simulation.evaluate(toy_cell(search, *numbers, interpretation, study.rates))


def test_the_fewest_steps_of_pursuit_are_admitted():
    assert ConvergenceStudy(("pursuit",), components=(2, 4), steps=8).steps == 8


# --- in one call ---


def test_one_call_is_the_study_with_plain_arguments():
    options = {"searches": "swap", "sizes": np.int64(5), "components": np.arange(1, 3)}
    result = toy(**options, conditions=["gaussian", 2], lr=0.01, **SMALL, runner=ALONE)
    study = ConvergenceStudy(
        ("swap",), sizes=(5,), components=(1, 2), conditions=(None, 2.0), rates=Rates(0.01), **SMALL
    )
    assert tables(result) == tables(study.run(ALONE))
    assert result.manifest["grid"] == study.describe()
    assert (result.manifest["seed"], result.manifest["device"]) == (4, "cpu")
    assert finite(result)


# --- rows ---


def test_a_row_a_combination_with_what_was_asked_for():
    grid = {"sizes": (4, 6), "components": (2, 3), "conditions": (None, 5.0)}
    searches = {"interpretations": ("default", "sum+indices"), "searches": ("swap", "central")}
    study = ConvergenceStudy(**grid, **searches, problems=4, steps=20, seed=4)
    rows = study.run(ALONE).rows
    names = ("size", "components", "condition", "interpretation", "search")
    cells = [tuple(getattr(row, name) for name in names) for row in rows]
    assert cells == list(product(*grid.values(), *searches.values()))
    assert {(row.problems, row.steps, row.seed) for row in rows} == {(4, 20, 4)}
    described = study.describe()
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    settings = asdict(find_interpretation("sum+indices"))
    assert described["interpretations"]["sum+indices"] == settings
    assert described["problems"] == {"4": 4, "6": 4}


@pytest.mark.parametrize("search", ["central", "pursuit"])
def test_rows_count_the_problems(search):
    study = ConvergenceStudy((search,), **{**SMALL, "steps": 400})
    (row,) = study.run(ALONE).rows
    result = outcomes(study, search)
    exact = sum(result["exact"])
    assert row.recovered == exact / 30
    # Clopper and Pearson's ends are quantiles of Beta laws; SciPy's root finder stops at 2e-12.
    low = stats.beta.ppf(0.025, exact, 31 - exact) if exact else 0.0
    high = stats.beta.ppf(0.975, exact + 1, 30 - exact) if exact < 30 else 1.0
    assert (row.low, row.high) == pytest.approx((low, high), abs=1e-11)
    assert row.mean_found == sum(result["found"]) / 30
    assert row.median_final_loss == np.median(result["loss"])
    assert row.diverged == 0
    assert result["exact"] == [count == 3 for count in result["found"]]


@pytest.mark.parametrize(
    ("size", "problems"),
    [(2, 2000), (8, 2000), (9, 1000), (16, 1000), (32, 400), (64, 200), (65, 100)],
    ids=str,
)
def test_larger_sizes_have_fewer_problems_by_default(size, problems):
    assert ConvergenceStudy(sizes=(size,)).describe()["problems"] == {str(size): problems}


# --- divergence ---


def finite(result):
    """JSON holds no NaN and no infinity."""
    document = result.to_json()
    return json.loads(json.dumps(document, allow_nan=False)) == document


@pytest.mark.parametrize(
    ("search", "interpretation", "rate", "fewest"),
    [
        *((search, "default", 5.0, 20) for search in sorted(set(SEARCHES) - {"pursuit"})),
        ("central", "sum", 0.02, 30),
        *((search, "sum", 1e300, 30) for search in ("central", "swap", "annealed-pursuit")),
    ],
)
def test_divergence_is_counted_and_nothing_is_infinite(search, interpretation, rate, fewest):
    study = ConvergenceStudy(
        (search,), (interpretation,), rates=Rates(lr=rate), **{**SMALL, "steps": 130}
    )
    toy_result = study.run(ALONE)
    (row,) = toy_result.rows
    result = outcomes(study, search, interpretation)
    assert row.diverged == result["loss"].count(None) >= fewest
    assert finite(toy_result)
    for exact, loss in zip(result["exact"], result["loss"], strict=True):
        assert not (exact and loss is None)
    # The rest is as it should be.
    assert all(0 <= loss < 1e6 for loss in result["loss"] if loss is not None)


def test_what_diverged_at_the_true_locations_is_not_recovered():
    batch = draw(ProblemFamily(), Interpretation(), 4, range(3), samples=40)
    state = State(batch, Interpretation(), Rates())
    state.set_indices(batch.indices)
    state.coefficients = batch.coefficients.clone()
    state.coefficients[1] = 1e9
    result = simulation.outcomes(state)
    assert result["found"] == [3, 0, 3]
    assert result["exact"] == [True, False, True]
    assert [loss is None for loss in result["loss"]] == [False, True, False]


# --- traces ---


def test_a_trace_begins_at_nothing_is_thinned_and_ends_as_the_row_says():
    study = ConvergenceStudy(("reselect", "swap"), **{**SMALL, "steps": 430})
    traces = study.run(ALONE).traces
    assert {row.search for row in traces} == {"coefficients-only", "swap", "reselect"}
    for search, case in product(
        ("coefficients-only", "swap", "reselect"), ("recovered", "not recovered")
    ):
        trace = [row for row in traces if (row.search, row.case) == (search, case)]
        learned = [row for row in trace if row.kind == "learned"]
        # 430 steps, every second of them, and the end.
        assert [row.step for row in learned[::3]] == list(range(0, 431, 2))
        assert [row.component for row in learned] == [0, 1, 2] * 216
        begin, end = learned[:3], learned[-3:]
        assert [row.coefficient for row in begin] == [0.0] * 3
        # In units of itself; Γ and Σ act in another order on both.
        assert [row.loss for row in begin] == pytest.approx([1.0] * 3, rel=1e-12)
        result, number = outcomes(study, search), end[0].problem
        assert [row.loss for row in end] == [result["loss"][number]] * 3
        true = {(row.row, row.column) for row in trace if row.kind == "truth"}
        assert len(true & {(row.row, row.column) for row in end}) == result["found"][number]


def test_where_all_diverges_a_trace_shows_it_and_the_result_comes_back_as_it_was_saved(tmp_path):
    study = ConvergenceStudy(("swap",), conditions=(None, 2.0), rates=Rates(lr=1e9), **SMALL)
    result = study.run(ALONE)
    assert {(row.case, row.problem) for row in result.traces} == {("not recovered", 0)}
    assert result.traces[-1].loss is None
    names = [path.name for path in result.save(tmp_path)]
    assert names == ["toy.parquet", "toy.manifest.json"]
    assert ToyResult.load(tmp_path) == result


def test_of_many_searches_the_traces_show_the_printed_and_the_best():
    study = ConvergenceStudy(problems=3, steps=40)
    searches = {row.search for row in study.run(ALONE).traces}
    assert searches == {"coefficients-only", "central", "reselect"}
