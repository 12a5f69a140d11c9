"""The packages and the rules between them, read from the source.

Every module of the package, the experiments, the benchmarks and the examples is parsed, so that
imports inside functions, under ``TYPE_CHECKING`` and by name count as well.
"""

import ast
import importlib
import inspect
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import loca_theory

PACKAGE = Path(loca_theory.__file__).parent

# From the ground up. A package may import from lower floors only, not from its neighbours. ROOT is
# loca_theory/__init__.py, which offers what lies below it. The experiments time layers by the
# benchmarks, which know nothing of them.
ROOT = ""
FLOORS = (
    ("transforms", "sweeps"),
    ("increments", "locations"),
    ("expressivity", "adapters", "rounding"),
    ("dependence", "convergence"),
    ("checkpoints",),
    ("claims",),
    ("plotting",),
    (ROOT,),
    ("cli",),
    ("__main__",),
    ("benchmarks",),
    ("experiments",),
    ("examples",),
)
# Modules beside the packages, which every floor stands on.
GROUND = ("errors", "_arguments", "_lookup", "_types", "_version", "_words")
OURS = ("loca_theory", "benchmarks", "experiments", "examples")


def module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    module_name(path): path
    for root in OURS
    for path in sorted((PACKAGE.parent / root).rglob("*.py"))
}
LIBRARY = [name for name in MODULES if name.split(".")[0] == "loca_theory"]
PACKAGES = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


@cache
def tree(name):
    return ast.parse(MODULES[name].read_text(encoding="utf-8"))


def part(name):
    """The package of a module, or the module itself where it lies in none."""
    return name.removeprefix("loca_theory").removeprefix(".").partition(".")[0]


def floor(package):
    return next(i for i, packages in enumerate(FLOORS) if package in packages)


def imported(name, parsed, *, is_package=False):
    """The modules of ours that a module imports: anywhere in it, for types or by name."""
    package = name if is_package else name.rpartition(".")[0]
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in OURS)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = ".".join([*(above if node.level else ()), *filter(None, [node.module])])
            if base.split(".")[0] in OURS:
                names = (f"{base}.{alias.name}" for alias in node.names)
                yield from (module if module in MODULES else base for module in names)
        elif isinstance(node, ast.Constant) and node.value in MODULES:
            # A module finds files beside it by the name of the package that it lies in.
            if not name.startswith(f"{node.value}."):
                yield node.value
        elif isinstance(node, ast.JoinedStr):
            start = beginning(node, parsed)
            if start.startswith(tuple(f"{root}." for root in OURS)):
                yield from (module for module in MODULES if module.startswith(start))


def beginning(text, parsed):
    """The text of an f-string up to its first unknown value; empty if all of it is known."""
    constants = {
        ast.unparse(target): node.value
        for node in parsed.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
    }
    start = ""
    for part in text.values:
        value = (
            constants.get(ast.unparse(part.value)) if isinstance(part, ast.FormattedValue) else part
        )
        if value is None:
            return start
        start += str(value.value)
    return ""


@cache
def imports(name):
    is_package = MODULES[name].name == "__init__.py"
    return set(imported(name, tree(name), is_package=is_package)) - {name}


