"""The package's own functions: one per command, lazily, each with a typed result."""

import dataclasses
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import loca_theory as loca
from loca_theory.cli.main import group

ALONE = loca.Runner(jobs=1)
# What takes long to import, and what exact answers never need.
HEAVY = {"torch", "scipy", "numpy", "pandas", "matplotlib", "rich", "click", "joblib", "pyarrow"}
RESULTS = [
    (loca.SimulationResult, lambda: loca.simulate(16, ranks=[1, 2], draws=4, runner=ALONE)),
    (
        loca.CorrelationResult,
        lambda: loca.correlate(
            8, ranks=[1], structures=["equicorrelated"], draws=2, null_draws=400, runner=ALONE
        ),
    ),
    (
        loca.ToyResult,
        lambda: loca.toy(problems=2, searches=["central"], steps=20, runner=ALONE),
    ),
    (loca.Analysis, lambda: loca.analyze(np.arange(48.0).reshape(8, 6) % 7, ranks=[1])),
    (loca.Extraction, lambda: loca.extract(*loca.demo_pair(), "lora", rank=2)),
    (
        loca.VerificationResult,
        lambda: loca.verify("parseval.unitary", tier="quick", runner=ALONE),
    ),
    (loca.MethodTable, loca.methods),
]
NAMES = [kind.command for kind, _ in RESULTS]


@pytest.fixture(scope="module")
def results():
    return {kind.command: make() for kind, make in RESULTS}


def imported_by(statement):
    """Which of the heavy packages a statement imports, in a fresh interpreter."""
    script = f"import sys\n{statement}\nprint(*sorted({HEAVY!r} & set(sys.modules)))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_it_imports_nothing_else():
    assert imported_by("import loca_theory") == set()


def test_exact_answers_import_no_torch():
    answer = "import loca_theory as loca\nloca.simulate(768, ranks=range(8, 33), engine='exact')"
    assert imported_by(answer).isdisjoint({"torch", "pandas", "matplotlib", "rich", "click"})


PACKAGES = sorted(path.parent.name for path in Path(loca.__file__).parent.glob("*/__init__.pyi"))


@pytest.mark.parametrize("package", ["", *PACKAGES])
def test_what_is_exported_is_listed_and_there(package):
    module = import_module(f"loca_theory.{package}".rstrip("."))
    assert set(dir(module)) == set(module.__all__) > set()
    assert all(getattr(module, name) is not None for name in module.__all__)
    with pytest.raises(AttributeError, match=f"{module.__name__} attribute nothing"):
        module.nothing  # noqa: B018


@pytest.mark.parametrize(("kind", "make"), RESULTS, ids=NAMES)
def test_a_task_gives_its_frozen_result(results, kind, make):
    result = results[kind.command]
    assert type(result) is kind
    assert len(result.to_frame()) > 0
    assert "<table" in result._repr_html_()
    assert kind.__name__ in repr(result)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field"):
        result.manifest = {}
    for row in vars(result).values():
        if isinstance(row, tuple) and row:
            assert dataclasses.is_dataclass(row[0])


@pytest.mark.parametrize("name", [name for name in NAMES if name != "extract"])
def test_a_result_comes_back_from_its_folder(tmp_path, results, name):
    result = results[name]
    result.save(tmp_path)
    again = type(result).load(tmp_path)
    assert again.manifest == result.manifest
    assert again.to_json() == result.to_json()


# Arguments that have another form on the command line, and options that say how to print.
SAID_OTHERWISE = {"base", "tuned", "names", "runner", "printed", "demo"}
# These options say what is checked, printed or written, and how a run ends.
ONLY_TYPED = {
    "analyze": {"full"},
    "figures": {"labels"},
    "verify": {"quick", "deep", "only_list", "strict", "as_expected"},
}
# A module cannot be typed, and few would set the rest.
ONLY_TAKEN = {
    "correlate": {"protocols", "level", "null_draws"},
    "extract": {"model"},
    "figures": {"label"},
    "verify": {"tier", "ledger"},
}
HOW = {"jobs", "backend", "scheduler", "out", "output_format", "quiet", "debug", "help", "help_all"}


@pytest.mark.parametrize("name", [*NAMES, "figures"])
def test_the_command_takes_the_arguments_of_the_function(name):
    command = group.get_command(None, name)
    typed = {parameter.name for parameter in command.params} - HOW - SAID_OTHERWISE
    function = loca.figure if name == "figures" else getattr(loca, name)
    taken = set(inspect.signature(function).parameters) - HOW - SAID_OTHERWISE
    assert typed - taken == ONLY_TYPED.get(name, set())
    assert taken - typed == ONLY_TAKEN.get(name, set())


def test_the_package_is_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "loca_theory", "methods", "D", "--format", "csv"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[1].startswith("D,")


@pytest.mark.parametrize("name", ["simulate", "correlate", "toy", "analyze", "verify"])
def test_a_result_has_a_picture(results, name):
    figure = loca.plot(results[name])
    assert isinstance(figure, Figure)
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_folder_keeps_what_was_computed(tmp_path):
    """The second time nothing is computed: the store's files are the first run's."""
    runner = loca.Runner(tmp_path / "points", jobs=1)
    first = loca.simulate(16, ranks=1, methods="R", draws=3, engine="monte-carlo", runner=runner)
    stored = {path: path.stat().st_mtime_ns for path in (tmp_path / "points").iterdir()}
    assert len(stored) == 1
    again = loca.simulate(16, ranks=1, methods="R", draws=3, engine="monte-carlo", runner=runner)
    assert again.rows == first.rows
    assert stored == {path: path.stat().st_mtime_ns for path in (tmp_path / "points").iterdir()}
