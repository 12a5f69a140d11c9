"""A wrong argument of a public function raises one line that names the argument."""

import re

import numpy as np
import pytest

import loca_theory as loca
from loca_theory.expressivity import approximate, retained_energies
from loca_theory.sweeps import Result

MATRIX = np.random.default_rng(0).standard_normal((8, 8))


def simulate(**changed):
    return loca.simulate(**{"sizes": 16, "ranks": 1, **changed})


def shaped(shape):
    return loca.simulate(shape=shape, ranks=1)


def correlate(**changed):
    return loca.correlate(**{"size": 8, "ranks": 1, **changed})


def analyze(**changed):
    return loca.analyze(MATRIX, **{"ranks": 1, **changed})


def extract(**changed):
    return loca.extract(*loca.demo_pair(), **changed)


SHAPE = "shape must be two whole numbers (p, q), not "
RANKS = "ranks must be positive whole numbers, not "
LIST_ALL = "loca_theory.claims.load_ledger() has all"
RUNNER = "runner must be a Runner, not "
BAD = [
    *(
        (lambda shape=shape: shaped(shape), f"{SHAPE}{shape!r}")
        for shape in (5, (), (64,), (64, 48, 3), "64x48", (64.5, 48))
    ),
    *(
        (lambda call=call, ranks=ranks: call(ranks=ranks), f"{RANKS}{ranks!r}")
        for call in (simulate, correlate, analyze)
        for ranks in ([], [0], 0, True, "8", 2.5, None)
    ),
    *(
        (lambda call=call: call(runner="x"), f"{RUNNER}'x'")
        for call in (simulate, correlate, analyze, loca.toy, loca.verify)
    ),
    (lambda: extract(rank=1, runner=0), f"{RUNNER}0"),
    (lambda: loca.figure("sim_1", runner=3), f"{RUNNER}3"),
    # simulate
    (lambda: simulate(engine=["exact"]), "unknown engine ['exact']; choose from exact, asymptot"),
    (lambda: simulate(engine="foo"), "choose from exact, asymptotic, monte-carlo, all"),
    (lambda: simulate(sampler=[]), "unknown sampler []; choose from reduced, dense"),
    (lambda: simulate(accounting=3), "unknown accounting 3; choose from paper"),
    (lambda: simulate(draws="many"), "draws must be a whole number, not 'many'"),
    (lambda: simulate(draws=None), "draws must be a whole number, not None"),
    (lambda: simulate(draws=True), "draws must be a whole number, not True"),
    (lambda: simulate(seed=0.5), "seed must be a whole number, not 0.5"),
    (lambda: simulate(value_bits="16"), "value_bits must be a whole number, not '16'"),
    (lambda: simulate(device=3, sampler="dense", methods="LoRA"), "unknown device 3; choose auto"),
    (lambda: simulate(methods=[]), "methods is empty"),
    # correlate and toy
    (lambda: correlate(draws="x"), "draws must be a whole number, not 'x'"),
    (lambda: correlate(level="x"), "level must be a number, not 'x'"),
    *(
        (lambda rho=rho: correlate(rho=rho), f"rho must be numbers, not {rho!r}")
        for rho in ("high", [None], [[0.1]])
    ),
    *(
        (
            lambda components=components: loca.toy(components=components),
            f"components must be whole numbers, not {components!r}",
        )
        for components in (8.5, [8, 8.5], "8", [[8]])
    ),
    (lambda: correlate(structures=[]), "structures must list at least one name and no"),
    (lambda: correlate(structures=[["ar1"]]), "['ar1'] is not a structure; subclass"),
    (lambda: correlate(protocols=[]), "protocols must list at least one name and no"),
    (lambda: loca.toy([]), "searches must have at least one value and no duplicates, not none"),
    (lambda: loca.toy([["swap"]]), "unknown search ['swap']; choose from"),
    (lambda: loca.toy(interpretations=5), "unknown interpretation '5'; choose from"),
    (lambda: loca.toy(problems="x"), "problems must be a whole number, not 'x'"),
    (lambda: loca.toy(steps=10.5), "steps must be a whole number, not 10.5"),
    (lambda: loca.toy(lr="fast"), "lr must be a number, not 'fast'"),
    # analyze and extract
    (lambda: analyze(include=5), "include must be a regular expression, not 5"),
    (lambda: analyze(max_size="50M"), "max_size must be a whole number, not '50M'"),
    (lambda: analyze(max_size=-1), "max_size must be at least 1, not -1"),
    (lambda: analyze(epsilon="x"), "epsilon must be a number, not 'x'"),
    (lambda: analyze(seed="x"), "seed must be a whole number, not 'x'"),
    (lambda: loca.analyze("bert-base-uncased"), "write hub:bert-base-uncased if it is on the hub"),
    (lambda: loca.analyze("org/name@main"), "write hub:org/name@main if it is on the hub"),
    (lambda: extract(rank="8"), "rank must be a whole number, not '8'"),
    (lambda: extract(components=1.5), "components must be a whole number, not 1.5"),
    # verify, methods and figure
    (lambda: loca.verify([]), "names is empty; name a claim, or omit names for all claims"),
    (lambda: loca.verify(5), f"unknown claim 5; {LIST_ALL}"),
    (lambda: loca.verify("nope"), f"unknown claim 'nope'; {LIST_ALL}"),
    (lambda: loca.verify("condition-u", seed="x"), "seed must be a whole number, not 'x'"),
    (lambda: loca.verify("condition-u", tier=["quick"]), "unknown tier ['quick']; choose from"),
    (lambda: loca.verify("condition-u", results=5), "results must be a path, not 5"),
    (lambda: loca.verify("condition-u", ledger=5), "ledger must be a path, not 5"),
    (lambda: loca.methods([]), "names is empty; name a method, or omit names for all methods"),
    (lambda: loca.figure("sim_1", results=5), "results must be a path, not 5"),
    (lambda: loca.figure(["sim_1"]), "unknown figure ['sim_1']; choose from"),
    # objects
    (lambda: loca.Runner(jobs="x"), "jobs must be a whole number, not 'x'"),
    (lambda: loca.Runner(jobs=0), "jobs must be a positive number, or -1 for one per core, not 0"),
    (lambda: loca.Runner(jobs=-2), "or -1 for one per core, not -2"),
    (lambda: loca.Runner(store=5), "store must be a path, not 5"),
    (
        lambda: loca.Runner(progress=5),
        "progress must be True, False or a function of (finished, total), not 5",
    ),
    (lambda: loca.Budget("a", 2, 1), "p must be a whole number, not 'a'"),
    (lambda: loca.Budget(8, 8, 2, "foo"), "unknown accounting 'foo'; choose from paper"),
    (lambda: approximate(MATRIX, "LoCA", 5), "budget must be a Budget, not 5"),
    (lambda: retained_energies(MATRIX, "LoCA", [5]), "budget must be a Budget, not 5"),
    (lambda: loca.methods().save(5), "folder must be a path, not 5"),
    (lambda: loca.MethodTable.load(5), "folder must be a path, not 5"),
    (lambda: loca.VerificationResult.load(5), "folder must be a path, not 5"),
    (lambda: loca.Extraction.load(5), "folder must be a path, not 5"),
    (lambda: Result.load("."), "Result has no tables; call load on the class of the saved result"),
    (lambda: loca.methods().to_frame("nope"), "unknown table 'nope'; choose from methods"),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=range(len(BAD)))
