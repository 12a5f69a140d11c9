"""What the package exports, whatever is imported first."""

import importlib
import inspect
import pkgutil

import loca_theory.transforms as package


def test_every_export_is_the_object_not_a_module():
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    for name in package.__all__:
        assert not inspect.ismodule(getattr(package, name)), name
