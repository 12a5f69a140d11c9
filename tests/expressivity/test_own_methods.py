"""Methods of a user's own: what one function gives them, and what is refused."""

# ruff: noqa: ARG002 - the interface names what a method may ignore

import sys

import numpy as np
import pytest
import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import (
    METHODS,
    Basis,
    Bound,
    Budget,
    Method,
    Selection,
    Simulation,
    Subspace,
    approximate,
    exact_error,
    find_method,
    find_methods,
    mean_retained_energies,
    monte_carlo,
    retained_energies,
    simulate,
)
from loca_theory.plotting import plot
from loca_theory.sweeps import ResultStore, Runner

ALONE = Runner(jobs=1)


class TopRows(Method):
    name, title = "rows", "the first rows"

    def approximate(self, matrix, budget, rng=None):
        found = torch.zeros_like(matrix)
        rows = budget.numbers // budget.q
        found[:rows] = matrix[:rows]
        return found


class RandomRows(TopRows):
    name = "random-rows"

    def approximate(self, matrix, budget, rng=None):
        found = torch.zeros_like(matrix)
        rows = rng.permutation(budget.p)[: budget.numbers // budget.q]
        found[rows] = matrix[rows]
        return found


class Reversed(Basis):
    """The entries, last first."""

    def coordinates(self, matrix):
        return matrix.flatten().flip(0)

    def matrix(self, coordinates, p, q):
        return coordinates.flip(0).unflatten(0, (p, q))


def test_approximate_alone_gives_monte_carlo_and_a_line():
    """N0 = 2Kr numbers pay for 2r rows of K, which hold 2r/K of the energy."""
    result = simulate(16, ranks=[1, 2], methods=["D", TopRows()], draws=400, runner=ALONE)
    for row in result.rows:
        if row.method == "rows":
            assert (row.engine, row.sampler) == ("monte-carlo", "dense")
            # Five standard errors, four comparisons with other draws: one false alarm in 10⁶.
            assert abs(row.error - (1 - 2 * row.r / 16)) < 5 * row.standard_error
    figure = plot(result)
    assert "rows" in [text.get_text() for axis in figure.axes for text in axis.texts]
    assert "rows = the first rows" in figure.get_supxlabel()


def test_it_is_measured_on_a_matrix():
    matrix = np.arange(64.0).reshape(8, 8)
    budgets = [Budget(8, 8, 1), Budget(8, 8, 2)]
    expected = [np.square(matrix[:rows]).sum() for rows in (2, 4)]
    np.testing.assert_allclose(retained_energies(matrix, TopRows(), budgets), expected)
    together = mean_retained_energies(matrix, [TopRows(), "S"], budgets)
    np.testing.assert_allclose(together["rows"], expected)
    np.testing.assert_allclose(together["S"], retained_energies(matrix, "S", budgets))


def test_random_choices_come_from_the_generator():
    matrix, budgets = np.random.default_rng(0).standard_normal((16, 4)), [Budget(16, 4, 1)]
    first, again, other = (
        mean_retained_energies(matrix, [RandomRows()], budgets, np.random.default_rng(seed))
        for seed in (1, 1, 2)
    )
    assert first["random-rows"] == again["random-rows"]
    assert first["random-rows"] != other["random-rows"]


def test_a_selection_in_a_basis_of_its_own_has_every_engine():
    own = Selection("mine", "entries, backwards", basis=Reversed())
    matrix, budget = np.random.default_rng(0).standard_normal((6, 5)), Budget(6, 5, 2)
    assert exact_error(own, budget) == exact_error("S", budget)
    np.testing.assert_array_equal(
        approximate(matrix, own, budget), approximate(matrix, "S", budget)
    )
    result = simulate(16, ranks=1, methods=own, engine="all", draws=3, runner=ALONE)
    assert [row.engine for row in result.rows] == ["exact", "asymptotic", "monte-carlo"]


def test_a_subspace_of_its_own_retains_its_part_on_average():
    own = Subspace("mine", basis=Reversed())
    matrix, budget = np.random.default_rng(0).standard_normal((6, 5)), Budget(6, 5, 2)
    mean = mean_retained_energies(matrix, [own], [budget])["mine"][0]
    assert mean == pytest.approx(np.square(matrix).sum() * budget.random_coefficients / 30)


def test_a_method_without_draws_needs_no_matrix():
    half = Bound("half", error=lambda budget: 0.5)
    (row,) = simulate(16, ranks=1, methods=half, engine="exact").rows
    assert row.error == 0.5


def test_a_changed_definition_is_drawn_again(tmp_path, monkeypatch):
    """The module's text and the object's fields tell two definitions of one name apart."""
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "own_for_this_test.py"

    def mean(scale, factor):
        source.write_text(
            "from loca_theory.expressivity import Method\n"
            "class Scaled(Method):\n"
            "    name = 'scaled'\n"
            "    def __init__(self, factor):\n"
            "        self.factor = factor\n"
            "    def approximate(self, matrix, budget, rng=None):\n"
            f"        return {scale} * self.factor * matrix\n"
        )
        sys.modules.pop("own_for_this_test", None)
        found = __import__("own_for_this_test").Scaled(factor)
        version = monte_carlo.store_version()
        runner = Runner(ResultStore(tmp_path / "points", version), jobs=1)
        (row,) = simulate(8, ranks=1, methods=found, draws=2, runner=runner).rows
        return row.error

    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        assert mean(0.5, 1.0) == pytest.approx(0.25)
        assert mean(0.5, 2.0) == pytest.approx(0.0)
        assert mean(0.0, 1.0) == pytest.approx(1.0)
        assert mean(0.5, 1.0) == pytest.approx(0.25)
    finally:
        sys.dont_write_bytecode = before
    assert len(list((tmp_path / "points").glob("*.json"))) == 3


def test_a_definition_that_nobody_can_tell_from_another_is_not_stored(tmp_path):
    own = TopRows()
    own.anything = lambda: 0  # cannot be pickled
    runner = Runner(ResultStore(tmp_path / "points", monte_carlo.store_version()), jobs=1)
    simulate(8, ranks=1, methods=["V1", own], draws=2, runner=runner)
    names = [path.read_text() for path in (tmp_path / "points").glob("*.json")]
    assert len(names) == 1
    assert '"V1"' in names[0]


# --- by name --------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "methods_for_this_test.py").write_text(
        "from loca_theory.expressivity import Method\n"
        "class Own(Method):\n"
        "    name = 'own'\n"
        "    def approximate(self, matrix, budget, rng=None):\n"
        "        return matrix\n"
        "own = Own()\n"
        "number = 3\n"
        "class D(Own):\n"
        "    name = 'D'\n"
        "class Nameless(Method):\n"
        "    pass\n"
    )
    (tmp_path / "broken_for_this_test.py").write_text("1 / 0\n")
    yield
    sys.modules.pop("methods_for_this_test", None)


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize("attribute", ["own", "Own"], ids=["object", "class"])
def test_a_method_is_found_by_module_and_attribute(attribute):
    assert find_method(f"methods_for_this_test:{attribute}").name == "own"


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "nowhere_to_be_found:own",
            r"cannot import .*\(ModuleNotFoundError: .*\); write module:att",
        ),
        ("methods_for_this_test:absent", r"cannot import .*\(AttributeError: .*absent"),
        ("broken_for_this_test:own", r"cannot import .*\(ZeroDivisionError: division by zero\)"),
        ("methods_for_this_test:number", "is not a method; subclass loca_theory.Method"),
        ("methods_for_this_test:Nameless", "needs a name: a short text without commas, not None"),
        ("methods_for_this_test:D", "is called D, as a method of the package is; give it another"),
        (":own", r"cannot import the method :own \(ValueError"),
        ("methods_for_this_test:", r"cannot import the method methods_for_this_test: \(Attr"),
    ],
    ids=["module", "attribute", "broken", "number", "nameless", "taken", "no module", "empty"],
)
def test_what_is_no_method_is_refused(spec, message):
    with pytest.raises(InvalidArgumentError, match=message):
        find_method(spec)


