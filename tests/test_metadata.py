"""What describes the package in several files agrees, and each dependency says what it is for."""

import json
import re
import tomllib
from pathlib import Path

import pytest

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
    needed = {one for listed in lists for one in listed if not one.startswith("loca-theory")}
    assert [one for one in needed if ">=" not in one] == []
    silent = [one for one in needed if re.search(rf'^  "{re.escape(one)}",$', PYPROJECT, re.M)]
    assert silent == []


@pytest.mark.parametrize("extra", PROJECT["optional-dependencies"])
def test_the_documentation_names_every_extra(extra):
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert f"`{extra}`" in page.partition("## Extras")[2]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
