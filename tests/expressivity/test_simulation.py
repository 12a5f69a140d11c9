"""The table: its rows and columns, what each engine contributes, and every refusal."""

import itertools
import subprocess
import sys
import types

import pytest

from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.expressivity import METHODS, Accounting, Budget, exact_error, matrices, memory
from loca_theory.expressivity.methods import low_rank
from loca_theory.expressivity.methods.engine import Engine
from loca_theory.expressivity.methods.registry import DEFAULT_METHODS, find_method, find_methods
from loca_theory.expressivity.monte_carlo import Sampler
from loca_theory.expressivity.simulation import Simulation, squares
from loca_theory.expressivity.spending import spent
from loca_theory.sweeps import Runner

ALONE = Runner(jobs=1)

ALL = tuple(Engine)


def simulation(**options):
    engines = (Engine.EXACT, Engine.MONTE_CARLO)
    chosen = {"shapes": squares([10]), "ranks": (1, 2), "engines": engines, "draws": 5, **options}
    if "methods" in chosen:
        chosen["methods"] = find_methods(chosen["methods"])
    return Simulation(**chosen)


def test_rows_come_in_order_and_each_engine_fills_its_own_columns():
    """Shape by shape, rank by rank, method by method; engines that a method lacks are left out."""
    shapes, ranks, methods = ((10, 10), (8, 12)), (1, 2), ("LoRA", "printed line", "LoCA", "VeRA")
    ours = simulation(shapes=shapes, ranks=ranks, methods=methods, engines=ALL, seed=3)
    rows = ours.run(ALONE).rows
    have = {
        "LoRA": ALL,
        "printed line": ("exact", "asymptotic"),
        "LoCA": ALL,
        "VeRA": ("monte-carlo",),
    }
    expected = [
        (p, q, r, method, engine)
        for (p, q), r, method in itertools.product(shapes, ranks, methods)
        for engine in have[method]
    ]
    assert [(row.p, row.q, row.r, row.method, row.engine) for row in rows] == expected
    for row in rows:
        budget = Budget(row.p, row.q, row.r)
        assert (10 if row.p == row.q else None) == row.K
        fraction = spent(METHODS[row.method], budget)
        numbers = None if fraction is None else fraction * budget.numbers
        assert (row.spent, row.numbers) == (fraction, numbers)
        drawn = (None, None, None)
        match row.engine:
            case "exact":
                assert (row.error, row.standard_error) == (exact_error(row.method, budget), 0)
            case "asymptotic":
                assert row.error == find_method(row.method).limit(budget)
                assert row.standard_error is None
            case _:
                assert row.standard_error > 0
                drawn = (5, 3, "dense" if row.method == "VeRA" else "reduced")
        assert (row.draws, row.seed, row.sampler) == drawn
    # LoCA has as many coefficients as indices, since every N0 is even.
    assert ours.run(ALONE).manifest["spent"] == {
        name: [1.0, 1.0] for name in ("LoRA", "LoCA", "VeRA")
    }


def test_the_default_is_lora_fourierft_fourier_pairs_and_loca():
    names = ["LoRA", "FourierFT", "Fourier pairs", "LoCA"]
    assert [method.name for method in DEFAULT_METHODS] == names
    rows = simulation(engines=None).run(ALONE).rows
    assert {row.method for row in rows} == {method.name for method in DEFAULT_METHODS}
    assert {row.engine for row in rows} == {"exact"}


def test_without_an_engine_monte_carlo_fills_the_gaps_of_the_exact_one(monkeypatch):
    """DoRA has no exact error, and R none beyond its largest rank: the row says which it is."""
    monkeypatch.setattr(low_rank, "LARGEST_EXACT_RANK", 2)
    ours = simulation(methods=("LoRA", "DoRA", "printed line"), ranks=(2, 3), engines=None, draws=3)
    rows = {(row.method, row.r): row for row in ours.run(ALONE).rows}
    assert {key for key, row in rows.items() if row.engine == "exact"} == {
        ("LoRA", 2),
        ("printed line", 2),
        ("printed line", 3),
    }
    assert [rows["LoRA", 3].draws, rows["DoRA", 2].draws] == [3, 3]
    assert rows["LoRA", 3].error < rows["LoRA", 2].error


def test_accounting_and_value_bits_reach_every_engine():
    options = {
        "accounting": Accounting.BITS,
        "value_bits": 8,
        "methods": ("LoCA", "rate-distortion"),
    }
    for row in simulation(**options, engines=(Engine.EXACT, Engine.ASYMPTOTIC)).run(ALONE).rows:
        budget = Budget(10, 10, row.r, Accounting.BITS, 8)
        limit = find_method(row.method).limit(budget)
        assert row.error == (exact_error(row.method, budget) if row.engine == "exact" else limit)
    drawn = {
        bits: simulation(**{**options, "value_bits": bits}, engines=(Engine.MONTE_CARLO,))
        .run(ALONE)
        .rows
        for bits in (2, 32)
    }
    # The draws are shared; an index weighs more beside 2 bits than beside 32.
    assert all(a.error > b.error for a, b in zip(drawn[2], drawn[32], strict=True))


