"""Methods of a user's own: what one function gives them, and what is refused."""

# ruff: noqa: ARG002 - the interface names what a method may ignore

import sys

import numpy as np
import pytest
import torch

from loca_theory.checkpoints import analyze
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.expressivity import (
    METHODS,
    Budget,
    Method,
    approximate,
    exact_error,
    retained_energies,
    simulate,
)
from loca_theory.expressivity.matrices import mean_retained_energies
from loca_theory.expressivity.method_table import methods
from loca_theory.expressivity.methods import Basis, Selection
from loca_theory.expressivity.methods.registry import find_methods
from loca_theory.plotting import plot
from loca_theory.sweeps import Runner

ALONE = Runner(jobs=1)


class TopRows(Method):
    name, title = "rows", "the first rows"

    def approximate(self, matrix, budget, rng=None):
        approximation = torch.zeros_like(matrix)
        rows = budget.numbers // budget.q
        approximation[:rows] = matrix[:rows]
        return approximation


class RandomRows(TopRows):
    name = "random-rows"

    def approximate(self, matrix, budget, rng=None):
        approximation = torch.zeros_like(matrix)
        rows = rng.permutation(budget.p)[: budget.numbers // budget.q]
        approximation[rows] = matrix[rows]
        return approximation


class Reversed(Basis):
    """The entries, last first."""

    def coordinates(self, matrix):
        return matrix.flatten().flip(0)

    def matrix(self, coordinates, p, q):
        return coordinates.flip(0).unflatten(0, (p, q))


def test_approximate_alone_gives_monte_carlo_and_a_line():
    """N0 = 2Kr numbers pay for 2r rows of K, which hold 2r/K of the energy."""
    result = simulate(16, ranks=[1, 2], methods=["LoCA", TopRows()], draws=400, runner=ALONE)
    for row in result.rows:
        if row.method == "rows":
            assert (row.engine, row.sampler) == ("monte-carlo", "dense")
            # Five standard errors, four comparisons with other draws: one false positive in 10⁶.
            assert abs(row.error - (1 - 2 * row.r / 16)) < 5 * row.standard_error
    figure = plot(result)
    assert "rows" in [text.get_text() for axis in figure.axes for text in axis.texts]
    assert "rows: the first rows" in figure.caption


def test_it_is_measured_on_a_matrix():
    matrix = np.arange(64.0).reshape(8, 8)
    budgets = [Budget(8, 8, 1), Budget(8, 8, 2)]
    expected = [np.square(matrix[:rows]).sum() for rows in (2, 4)]
    np.testing.assert_allclose(retained_energies(matrix, TopRows(), budgets), expected)
    together = mean_retained_energies(matrix, find_methods([TopRows(), "entries"]), budgets)
    np.testing.assert_allclose(together["rows"], expected)
    np.testing.assert_allclose(together["entries"], retained_energies(matrix, "entries", budgets))


def test_random_choices_come_from_the_generator():
    matrix, budgets = np.random.default_rng(0).standard_normal((16, 4)), [Budget(16, 4, 1)]
    first, same_seed, other = (
        mean_retained_energies(matrix, [RandomRows()], budgets, np.random.default_rng(seed))
        for seed in (1, 1, 2)
    )
    assert first["random-rows"] == same_seed["random-rows"]
    assert first["random-rows"] != other["random-rows"]


def test_a_selection_in_a_basis_of_its_own_has_every_engine():
    method = Selection("mine", "entries, backwards", basis=Reversed())
    matrix, budget = np.random.default_rng(0).standard_normal((6, 5)), Budget(6, 5, 2)
    assert exact_error(method, budget) == exact_error("entries", budget)
    np.testing.assert_array_equal(
        approximate(matrix, method, budget), approximate(matrix, "entries", budget)
    )
    result = simulate(16, ranks=1, methods=method, engine="all", draws=3, runner=ALONE)
    assert [row.engine for row in result.rows] == ["exact", "asymptotic", "monte-carlo"]


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
        method = __import__("own_for_this_test").Scaled(factor)
        runner = Runner(tmp_path / "points", jobs=1)
        (row,) = simulate(8, ranks=1, methods=method, draws=2, runner=runner).rows
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
    method = TopRows()
    method.anything = lambda: 0  # cannot be pickled
    runner = Runner(tmp_path / "points", jobs=1)
    engine = "monte-carlo"
    simulate(8, ranks=1, methods=["random DCT", method], draws=2, engine=engine, runner=runner)
    names = [path.read_text() for path in (tmp_path / "points").glob("*.json")]
    assert len(names) == 1
    assert '"random DCT"' in names[0]


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
        "    name = 'LoCA'\n"
        "class Nameless(Method):\n"
        "    pass\n"
    )
    (tmp_path / "broken_for_this_test.py").write_text("1 / 0\n")
    yield
    sys.modules.pop("methods_for_this_test", None)


