"""Changes that make stored results stale."""

import subprocess
import sys

import pytest

from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps import version
from loca_theory.sweeps.version import code_version, library_version


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A package of two modules."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "small" / "laws").mkdir(parents=True)
    for name in ("__init__.py", "plain.py", "laws/__init__.py"):
        (tmp_path / "small" / name).write_text("x = 1\n")
    yield tmp_path / "small"
    sys.modules.pop("small", None)  # to find a module inside imports the package
    code_version.cache_clear()


def versions():
    code_version.cache_clear()
    return [code_version(*names) for names in (["small"], ["small.laws"], ["small.plain"])]


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        pytest.param("plain.py", [True, False, True], id="a module"),
        pytest.param("laws/__init__.py", [True, True, False], id="a package inside"),
        pytest.param("laws/table.toml", [True, True, False], id="data of a package inside"),
        pytest.param("notes.txt", [False] * 3, id="no source"),
    ],
)
def test_every_source_of_the_packages_counts(small, file, changes):
    before = versions()
    (small / file).write_text("x = 2\n")
    assert [old != new for old, new in zip(before, versions(), strict=True)] == changes


def test_libraries_count_and_the_order_of_the_packages_does_not(small, monkeypatch):
    pair = ("small.laws", "small.plain")
    assert code_version(*pair) == code_version(*pair[::-1]) != code_version(pair[0])
    before = versions()
    monkeypatch.setattr(version, "library_version", lambda name: "0" if name == "scipy" else None)
    assert all(old != new for old, new in zip(before, versions(), strict=True))


@pytest.mark.parametrize("name", ["no_such_package", "loca_theory.no_such_module"])
def test_what_is_not_installed_has_no_version(name):
    assert library_version(name) is None
    with pytest.raises(InvalidArgumentError, match=f"the source of '{name}' cannot be found"):
        code_version(name)


# What no number depends on: arguments and messages, and what distributes and stores cells.
BESIDE = {
    "loca_theory",
    *(
        f"loca_theory.{name}"
        for name in ("_arguments", "_lookup", "_types", "_version", "_words", "errors")
    ),
    "loca_theory.sweeps",
    *(
        f"loca_theory.sweeps.{name}"
        for name in (
            "files",
            "manifest",
            "progress",
            "results",
            "runner",
            "store",
            "tables",
            "threads",
            "version",
            "workers",
        )
    ),
}
RUN = """
import sys
from loca_theory.sweeps import Runner, runner

cells = []
run = Runner.run

def recorded(self, some, *rest, **options):
    cells.extend(some)
    return run(self, some, *rest, **options)

Runner.run = recorded
import loca_theory as loca
{}
packages = {{name for cell in cells for name in cell.packages}}
print(*packages, "|", *(name for name in sys.modules if name.startswith("loca_theory")))
"""
STUDIES = {
    "simulate": 'loca.simulate(8, ranks=2, draws=2, engine="monte-carlo", sampler="dense", '
    'methods=["LoRA", "LoCA", "Fourier pairs", "DoRA", "LoHa"])',
    "correlate": "loca.correlate(8, ranks=1, structures='blocks', rho=0.1)",
    "toy": "loca.toy(problems=2, steps=20)",
    "analyze": "loca.analyze(*loca.demo_pair(), allocate=4000, subspaces=2)",
    "theorem1": "from loca_theory.expressivity.theorem1.ordering import Ordering; "
    "Ordering((8,)).run()",
}


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_every_module_that_a_study_loads_is_covered(study):
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(study)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    packages, modules = (part.split() for part in done.stdout.split("|"))
    covered = tuple(f"{name}." for name in packages)
    ours = (name for name in modules if not f"{name}.".startswith(covered))
    assert set(ours) - BESIDE == set()