def test_it_is_one_line_that_names_the_argument(call, message):
    with pytest.raises(loca.InvalidArgumentError, match=re.escape(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("call", [simulate, analyze])
def test_a_rank_named_twice_is_one(call):
    ranks = np.array([2, 2, 1])
    assert list(call(ranks=ranks).manifest["grid"]["ranks"]) == [2, 1]


def test_numbers_of_numpy_and_names_are_plain():
    budget = loca.Budget(np.int64(8), np.int64(8), np.int64(2), "bits")
    assert budget == loca.Budget(8, 8, 2, "bits")
    assert (type(budget.p), budget.accounting.name) == (int, "BITS")
    assert budget.chosen_coefficients == 16 * 32 // 22  # a value and a location take 16 + 6 bits
    result = simulate(methods="LoRA", engine="all", draws=np.int64(2), seed=np.int64(1))
    assert (result.rows[-1].draws, result.manifest["seed"]) == (2, 1)
    result = loca.toy(
        "swap", components=np.arange(1, 3), conditions=np.float32(2), problems=2, steps=5
    )
    kinds = {(type(row.components), type(row.condition)) for row in result}
    assert kinds == {(int, float)}


def test_a_file_is_no_folder_and_a_folder_no_file(tmp_path):
    (tmp_path / "afile").write_text("kept")
    message = r'afile is a file; choose another store="\.\.\."'
    with pytest.raises(loca.ResourceError, match=message):
        simulate(methods="LoRA", runner=loca.Runner(tmp_path / "afile"))
    page = loca.report(simulate(engine="exact", methods="LoCA"))
    with pytest.raises(
        loca.ResourceError, match=r"path must name a file, but .* is a folder; use .*html"
    ):
        page.save(tmp_path)
    with pytest.raises(loca.ResourceError, match=r'afile is a file; choose another path="'):
        page.save(tmp_path / "afile" / "page.html")
