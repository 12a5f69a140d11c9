"""Version of the code behind a stored result, derived from what that code imports.

A result depends on the module of the function that computes it, on every module that this one
reaches by import, and on the libraries that they import. All are found by parsing the sources;
nothing is imported for it. The rules:

- Imports inside functions count, those under ``TYPE_CHECKING`` do not. Where a module can import by
  name (:func:`importlib.import_module`), all text in it that names a module counts; a name that is
  put together at run time stands for every module of the package that it begins with.
- A name taken from a package leads to the module that defines it, through the imports of the
  package's ``__init__`` and its tables of lazy exports. So one changed module of a package does not
  make everything stale that takes another name from it. An ``__init__`` that does more than pass
  names on (calls a function, say) counts where a name is taken from its package, but not where a
  module of the package is: what it sets for all of them, such as torch's default type, is not seen.
- The runner is left out: :mod:`loca_theory.sweeps.execution` and all of its package that it
  imports. It hands points out and keeps what comes back, and the numbers do not depend on it.
- Data files do not count: what a computation takes from one belongs in its parameters.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from loca_theory.errors import InvalidArgumentError

_OURS = "loca_theory"
_RUNNER = f"{_OURS}.sweeps.execution"
_RUNNERS_PACKAGE = _RUNNER.rpartition(".")[0]
_BY_NAME = ("import_module", "find_spec")

# What is taken from where: a module, and a name in it or None for the module itself.
_Taken = tuple[str, str | None]


@dataclass(frozen=True)
class Code:
    """What a computation rests on.

    Attributes:
        modules: A hash of each module's source and of where its imports lead, by the module's name.
        libraries: The installed version of each library, by the name it is imported under; None
            where it is not installed.
    """

    modules: Mapping[str, str]
    libraries: Mapping[str, str | None]

    @property
    def version(self) -> str:
        """A short hash of all of it."""
        lines = [f"{name} {found}" for name, found in sorted(self.modules.items())]
        lines += [f"{name}=={found}" for name, found in sorted(self.libraries.items())]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def code_version(*roots: Callable[..., Any] | str) -> str:
    """Version of the code that computes a result: equal only for equal sources and libraries.

    Args:
        roots: The functions that compute it, or names of modules; the name of a package stands for
            every module in it.

    Returns:
        A short hash.

    Raises:
        InvalidArgumentError: a root's source is not to be found.

    >>> from loca_theory.sweeps import generator
    >>> code_version(generator) == code_version("loca_theory.sweeps.seeds")
    True
    """
    return reached_code(*roots).version


def reached_code(*roots: Callable[..., Any] | str) -> Code:
    """The modules and libraries that :func:`code_version` is made from; same arguments.

    Raises:
        InvalidArgumentError: a root's source is not to be found.
    """
    return _reached(tuple(sorted({_module_of(root) for root in roots})))


@cache
def package_version() -> str:
    """Hash of all the package's code: equal on machines that run the same."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def library_version(name: str) -> str | None:
    """Installed version of a distribution, found without importing it."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _module_of(root: Callable[..., Any] | str) -> str:
    if isinstance(root, str):
        return root
    while isinstance(root, partial):
        root = root.func
    return root.__module__


@cache
def _reached(roots: tuple[str, ...]) -> Code:
    graph = _Graph({_OURS, *(root.partition(".")[0] for root in roots)})
    start: list[str] = []
    for root in roots:
        if graph.file(root) is None and not graph.below(root):
            msg = f"the source of {root!r} is not to be found; a computing function must stand in "
            msg += "a module that can be imported"
            raise InvalidArgumentError(msg)
        start += [root, *graph.below(root)]
    runner = graph.follow([_RUNNER], lambda name: name.startswith(f"{_RUNNERS_PACKAGE}."))
    targets = graph.follow(start, lambda name: name not in runner)
    libraries = {
        name.partition(".")[0]
        for leads_to in targets.values()
        for name in set().union(*leads_to.values())
        if not graph.is_ours(name)
    }
    return Code(
        {name: _hash(graph.source(name), leads_to) for name, leads_to in targets.items()},
        {name: _version_of_import(name) for name in libraries - sys.stdlib_module_names},
    )


def _hash(source: _Source | None, leads_to: Mapping[_Taken, set[str]]) -> str:
    digest = hashlib.sha256(source.content if source else b"")
    for taken, modules in sorted(leads_to.items(), key=repr):
        digest.update(f"{taken}: {sorted(modules)}\n".encode())
    return digest.hexdigest()[:16]


@cache
def _version_of_import(name: str) -> str | None:
    """The version of what is imported under a name, mostly the distribution of that name."""
    found = library_version(name)
    if found is None and find_spec(name) is not None:
        # Slow, for it looks into every distribution.
        owners = sorted(set(packages_distributions().get(name, ())))
        return ", ".join(f"{owner} {library_version(owner)}" for owner in owners) or None
    return found


class _Graph:
    """Which module leads where, among the packages whose sources count.

    Args:
        packages: Names of the packages at the top.
    """

    def __init__(self, packages: Iterable[str]) -> None:
        # What runs as __main__ is not known by the name that it is imported by.
        self._specs = {name: None if name == "__main__" else find_spec(name) for name in packages}

    def is_ours(self, name: str) -> bool:
        """Whether it lies in one of the packages."""
        return name.partition(".")[0] in self._specs

    def _folders(self, name: str) -> tuple[Path, ...]:
        """Where the package at the top of a name stands."""
        spec = self._specs.get(name.partition(".")[0])
        return tuple(Path(place) for place in (spec and spec.submodule_search_locations) or ())

    def file(self, name: str) -> Path | None:
        """The source of a module; None if there is none, as for a folder without ``__init__``."""
        top, _, rest = name.partition(".")
        if rest:
            return _file(self._folders(top), rest)
        spec = self._specs.get(top)
        return Path(spec.origin) if spec and spec.origin and spec.has_location else None

    def below(self, name: str) -> list[str]:
        """All modules in a package, and in those below it; none if it is no package."""
        rest = name.split(".")[1:]
        return [
            ".".join([name, *_parts(path.relative_to(folder))])
            for place in self._folders(name)
            if (folder := place.joinpath(*rest)).is_dir()
            for path in sorted(folder.rglob("*.py"))
            if path.parent != folder or path.name != "__init__.py"
        ]

    def source(self, name: str) -> _Source | None:
        """The parsed module."""
        path = self.file(name)
        return _parse(name, path) if path else None

    def follow(
        self, roots: Iterable[str], counts: Callable[[str], bool]
    ) -> dict[str, dict[_Taken, set[str]]]:
        """Every module that the roots reach through modules that count, and where each leads.

        Args:
            roots: Names of modules.
            counts: Whether a module of ours is followed.
        """
        found: dict[str, dict[_Taken, set[str]]] = {}
        waiting = list(roots)
        while waiting:
            name = waiting.pop()
            if name in found or not counts(name):
                continue
            source = self.source(name)
            found[name] = {taken: self._target(*taken) for taken in source.takes} if source else {}
            for modules in found[name].values():
                waiting += [module for module in modules if self.is_ours(module)]
        return found

    def _target(self, module: str, name: str | None) -> set[str]:
        """The modules that taking a name from a module leads to, or a library's."""
        if not self.is_ours(module):
            return {module}
        if name is None and module.endswith("."):  # the rest is known at run time only
            return set(self.below(module[:-1]))
        path = self.file(module)
        if name is None or (path and path.name != "__init__.py"):
            return {module} if path else set()
        init = self.source(module)
        itself = {module} if init and init.acts else set()
        if init and name in init.passes_on:
            return self._target(*init.passes_on[name]) | itself
        if self.file(f"{module}.{name}"):
            return {f"{module}.{name}"} | itself
        return {module} if init else set()


