"""The rooms of the house and the rules between them, read from the source.

Every module is parsed, so that imports inside functions, under ``TYPE_CHECKING`` and by name count
as well.
"""

import ast
import importlib
import inspect
import re
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest

import loca_theory

ROOT = Path(loca_theory.__file__).parent

# From the ground up. A package may import from lower floors only, not from its neighbours.
FLOORS = (
    ("transforms", "sweeps"),
    ("increments", "locations"),
    ("expressivity", "adapters"),
    ("dependence", "convergence"),
    ("checkpoints",),
    ("claims",),
    ("plotting",),
    ("cli",),
)
# Modules beside the packages, which every floor stands on.
GROUND = ("errors", "_lazy", "_lookup", "_version")


def module_name(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))


@cache
def tree(name):
    return ast.parse(MODULES[name].read_text(encoding="utf-8"))


def room(name):
    """The package of a module, or the module itself where it lies in none."""
    return name.removeprefix("loca_theory").removeprefix(".").partition(".")[0]


def floor(package):
    return next(i for i, packages in enumerate(FLOORS) if package in packages)


def imported(name, nodes):
    """The modules of this package that import statements among the nodes name."""
    package = name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if room_of_ours(alias.name))
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            if room_of_ours(base):
                whole = (f"{base}.{alias.name}" for alias in node.names)
                yield from (module if module in MODULES else base for module in whole)


def room_of_ours(name):
    return name.split(".")[0] == "loca_theory"


def named_in_text(nodes):
    """Modules named by a string, as :func:`importlib.import_module` takes them."""
    for node in nodes:
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(r"loca_theory(\.\w+)+", node.value)
        ):
            yield node.value


def at_module_level(nodes):
    """Statements that run when the module is imported."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from at_module_level(node.orelse)
            continue
        yield node
        yield from at_module_level(ast.iter_child_nodes(node))


def test_every_package_has_a_floor():
    known = {package for packages in FLOORS for package in packages}
    assert set(PACKAGES) <= known, "a new package: say in FLOORS where it stands"
    assert set(GROUND) <= {path.stem for path in ROOT.glob("*.py")}


def points_up(name, target):
    """Whether a module may not import another."""
    if target == "loca_theory" or room(target) in GROUND or room(target) == room(name):
        return False
    return room(name) in ("", *GROUND) or floor(room(target)) >= floor(room(name))


def test_imports_point_down():
    wrong = []
    for name in MODULES:
        nodes = list(ast.walk(tree(name)))
        targets = {*imported(name, nodes), *named_in_text(nodes)}
        wrong += [f"{name} imports {target}" for target in targets if points_up(name, target)]
    assert wrong == []


def test_no_modules_import_each_other():
    """At module level, where it would matter which of them is imported first."""
    waits_for = {
        name: set(imported(name, at_module_level(tree(name).body))) - {name} for name in MODULES
    }
    done = set()
    while ready := {n for n, targets in waits_for.items() if n not in done and targets <= done}:
        done |= ready
    assert set(MODULES) - done == set(), "they wait for each other"


def test_arguments_are_not_checked_by_assert():
    """``python -O`` removes them, and their message names no way out."""
    found = [
        f"{name}, line {node.lineno}"
        for name in MODULES
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Assert)
    ]
    assert found == []


# --- what is public -------------------------------------------------------------------------


def test_everything_exported_is_there_and_has_a_docstring():
    for package in ("loca_theory", *(f"loca_theory.{name}" for name in PACKAGES)):
        module = importlib.import_module(package)
        assert module.__doc__, package
        assert len(set(module.__all__)) == len(module.__all__), package
        for name in module.__all__:
            value = getattr(module, name)
            assert not inspect.ismodule(value), f"{package}.{name} is a module"
            if inspect.isclass(value) or inspect.isroutine(value):
                assert (value.__doc__ or "").strip(), f"{package}.{name} has no docstring"


def own_nodes(function):
    """The nodes of a function without those of functions defined in it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from own_nodes(node)


def raises(function):
    """Whether the function has a ``raise`` of its own; passing one on is none."""
    return any(isinstance(node, ast.Raise) and node.exc for node in own_nodes(function))


def functions(body):
    return [node for node in body if isinstance(node, ast.FunctionDef)]


def is_command(function):
    """Whether click shows the docstring to users."""
    return any("click.command" in ast.unparse(node) for node in function.decorator_list)


def public_and_raising(name):
    """Public functions and classes of a module that raise, with their docstrings."""
    body = tree(name).body
    for function in functions(body):
        if not function.name.startswith("_") and raises(function) and not is_command(function):
            yield function.name, ast.get_docstring(function)
    for kind in body:
        if not isinstance(kind, ast.ClassDef) or kind.name.startswith("_"):
            continue
        for method in functions(kind.body):
            if not raises(method):
                continue
            if method.name in ("__init__", "__post_init__", "__new__"):
                yield kind.name, ast.get_docstring(kind)
            elif not method.name.startswith("_"):
                yield f"{kind.name}.{method.name}", ast.get_docstring(method)


def test_what_raises_says_so():
    silent = [
        f"{name}.{function}"
        for name in MODULES
        for function, docstring in public_and_raising(name)
        if not re.search(r"^Raises:$", docstring or "", re.MULTILINE)
    ]
    assert silent == [], "public functions that raise without a Raises section"


# --- what is shipped ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "file"),
    [
        ("loca_theory", "py.typed"),
        ("loca_theory.claims", "claims.toml"),
        ("loca_theory.plotting", "loca.mplstyle"),
    ],
    ids=["type marker", "ledger", "style"],
)
def test_data_is_shipped_with_the_package(package, file):
    assert (files(package) / file).is_file()
