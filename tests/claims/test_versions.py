"""A stored measurement becomes stale when the code that measured it changes."""

import ast
from functools import cache
from pathlib import Path

import pytest

from loca_theory.claims import checks, load_ledger
from loca_theory.claims.estimates import Tier
from loca_theory.claims.observation import ClaimCell

FOLDER = Path(checks.__file__).parent
PACKAGE = FOLDER.parents[1]
# What no number depends on, and what every check counts anyhow.
BESIDE = {"claims", "errors", "sweeps", "_arguments", "_lookup", "_types", "_version"}


@cache
def packages_below(path):
    """The packages that a module or a folder imports, directly and indirectly."""
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    imports = (node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8"))))
    names = {
        node.module.split(".")[1]
        for node in imports
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("loca_theory.")
    }
    own_name = set() if path.is_file() else {path.name}
    below = (packages_below(PACKAGE / name) for name in names - BESIDE - own_name)
    return (names | own_name).union(*below) - BESIDE


# A claim of each family of checks.
FAMILIES = {claim.check.partition(".")[0]: claim for claim in load_ledger().claims}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_check_counts_every_package_that_it_runs(family):
    packages = ClaimCell(FAMILIES[family], Tier.QUICK, 0, ()).packages
    counted = {name.split(".")[1] for name in packages} - BESIDE
    assert counted == packages_below(FOLDER / f"{family}.py")


def test_what_judges_does_not_count():
    assert set(ClaimCell(FAMILIES["tables"], Tier.QUICK, 0, ()).packages) == {
        "loca_theory.claims.checks",
        "loca_theory.claims.estimates",
        "loca_theory.sweeps.random",
    }