def test_other_objects_are_refused():
    with pytest.raises(InvalidArgumentError, match="3 is not a method; subclass"):
        find_method(3)


def test_two_of_one_name_are_refused():
    with pytest.raises(InvalidArgumentError, match="methods names rows twice; leave one out"):
        find_methods([TopRows(), "D", TopRows()])
    with pytest.raises(InvalidArgumentError, match="methods names D twice"):
        Simulation(((8, 8),), (1,), (METHODS["D"], METHODS["D"]))


# --- what an engine misses ------------------------------------------------------------------


class Wrong(Method):
    name = "wrong"

    def approximate(self, matrix, budget, rng=None):
        return matrix[0]


class Nothing(Method):
    name = "nothing"


def test_an_approximation_of_another_shape_is_refused():
    message = r"wrong\.approximate must return a tensor of shape \(8, 8\), not \(8,\)"
    with pytest.raises(InvalidArgumentError, match=message):
        simulate(8, ranks=1, methods=Wrong(), draws=2, runner=ALONE)
    with pytest.raises(InvalidArgumentError, match=message):
        approximate(np.ones((8, 8)), Wrong(), Budget(8, 8, 1))


def test_a_method_that_lacks_what_an_engine_needs_says_so():
    with pytest.raises(
        InvalidArgumentError, match="nothing to compute: rows cannot be had from ex"
    ):
        simulate(8, ranks=1, methods=TopRows(), engine="exact")
    with pytest.raises(
        InvalidArgumentError, match=r"rows has no exact value at 8x8; use engine=.mon"
    ):
        exact_error(TopRows(), Budget(8, 8, 1))
    with pytest.raises(InvalidArgumentError, match="nothing is a formula, not an approximation"):
        approximate(np.ones((8, 8)), Nothing(), Budget(8, 8, 1))