def cycle(graph):
    """The members of a cycle, each importing the next; nothing where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1][::-1]
    return []


@pytest.mark.parametrize(
    "statement",
    [
        "import experiments.study",
        "from experiments.study import sweep",
        "from experiments import study",
        "from . import study",
        "from .study import sweep",
        "if TYPE_CHECKING:\n    from experiments.study import sweep",
        "def late():\n    from experiments.study import sweep",
        "import_module('experiments.study')",
        "import_module(f'experiments.{name}')",
        "ALL = 'experiments'\nimport_module(f'{ALL}.{name}')",
        "NAMES = {'all': 'experiments.study'}",
    ],
)
def test_every_kind_of_import_is_seen(statement):
    assert "experiments.study" in set(imported("experiments.mine", ast.parse(statement)))


def test_every_package_has_a_floor():
    listed = {package for packages in FLOORS for package in packages}
    modules = {ROOT if path.stem == "__init__" else path.stem for path in PACKAGE.glob("*.py")}
    assert listed == {*PACKAGES, *modules, *OURS[1:]} - set(GROUND)


# The registry of figures has those of the experiments where there is a checkout.
FROM_BELOW = {("loca_theory.plotting.catalogue", "experiments.figures.catalogue")}


def points_up(name, target):
    """Whether a module may not import another."""
    if (name, target) in FROM_BELOW or part(target) in GROUND or part(target) == part(name):
        return False
    return part(name) in GROUND or floor(part(target)) >= floor(part(name))


def test_imports_point_down():
    wrong = [
        f"{name} imports {target}"
        for name in MODULES
        for target in imports(name)
        if points_up(name, target)
    ]
    assert wrong == []


# The folders of one package, from the ground up.
CHECKPOINTS = (
    *("source", "model", "change", "form", "measure", "sizes", "report", "extraction"),
    *("unmerging", "analysis"),
)


def test_folders_of_checkpoints_import_from_those_before_them():
    def place(name):
        folders = name.removeprefix("loca_theory.checkpoints.").split(".")
        return CHECKPOINTS.index(folders[0]) if folders[0] in CHECKPOINTS else None

    wrong = [
        f"{name} imports {target}"
        for name in LIBRARY
        for target in imports(name)
        if None not in (place(name), place(target)) and place(target) > place(name)
    ]
    assert wrong == []


def test_examples_use_what_is_public():
    """Whoever copies one needs the package alone."""
    targets = {target for name in MODULES if part(name) == "examples" for target in imports(name)}
    assert targets == {"loca_theory.adapters"}


def test_modules_do_not_import_each_other():
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"d", "b"}}) in (["b", "c", "b"], ["c", "b", "c"])
    graph = {name: set(imports(name)) for name in MODULES}
    assert cycle(graph) == []


def test_arguments_are_not_checked_by_assert():
    """``python -O`` removes them, and their message names no way out."""
    places = [
        f"{name}, line {node.lineno}"
        for name in LIBRARY
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Assert)
    ]
    assert places == []


# A flag in a text; alone it is an argument for another program, after its command it is part of it.
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
COMMAND = re.compile(r"(loca-theory|python -m|ray start) [^`\n]*")


def test_the_library_does_not_speak_of_flags():
    """It names arguments; what their flags are is known to the command line alone."""
    places = [
        f"{name}, line {node.lineno}: {flag[0]}"
        for name in LIBRARY
        if part(name) != "cli"
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
        for flag in FLAG.finditer(COMMAND.sub("", node.value))
    ]
    assert places == []


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


def exported():
    """Every exported function and class, with the names of its public methods."""
    for package in ("loca_theory", *(f"loca_theory.{name}" for name in PACKAGES)):
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if (getattr(value, "__module__", None) or "").startswith("loca_theory."):
                yield value.__module__, value.__qualname__


def exported_and_raising(module, name):
    """What of an exported function or class raises, with its docstring."""
    for node in tree(module).body:
        if getattr(node, "name", None) != name:
            continue
        if isinstance(node, ast.FunctionDef) and raises(node) and not is_command(node):
            yield name, ast.get_docstring(node)
        for method in functions(node.body) if isinstance(node, ast.ClassDef) else ():
            if not raises(method):
                continue
            if method.name in ("__init__", "__post_init__", "__new__"):
                yield name, ast.get_docstring(node)
            elif not method.name.startswith("_"):
                yield f"{name}.{method.name}", ast.get_docstring(method)


def test_what_is_exported_and_raises_says_so():
    silent = {
        f"{module}.{exported}"
        for module, name in exported()
        for exported, docstring in exported_and_raising(module, name)
        if not re.search(r"^Raises:$", docstring or "", re.MULTILINE)
    }
    assert silent == set(), "exported functions that raise without a Raises section"
