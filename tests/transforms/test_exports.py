"""What the package exports, whatever is imported first."""

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import loca_theory.transforms as package


def test_every_export_is_the_object_not_a_module():
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    for name in package.__all__:
        assert not inspect.ismodule(getattr(package, name)), name


def test_index_bookkeeping_does_not_import_torch():
    script = """
import sys
from loca_theory.transforms import HalfSpectrum
assert HalfSpectrum(3, 4).pair_count == 5
assert "torch" not in sys.modules
"""
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'dct3'"):
        package.dct3  # noqa: B018
