"""Find the imports of a module by parsing its source, without importing it.

The rules are those of :mod:`loca_theory.sweeps.versions`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

OURS = "loca_theory"
_BY_NAME = ("import_module", "find_spec")

# An import: a module, and a name in it or None for the module itself.
Taken = tuple[str, str | None]


@dataclass(frozen=True)
class Source:
    """A parsed module.

    Attributes:
        content: The source text.
        takes: Its imports, including those inside functions.
        passes_on: For an ``__init__``, the origin of each name that it re-exports.
        acts: Whether an ``__init__`` does more than define and re-export names.
    """

    content: bytes
    takes: tuple[Taken, ...]
    passes_on: Mapping[str, Taken]
    acts: bool


@cache
def parse(name: str, path: Path) -> Source:
    """Parse the module with the given name from its file."""
    content = path.read_bytes()
    body = ast.parse(content).body
    is_init = path.name == "__init__.py"
    package = name if is_init else name.rpartition(".")[0]
    takes = [taken for _, taken in _imports(_statements(body), package)]
    # ``from importlib import import_module``, ``import importlib`` or ``import importlib.util``.
    if any(
        module == "importlib" or (module.startswith("importlib.") and taken is None)
        for module, taken in takes
    ):
        takes += _named(body, name, package)
    passes_on: dict[str, Taken] = {}
    if is_init:
        passes_on = _lazy_exports(body, package, path.parent)
        takes += passes_on.values()
        passes_on.update(_imports(_statements(body, functions=False), package))
    acts = is_init and any(not _only_defines(statement) for statement in body)
    return Source(content, tuple(dict.fromkeys(takes)), passes_on, acts)


def _statements(body: Iterable[ast.AST], *, functions: bool = True) -> Iterator[ast.AST]:
    """Yield nested statements, except under ``TYPE_CHECKING`` and, optionally, in functions."""
    for node in body:
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not functions:
            continue
        is_for_types = isinstance(node, ast.If) and _is_type_checking(node.test)
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, part, None)
            # The body of a lambda or a conditional expression is not a list of statements.
            if isinstance(inner, list) and not (is_for_types and part == "body"):
                yield from _statements(inner)


def _is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _imports(statements: Iterable[ast.AST], package: str) -> Iterator[tuple[str, Taken]]:
    """Yield each name that import statements bind, with its import."""
    for node in statements:
        if isinstance(node, ast.Import):
            yield from ((one.asname or one.name, (one.name, None)) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = ".".join(filter(None, [*(above if node.level else ()), node.module]))
            for one in node.names:
                yield one.asname or one.name, (base, None if one.name == "*" else one.name)


def _named(body: list[ast.stmt], name: str, package: str) -> Iterator[Taken]:
    """Find modules that are imported by name, from the strings of a module.

    Every string that is or begins the name of a module in ``loca_theory`` or in the importing
    module's top package counts, because tables and functions can build names from it. For other
    packages only the argument of the import call counts.
    """
    known = {"__name__": name, "__package__": package}
    ours = (f"{OURS}.", f"{name.partition('.')[0]}.")
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
    """Return a string as far as it is known statically; if not all, up to its last dot."""
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


def _lazy_exports(body: list[ast.stmt], package: str, folder: Path) -> dict[str, Taken]:
    """Read top-level tables of an ``__init__`` that map names to their submodules."""
    found: dict[str, Taken] = {}
    for statement in body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr):
            continue
        for node in ast.walk(statement):
            if not isinstance(node, ast.Dict):
                continue
            for key, value in zip(node.keys, node.values, strict=True):
                if not (isinstance(key, ast.Constant) and isinstance(value, ast.Constant)):
                    continue
                if source_file((folder,), str(value.value)):
                    found[str(key.value)] = (f"{package}.{value.value}", str(key.value))
    return found


def _only_defines(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        return _is_type_checking(statement.test)
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    kinds = ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign
    return isinstance(statement, kinds | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


@cache
def source_file(folders: tuple[Path, ...], rest: str) -> Path | None:
    """Find the file of a module by its name relative to one of the folders; None if absent."""
    for folder in folders:
        base = folder.joinpath(*rest.split("."))
        for path in (base / "__init__.py", base.parent / f"{base.name}.py"):
            if path.is_file():
                return path
    return None
