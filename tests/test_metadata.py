"""What describes the package in several files agrees, and each dependency says what it is for."""

import json
import re
import subprocess
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

import loca_theory

ROOT = Path(__file__).parents[1]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(PYPROJECT)["project"]
CODEMETA = json.loads((ROOT / "codemeta.json").read_text(encoding="utf-8"))
CITATION = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_version_is_the_same_everywhere():
    released = re.findall(r"^## \[?(\d+\.\d+\.\d+)", CHANGELOG, re.MULTILINE)
    cited = re.search(r"^version: (.+)$", CITATION, re.MULTILINE)[1]
    assert {loca_theory.__version__, CODEMETA["version"], cited} == {released[0]}


def test_the_description_and_the_keywords_are_the_same_everywhere():
    assert CODEMETA["identifier"] == PROJECT["name"]
    assert CODEMETA["description"] == PROJECT["description"]
    assert CODEMETA["keywords"] == PROJECT["keywords"]
    assert CODEMETA["license"].endswith(f"/{PROJECT['license']}")


def test_every_version_of_python_is_one_that_ci_runs():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    tried = re.findall(r'"(3\.\d+)"', workflow)
    stated = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert tried == stated
    assert PROJECT["requires-python"] == f">={stated[0]}"


def test_every_dependency_has_a_lower_bound_and_a_reason():
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    needed = {
        dependency
        for listed in lists
        for dependency in listed
        if not dependency.startswith("loca-theory")
    }
    assert [dependency for dependency in needed if ">=" not in dependency] == []
    silent = [
        dependency
        for dependency in needed
        if re.search(rf'^  "{re.escape(dependency)}",$', PYPROJECT, re.M)
    ]
    assert silent == []


def test_every_extra_bounds_transformers_below_the_first_that_asks_for_another_peft():
    """transformers 5.24 asks for PEFT 0.22, whose internals are others."""
    lists = PROJECT["optional-dependencies"].values()
    requirements = [Requirement(line) for listed in lists for line in listed]
    bounds = [
        requirement.specifier for requirement in requirements if requirement.name == "transformers"
    ]
    assert bounds
    assert [str(bound) for bound in bounds if "5.24.0" in bound or "5.23.0" not in bound] == []


@pytest.mark.parametrize("extra", PROJECT["optional-dependencies"])
def test_the_documentation_names_every_extra(extra):
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert f"`{extra}`" in page.partition("## Extras")[2]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


# --- what is shipped ---


def test_data_is_shipped_with_the_package(tmp_path):
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    shipped = {name for name in ZipFile(wheel).namelist() if name.startswith("loca_theory/")}
    source = [path for path in (ROOT / "loca_theory").rglob("*") if path.suffix != ".pyc"]
    assert shipped == {path.relative_to(ROOT).as_posix() for path in source if path.is_file()}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_the_source_distribution_has_every_file_of_the_checkout():
    command = ["git", "-C", ROOT, "ls-files", "-z"]
    tracked = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    shipped = {file.distribution_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    assert {name for name in tracked if name and (ROOT / name).is_file()} - shipped == set()
