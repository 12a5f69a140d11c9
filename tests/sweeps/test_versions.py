"""What makes stored results stale, on small packages that a test writes and changes."""

import subprocess
import sys
from functools import partial

import pytest

from loca_theory.checkpoints import analysis, computation
from loca_theory.claims import entries
from loca_theory.convergence import simulation
from loca_theory.dependence import draws
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import monte_carlo
from loca_theory.sweeps import (
    Moments,
    Point,
    ResultStore,
    Runner,
    code_version,
    generator,
    imports,
    versions,
)
from loca_theory.sweeps.tables import find_tables

COMPUTE = """
    import numpy
    from small.laws import density
    from loca_theory.sweeps import Point, Runner, generator

    def compute(point):
        from small.helpers.late import correction
        return density(correction(point))

    def study(points):
        return Runner().run(points, compute)
"""
FILES = {
    "__init__.py": "",
    "compute.py": COMPUTE,
    "laws/__init__.py": """
        from small._lazy import lazy_exports
        from small.laws.normal import density
        from small.laws.other import unrelated
        table = {"quantile": "quantiles"}
        __getattr__ = lazy_exports(__name__, table)
    """,
    "laws/normal.py": "from .tails import tail\nimport scipy.special\ndef density(x): return x",
    "laws/tails.py": "def tail(x): return x",
    "laws/quantiles.py": "def quantile(x): return x",
    "laws/other.py": "import pandas\ndef unrelated(x): return x",
    "helpers/__init__.py": "",
    "helpers/late.py": "import json\ndef correction(x): return x",
    "named/__init__.py": "",
    "named/first.py": "def f(): return 1",
    "named/second.py": "def f(): return 2",
    "_lazy.py": "def lazy_exports(package, modules): ...",
}


class Package:
    """A package in a folder of its own."""

    def __init__(self, folder):
        self.folder = folder / "small"
        for name, text in FILES.items():
            self.write(name, text)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = text.strip("\n").splitlines()
        indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
        path.write_text("".join(f"{line[indent:]}\n" for line in lines))
        forget()

    def add(self, name, line):
        self.write(name, (self.folder / name).read_text() + line)

    def code(self, *roots):
        return versions.reached_code(*(roots or ("small.compute",)))


def forget():
    for cached in (
        versions._reached,
        imports.parse,
        imports.source_file,
        versions._version_of_import,
    ):
        cached.cache_clear()


@pytest.fixture
def small(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    yield Package(tmp_path)
    forget()


def test_every_module_that_is_reached_counts_and_no_other(small):
    ours = {name for name in small.code().modules if name.startswith("small.")}
    assert ours == {"small.compute", "small.laws.normal", "small.laws.tails", "small.helpers.late"}
    assert set(small.code().libraries) == {"numpy", "scipy"}


@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        pytest.param("compute.py", True, id="the computation itself"),
        pytest.param("laws/normal.py", True, id="through a re-export"),
        pytest.param("laws/tails.py", True, id="by a relative import"),
        pytest.param("helpers/late.py", True, id="by an import inside a function"),
        pytest.param("laws/other.py", False, id="another export of the same package"),
        pytest.param("laws/quantiles.py", False, id="a lazy export that is not taken"),
        pytest.param("laws/__init__.py", False, id="what only passes names on"),
        pytest.param("named/first.py", False, id="an unrelated package"),
    ],
)
def test_a_change_counts_where_the_computation_reaches_it(small, changed, counts):
    before = code_version("small.compute")
    small.add(changed, "# changed\n")
    assert (code_version("small.compute") != before) == counts


def test_the_same_text_elsewhere_has_the_same_version(small, tmp_path, monkeypatch):
    before = code_version("small.compute")
    monkeypatch.syspath_prepend(tmp_path / "copy")
    Package(tmp_path / "copy")
    assert code_version("small.compute") == before


@pytest.mark.parametrize(
    ("line", "reached"),
    [
        pytest.param("from small.laws import quantile", {"small.laws.quantiles"}, id="lazy export"),
        pytest.param("import small.named.first as f", {"small.named.first"}, id="plain import"),
        pytest.param("from small.named import first", {"small.named.first"}, id="submodule"),
        pytest.param(
            "import importlib; importlib.import_module('small.named.first')",
            {"small.named.first"},
            id="by its name as text",
        ),
        pytest.param(
            "from importlib import import_module\nTABLE = {'x': 'small.named.second'}",
            {"small.named.second"},
            id="by its name in a table",
        ),
        pytest.param(
            "from importlib import import_module\nBASE = 'small.named'\n"
            "def f(name): return import_module(f'{BASE}.{name}')",
            {"small.named", "small.named.first", "small.named.second"},
            id="by a name made at run time",
        ),
        pytest.param(
            "from importlib import import_module\ndef called(name): return f'small.named.{name}'",
            {"small.named.first", "small.named.second"},
            id="by a name that another function makes",
        ),
        pytest.param(
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import small.named.first",
            set(),
            id="for types only",
        ),
        pytest.param(
            "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    import small.named.first",
            {"small.named.first"},
            id="not for types",
        ),
        pytest.param(
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n"
            "    import small.named.first",
            {"small.named.first"},
            id="when not for types",
        ),
        pytest.param(
            "try:\n    from small.named.first import f\nexcept ImportError:\n    f = None",
            {"small.named.first"},
            id="where it may fail",
        ),
        pytest.param("text = 'import small.named.first'", set(), id="mere text"),
    ],
)
def test_ways_to_import(small, line, reached):
    before = set(small.code().modules)
    small.add("helpers/late.py", line + "\n")
    assert set(small.code().modules) - before == reached