class Nameless(TopRows):
    name = ""


class Configured(TopRows):
    def __init__(self, scale):
        self.scale = scale


MINE = "methods_for_this_test:"
NO_METHODS = [
    (3, "3 is not a method; subclass"),
    ([None], "None is not a method; subclass"),
    (int, "<class 'int'> is not a method; subclass"),
    (Nameless(), "Nameless needs a name"),
    (Nameless, "Nameless needs a name"),
    (Configured, r"Configured\(\) failed \(TypeError: .*scale.*\); pass an object instead"),
    ([[]], r"\[\] is not a method"),
    ("nowhere_to_be_found:own", r"cannot import .*\(ModuleNotFoundError: .*\); write module:att"),
    (f"{MINE}absent", r"cannot import .*\(AttributeError: .*absent"),
    ("broken_for_this_test:own", r"cannot import .*\(ZeroDivisionError: division by zero\)"),
    (f"{MINE}number", "is not a method; subclass loca_theory.Method"),
    (f"{MINE}Nameless", "Nameless needs a name: a short text without commas"),
    (f"{MINE}D", "has the name LoCA of a method of the package; give it another"),
    (":own", r"cannot import the method :own \(ValueError"),
    (MINE, r"cannot import the method methods_for_this_test: \(Attr"),
]


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(("method", "message"), NO_METHODS)
def test_what_is_no_method_is_refused(method, message):
    with pytest.raises(InvalidArgumentError, match=message):
        methods(method)


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    "method", [TopRows, TopRows(), [TopRows], (TopRows(),), f"{MINE}own", [f"{MINE}Own"]]
)
def test_a_class_or_an_object_or_where_it_is_is_a_method_everywhere(method):
    (name,) = {row.name for row in methods(method).methods}
    assert name == ("own" if MINE in str(method) else "rows")
    (row,) = simulate(8, ranks=1, methods=method, draws=2, runner=ALONE).rows
    assert row.method == analyze(MATRIX, ranks=1, methods=method).errors[-1].method == name


# --- what an engine misses ------------------------------------------------------------------


class Nothing(Method):
    name = "nothing"


def failing(function, answer, base=TopRows):
    """A method of which one function returns what it should not, or raises it."""

    def fails(self, *arguments):
        if isinstance(answer, Exception):
            raise answer
        return answer

    return type("Failing", (base,), {"name": "boom", function: fails})()


MATRIX = np.random.default_rng(0).standard_normal((8, 8))
ONES = np.ones((8, 8))
APPROXIMATIONS = {
    "raises": (
        ZeroDivisionError("division\nby zero"),
        r"boom.approximate failed \(ZeroDivisionError: division by zero\)$",
    ),
    "array": (ONES, r"must return a tensor of shape \(8, 8\), not an ndarray; use torch.from_n"),
    "none": (None, r"must return a tensor of shape \(8, 8\), not NoneType"),
    "shape": (torch.ones(8), r"must return a tensor of shape \(8, 8\), not \(8,\)"),
    "NaN": (torch.full((8, 8), torch.nan), "boom.approximate must return real, finite entries, n"),
    "inf": (torch.full((8, 8), torch.inf), "finite entries, not NaN or infinite entries"),
    "complex": (torch.ones(8, 8) * 1j, "real, finite entries, not complex numbers"),
}


