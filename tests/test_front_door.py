"""The package's own functions: one per command, lazily, each with a typed result."""

import dataclasses
import inspect
import pkgutil
import re
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest

import loca_theory as loca
from loca_theory.cli.main import group

ALONE = loca.Runner(jobs=1)
# What takes long to import, and what exact answers never need.
HEAVY = {"torch", "scipy", "numpy", "pandas", "matplotlib", "rich", "click", "joblib", "pyarrow"}
RESULTS = [
    (loca.SimulationResult, lambda: loca.simulate(16, ranks=[1, 2], draws=4, runner=ALONE)),
    (
        loca.CorrelationResult,
        lambda: loca.correlate(8, ranks=[1], structures=["equicorrelated"], draws=2, runner=ALONE),
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


def test_importing_it_imports_nothing_else():
    script = f"import sys\nimport loca_theory\nprint(*sorted({HEAVY!r} & set(sys.modules)))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


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
    loaded = type(result).load(tmp_path)
    assert loaded.manifest == result.manifest
    assert loaded.to_json() == result.to_json()


# Arguments that have another form on the command line, and options that say how to print.
SAID_OTHERWISE = {"base", "tuned", "names", "runner", "printed", "demo"}
# These options say what is checked, printed or written, and how a run ends.
ONLY_TYPED = {
    "analyze": {"full", "with_config"},
    "figures": {"ids", "only_list"},
    "verify": {"quick", "deep", "only_list", "strict", "as_expected"},
}
# A module cannot be typed, and few would set the rest.
ONLY_TAKEN = {
    "correlate": {"protocols", "level", "null_draws"},
    "extract": {"model"},
    "figures": {"label", "colors", "labels", "log"},
    "verify": {"tier", "ledger"},
}
HOW = {"jobs", "backend", "scheduler", "out", "output_format", "quiet", "debug", "help", "help_all"}
HOW |= {"columns"}


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
        [sys.executable, "-m", "loca_theory", "methods", "LoCA", "--format", "csv"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[1].startswith("LoCA,")


def packages():
    """All packages below this one, by their names."""
    modules = pkgutil.walk_packages(loca.__path__, "loca_theory.")
    return ["loca_theory", *(module.name for module in modules if module.ispkg)]


@pytest.mark.parametrize("name", packages())
def test_what_a_package_lists_can_be_imported_from_it(name):
    package = import_module(name)
    listed = re.findall(r":(?:func|class|data):`(\w+)`", package.__doc__ or "")
    assert [other for other in listed if not hasattr(package, other)] == []