def test_libraries_count_by_their_versions(small, monkeypatch):
    before = code_version("small.compute")
    monkeypatch.setattr(versions, "library_version", lambda name: f"{name} of tomorrow")
    forget()
    assert code_version("small.compute") != before


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("import yaml", {"yaml": "PyYAML"}, id="under another name"),
        pytest.param("import no_such_library", {"no_such_library": None}, id="not installed"),
        pytest.param("import importlib\nimportlib.import_module('no_such_library')",
                     {"no_such_library": None}, id="by its name as text"),
        pytest.param("import json.decoder", {}, id="of the standard library"),
    ],
)  # fmt: skip
def test_libraries_are_found_by_what_is_imported(small, monkeypatch, line, expected):
    names = {"yaml": ["PyYAML"]}
    monkeypatch.setattr(versions, "packages_distributions", lambda: names)
    monkeypatch.setattr(versions, "find_spec", partial(_find, versions.find_spec))
    monkeypatch.setattr(versions, "library_version", {"PyYAML": "6", "numpy": "2"}.get)
    small.write("compute.py", f"import numpy\n{line}\n")
    found = dict(small.code().libraries)
    assert found.pop("numpy") == "2"
    assert found == {name: owner and f"{owner} 6" for name, owner in expected.items()}


def _find(find_spec, name):
    """As if yaml were installed, whatever is."""
    return object() if name == "yaml" else find_spec(name)


def test_a_re_export_that_leads_elsewhere_counts(small):
    """Even where both modules were reached before."""
    small.write("compute.py", "from small.named import f\nfrom small.named import first, second")
    small.write("named/__init__.py", "from small.named.first import f")
    before = small.code()
    small.write("named/__init__.py", "from small.named.second import f")
    assert set(small.code().modules) == set(before.modules)
    assert small.code().version != before.version


def test_a_package_that_does_more_than_pass_names_on_counts_itself(small):
    small.add("laws/__init__.py", "print('registers')\n")
    assert {"small.laws", "small.laws.normal", "small.laws.other"} <= set(small.code().modules)


def test_modules_that_import_each_other_are_read_once(small):
    small.add("laws/tails.py", "import small.laws.normal\nfrom small import compute\n")
    assert "small.laws.tails" in small.code().modules


def test_a_package_as_a_root_stands_for_all_its_modules(small):
    assert set(small.code("small.named").modules) == {
        "small.named", "small.named.first", "small.named.second",
    }  # fmt: skip


def test_roots_are_functions_or_names_in_any_order():
    assert code_version(generator) == code_version("loca_theory.sweeps.seeds")
    assert code_version(partial(generator, 0)) == code_version(generator)
    assert code_version(generator, Moments.of) == code_version(Moments.of, generator)


@pytest.mark.parametrize("name", ["no_such_package", "loca_theory.no_such_module", "__main__"])
def test_a_root_without_a_source_is_refused(name):
    with pytest.raises(InvalidArgumentError, match=f"the source of '{name}' cannot be found"):
        code_version(name)


def test_the_runner_does_not_count_and_what_makes_numbers_does():
    for left_out in (Runner, ResultStore, Point, code_version):
        module = left_out.__module__
        assert module not in versions.reached_code(monte_carlo.compute).modules
    used = versions.reached_code(generator, Moments.of, find_tables).modules
    assert {"seeds", "moments", "tables"} <= {name.rpartition(".")[2] for name in used}


# --- the computations of this package -------------------------------------------------------

SEEDS, MOMENTS = "loca_theory.sweeps.seeds", "loca_theory.sweeps.moments"
PAIRS = "loca_theory.checkpoints.pairs"
READERS = {"safetensors", "psutil", "packaging", "peft", "transformers", "huggingface_hub"}
EACH = {
    "simulate": (monte_carlo.store_version, monte_carlo.compute, {SEEDS, MOMENTS}),
    "correlate": (draws.version, draws.compute, {SEEDS, MOMENTS}),
    "toy": (simulation.version, simulation.compute_trace, {SEEDS}),
    # What reads a matrix counts as well: a stored result is found by what the files hold.
    "analyze": (analysis.version, computation.MatrixComputation.__call__, {SEEDS, PAIRS}),
}


@pytest.mark.parametrize(("version", "compute", "wanted"), EACH.values(), ids=EACH)
def test_a_study_depends_on_what_computes_it_and_on_no_more(version, compute, wanted):
    code = versions.reached_code(compute)
    assert version() == code.version
    assert wanted <= set(code.modules)
    packages = {name.split(".")[1] for name in code.modules}
    assert packages.isdisjoint({"claims", "cli", "plotting"})
    assert set(code.libraries) - READERS <= {"numpy", "scipy", "torch"}
    assert READERS.isdisjoint(code.libraries) or PAIRS in wanted


def test_observations_depend_on_the_checks_and_not_on_what_judges_them():
    roots = entries.measure, entries.CHECKS
    code = versions.reached_code(*roots)
    assert entries.version() == code.version
    inside = {name.removeprefix("loca_theory.claims.") for name in code.modules}
    assert {"observation", "measurement", "checks.theorems", "checks.gradients"} <= inside
    assert inside.isdisjoint({"rules", "ledger", "reader", "report", "verification"})
    assert set(code.libraries) <= {"numpy", "scipy", "torch", "pandas"}


def test_finding_a_version_imports_nothing_of_it():
    program = (
        "import sys; from loca_theory.sweeps import code_version; "
        "code_version('loca_theory.claims.checks'); "
        "print(*{'torch', 'pandas', 'loca_theory.claims'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def test_library_version_of_what_is_not_installed_is_none():
    assert versions.library_version("no-such-distribution-anywhere") is None