@cache
def _file(folders: tuple[Path, ...], rest: str) -> Path | None:
    for folder in folders:
        base = folder.joinpath(*rest.split("."))
        for path in (base / "__init__.py", base.parent / f"{base.name}.py"):
            if path.is_file():
                return path
    return None


def _parts(path: Path) -> tuple[str, ...]:
    return path.parts[:-1] if path.name == "__init__.py" else path.with_suffix("").parts


@dataclass(frozen=True)
class _Source:
    """A module as its text tells it.

    Attributes:
        content: The text.
        takes: What it imports, wherever it does.
        passes_on: Of an ``__init__``, where names that it offers come from.
        acts: Whether an ``__init__`` does more than define names and pass them on.
    """

    content: bytes
    takes: tuple[_Taken, ...]
    passes_on: Mapping[str, _Taken]
    acts: bool


@cache
def _parse(name: str, path: Path) -> _Source:
    content = path.read_bytes()
    body = ast.parse(content).body
    is_init = path.name == "__init__.py"
    package = name if is_init else name.rpartition(".")[0]
    takes = [taken for _, taken in _imports(_statements(body), package)]
    # ``from importlib import import_module``, or ``import importlib``, be it with a submodule.
    if any(
        module == "importlib" or (module.startswith("importlib.") and taken is None)
        for module, taken in takes
    ):
        takes += _named(body, name, package)
    passes_on: dict[str, _Taken] = {}
    if is_init:
        passes_on = _lazy_exports(body, package, path.parent)
        takes += passes_on.values()
        passes_on.update(_imports(_statements(body, functions=False), package))
    acts = is_init and any(not _only_defines(statement) for statement in body)
    return _Source(content, tuple(dict.fromkeys(takes)), passes_on, acts)


