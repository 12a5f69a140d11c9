"""What the package exports, whatever is imported first."""

import os
import subprocess
import sys

import pytest

import loca_theory.transforms


def run(script):
    """Run a script in a fresh process, which has imported nothing yet."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("first", ["nothing", "every submodule"])
def test_every_export_is_the_object_not_a_module(first):
    run(
        f"""
import importlib, inspect, pkgutil
import loca_theory.transforms as package
if {first == "every submodule"}:
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{{package.__name__}}.{{module.name}}")
for name in package.__all__:
    assert not inspect.ismodule(getattr(package, name)), name
"""
    )


def test_index_bookkeeping_does_not_import_torch():
    run(
        """
import sys
from loca_theory.transforms import HalfSpectrum
assert HalfSpectrum(3, 4).pair_count == 5
assert "torch" not in sys.modules
"""
    )


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'dct3'"):
        loca_theory.transforms.dct3  # noqa: B018