@pytest.mark.parametrize(("answer", "message"), APPROXIMATIONS.values(), ids=APPROXIMATIONS)
def test_an_approximation_that_is_none_is_one_line(answer, message):
    for use in (drawn, analysed, approximated):
        with pytest.raises(InvalidArgumentError, match=message) as caught:
            use(failing("approximate", answer))
        assert "\n" not in str(caught.value)
        assert (caught.value.__cause__ is not None) == isinstance(answer, Exception)


def test_an_approximation_may_be_of_another_type():
    method = failing("approximate", torch.ones(8, 8, dtype=torch.int64))
    assert approximate(ONES, method, Budget(8, 8, 1)).dtype == torch.float64


def exactly(method):
    return simulate(8, ranks=[1, 2], methods=method, engine="exact")


def drawn(method):
    return simulate(8, ranks=[1, 2], methods=method, engine="monte-carlo", draws=2, runner=ALONE)


def analysed(method):
    return analyze(MATRIX, ranks=[1, 2], methods=method)


def approximated(method):
    return approximate(MATRIX, method, Budget(8, 8, 1))


@pytest.mark.parametrize(
    ("answer", "requirement"),
    [
        ([0.5], r"return one number per budget, 2 in all, not an array of shape \(1,\)"),
        (0.5, "return one number per budget, 2 in all, not 0.5"),
        (None, "return one number per budget, 2 in all, not None"),
        (["a", "b"], r"return one number per budget, 2 in all, not an array of shape \(2,\)"),
        ([[0.5], 1], "return one number per budget, 2 in all, not"),
        ([0.5, np.nan], "return finite numbers, not"),
        (np.array([0.5, np.inf]), "return finite numbers, not"),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("function", "use"),
    [
        ("expected_errors", exactly),
        ("expected_errors", analysed),
        ("sample", drawn),
        ("retained_energies", drawn),
        ("retained_energies", analysed),
    ],
    ids=lambda parameter: getattr(parameter, "__name__", parameter),
)
def test_numbers_of_another_kind_are_refused(function, use, answer, requirement):
    # An analysis asks for the mean over random choices, which is a draw of them by default.
    is_mean = use is analysed and function == "retained_energies"
    name = f"{'mean_' * is_mean}{function}"
    with pytest.raises(InvalidArgumentError, match=f"^boom.{name} must {requirement}"):
        use(failing(function, answer))


class NoGenerator(Method):
    name = "no-rng"

    def approximate(self, matrix, budget):
        return matrix


def asymptotically(method):
    return simulate(8, ranks=1, methods=method, engine="asymptotic")


ADD = r"nothing defines no function of a method; add approximate\(matrix, budget, rng\)"
LIMITS = [
    ("low", "boom.limit must return a number, not 'low'"),
    ([0.5, 1], r"boom.limit must return a number, not an array of shape \(2,\)"),
    (np.nan, "boom.limit must return finite numbers, not nan"),
    (KeyError("r"), r"boom.limit failed \(KeyError: 'r'\)"),
]
CALLS = [
    (find_methods, [TopRows(), "LoCA", TopRows()], "methods names rows twice; leave one out"),
    (find_methods, ["LoCA", METHODS["LoCA"]], "methods names LoCA twice"),
    *((use, Nothing(), ADD) for use in (methods, exactly, analysed, approximated)),
    *((asymptotically, failing("limit", answer), message) for answer, message in LIMITS),
    (drawn, NoGenerator, r"no-rng.approximate must take \(matrix, budget, rng\): TypeError"),
    (
        exactly,
        TopRows(),
        r"rows has no value from the engine exact .*; choose engine=.monte",
    ),
    (
        lambda method: exact_error(method, Budget(8, 8, 1)),
        TopRows(),
        r"rows has no exact value at 8x8, rank 1; use engine=.mon",
    ),
]


@pytest.mark.parametrize(("use", "method", "message"), CALLS)
def test_what_a_method_lacks_is_said(use, method, message):
    with pytest.raises(InvalidArgumentError, match=message):
        use(method)


def test_memory_that_is_short_is_not_the_methods_fault():
    method = failing("approximate", torch.OutOfMemoryError("CUDA out of memory"))
    message = r"^boom of a dense 8x8 matrix does not fit .*; use sampler=.reduced., a"
    with pytest.raises(ResourceError, match=message):
        simulate(8, ranks=1, methods=method, draws=2, runner=ALONE)