def _statements(body: Iterable[ast.AST], *, functions: bool = True) -> Iterator[ast.AST]:
    """All statements but those under ``TYPE_CHECKING``, and perhaps those in functions."""
    for node in body:
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not functions:
            continue
        is_for_types = isinstance(node, ast.If) and _is_type_checking(node.test)
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            if not (is_for_types and part == "body"):
                inner = getattr(node, part, ())
                # The body of a lambda or a conditional expression is none of statements.
                yield from _statements(inner if isinstance(inner, list) else ())


def _is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _imports(statements: Iterable[ast.AST], package: str) -> Iterator[tuple[str, _Taken]]:
    """What import statements bind, and to what."""
    for node in statements:
        if isinstance(node, ast.Import):
            yield from ((one.asname or one.name, (one.name, None)) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = ".".join(filter(None, [*(above if node.level else ()), node.module]))
            for one in node.names:
                yield one.asname or one.name, (base, None if one.name == "*" else one.name)


def _named(body: list[ast.stmt], name: str, package: str) -> Iterator[_Taken]:
    """Modules that are imported by their names as text.

    Every text that is or begins the name of a module of ours counts, be it in a table or a function
    that makes names; of others, what stands in the call itself.
    """
    known = {"__name__": name, "__package__": package}
    ours = (f"{_OURS}.", f"{name.partition('.')[0]}.")
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            known.update(
                (one.id, str(node.value.value)) for one in node.targets if isinstance(one, ast.Name)
            )
    for node in ast.walk(ast.Module(body, [])):
        if isinstance(node, ast.Constant | ast.JoinedStr):
            text = _known_start(node, known)
            text = text if text.startswith(ours) else ""
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            called = called.id if isinstance(called, ast.Name) else called
            text = _known_start(node.args[0], known) if called in _BY_NAME else ""
        else:
            continue
        if _is_name(text.removesuffix(".")):
            yield text, None


def _is_name(text: str) -> bool:
    return re.fullmatch(r"\w+(\.\w+)*", text) is not None


def _known_start(node: ast.expr, known: Mapping[str, str]) -> str:
    """What is known of a text before it runs; if that is not all, up to the last dot."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if not isinstance(node, ast.JoinedStr):
        return ""
    text = ""
    for part in node.values:
        inner = part.value if isinstance(part, ast.FormattedValue) else part
        if isinstance(inner, ast.Constant):
            text += str(inner.value)
        elif isinstance(inner, ast.Name) and inner.id in known:
            text += known[inner.id]
        else:
            start, dot, _ = text.rpartition(".")
            return start + dot
    return text


def _lazy_exports(body: list[ast.stmt], package: str, folder: Path) -> dict[str, _Taken]:
    """Tables at the top of an ``__init__`` from names to the submodules that define them."""
    found: dict[str, _Taken] = {}
    for statement in body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr):
            continue
        for node in ast.walk(statement):
            if not isinstance(node, ast.Dict):
                continue
            for key, value in zip(node.keys, node.values, strict=True):
                if not (isinstance(key, ast.Constant) and isinstance(value, ast.Constant)):
                    continue
                if _file((folder,), str(value.value)):
                    found[str(key.value)] = (f"{package}.{value.value}", str(key.value))
    return found


def _only_defines(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        return _is_type_checking(statement.test)
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    kinds = ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign
    return isinstance(statement, kinds | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