def test_describe_is_plain_data():
    described = simulation(sampler=Sampler.DENSE, methods=("LoCA",)).describe()
    assert described == {
        "shapes": [[10, 10]],
        "ranks": [1, 2],
        "methods": ["LoCA"],
        "engines": ["exact", "monte-carlo"],
        "accounting": "paper",
        "value_bits": 16,
        "draws": 5,
        "sampler": "dense",
    }


def test_devices():
    assert simulation().on_device("cpu") == simulation()
    assert simulation().on_device("auto").device == "cpu"
    dense = simulation(sampler=Sampler.DENSE, methods=("LoCA",))
    with pytest.raises(InvalidArgumentError, match="tpu"):
        dense.on_device("tpu")


@pytest.mark.parametrize(
    ("methods", "engine", "r"),
    [
        (("DoRA", "VeRA"), Engine.EXACT, 2),
        (("DoRA",), Engine.ASYMPTOTIC, 2),
        (("printed line", "rate-distortion"), Engine.MONTE_CARLO, 2),
        (("LoRA",), Engine.EXACT, 257),
    ],
    ids=["exact DoRA", "asymptotic DoRA", "drawn formulas", "exact R of a large rank"],
)
def test_nothing_to_compute_is_refused(methods, engine, r):
    with pytest.raises(
        InvalidArgumentError,
        match=rf"nothing to compute: .*{methods[0]}.*{engine}.*; choose engine=",
    ):
        simulation(methods=methods, engines=(engine,), shapes=squares([600]), ranks=(r,))


@pytest.fixture
def little_memory(monkeypatch):
    """A machine with one free MiB, on which drawing a matrix fails the test."""
    monkeypatch.setattr(
        memory.psutil, "virtual_memory", lambda: types.SimpleNamespace(available=1 << 20)
    )

    def refuse(*_arguments):
        msg = "a matrix was drawn"
        raise AssertionError(msg)

    monkeypatch.setattr(matrices, "dense_errors", refuse)


def test_a_dense_simulation_that_does_not_fit_is_refused_before_it_starts(little_memory):
    """A dozen of 80x80 matrices take 0.6 MiB: little enough for one process, not for two."""
    ours = simulation(shapes=squares([80]), sampler=Sampler.DENSE, methods=("LoCA",))
    with pytest.raises(AssertionError, match="a matrix was drawn"):
        ours.run(ALONE)
    message = r'dense sampler needs about .* GiB for 80x80 in 2 process.*use sampler="reduced"'
    with pytest.raises(ResourceError, match=message):
        ours.run(Runner(jobs=2))


def test_memory_of_a_gpu_counts_one_process(monkeypatch):
    monkeypatch.setattr(memory, "_free_bytes", lambda _: 1 << 20)
    ours = simulation(
        shapes=squares([200]), sampler=Sampler.DENSE, methods=("LoCA",), device="cuda:0"
    )
    with pytest.raises(ResourceError, match=r"in 1 process.* free on cuda:0"):
        ours.run(Runner(jobs=2))


def test_the_reduced_sampler_needs_arrays_as_long_as_the_factors(little_memory):
    assert simulation(shapes=squares([600]), ranks=(1,), methods=("LoCA",)).run(ALONE)
    ours = simulation(shapes=squares([600]), ranks=(1, 30), methods=("LoCA",))
    with pytest.raises(ResourceError, match=r"reduced sampler needs about .*use engine="):
        ours.run(ALONE)


def test_formulas_need_no_memory(little_memory):
    engines = (Engine.EXACT, Engine.ASYMPTOTIC)
    assert simulation(shapes=squares([4096]), ranks=(32,), engines=engines).run(ALONE)


WITHOUT_TORCH = """
import sys
from loca_theory.expressivity import simulate
from loca_theory.sweeps import Runner
methods = [
    "LoRA", "printed line", "random Fourier", "random DCT", "FourierFT", "upper bound",
    "Fourier pairs", "lower bound", "Fourier", "LoCA", "entries", "rate-distortion", "C3A", "LoKr",
]
simulate(12, ranks=1, methods=methods, engine="all", draws=3, runner=Runner(jobs=1))
assert "torch" not in sys.modules
"""


def test_methods_that_need_no_matrix_need_no_torch():
    subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT_TORCH], check=True)
