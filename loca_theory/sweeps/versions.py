"""Version of the code behind a stored result, derived from the imports of that code.

A result depends on the module of the function that computes it, on every module that this module
imports directly or indirectly, and on the libraries that these modules import. All of them are
found by parsing the sources, without importing anything. The rules:

- Imports inside functions count; imports under ``TYPE_CHECKING`` do not. If a module can import by
  name (:func:`importlib.import_module`), every string in it that names a module counts. A name that
  is completed at run time stands for every module of the package that it begins with.
- A name imported from a package leads to the module that defines it, through the imports of the
  package's ``__init__`` and its tables of lazy exports. A change in one module of a package
  therefore does not outdate results that use other names of the package. An ``__init__`` that does
  more than re-export names (calls a function, say) counts if a name is imported from its package,
  but not if a module of the package is imported. Settings that it makes for all modules, such as
  torch's default type, are not detected.
- The runner does not count: :mod:`loca_theory.sweeps.execution` and all modules of its package that
  it imports. It distributes points and stores their results, and the numbers do not depend on it.
- Data files do not count: what a computation reads from a file must be among its parameters.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps.imports import OURS, Source, Taken, parse, source_file

_RUNNER = f"{OURS}.sweeps.execution"
_RUNNERS_PACKAGE = _RUNNER.rpartition(".")[0]


@dataclass(frozen=True)
class Code:
    """The code that a computation depends on.

    Attributes:
        modules: Hash of each module's source and of the targets of its imports, by module name.
        libraries: Installed version of each library, by import name; None if it is not installed.
    """

    modules: Mapping[str, str]
    libraries: Mapping[str, str | None]

    @property
    def version(self) -> str:
        """Short hash of all modules and libraries."""
        lines = [f"{name} {found}" for name, found in sorted(self.modules.items())]
        lines += [f"{name}=={found}" for name, found in sorted(self.libraries.items())]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def code_version(*roots: Callable[..., Any] | str) -> str:
    """Return a version of the code behind a result: equal only for equal sources and libraries.

    Args:
        roots: The functions that compute it, or names of modules; the name of a package stands for
            every module in it.

    Returns:
        A short hash.

    Raises:
        InvalidArgumentError: the source of a root cannot be found.

    >>> from loca_theory.sweeps import generator
    >>> code_version(generator) == code_version("loca_theory.sweeps.seeds")
    True
    """
    return reached_code(*roots).version


def reached_code(*roots: Callable[..., Any] | str) -> Code:
    """Return the modules and libraries that :func:`code_version` hashes, for the same arguments.

    Raises:
        InvalidArgumentError: the source of a root cannot be found.
    """
    return _reached(tuple(sorted({_module_of(root) for root in roots})))


@cache
def package_version() -> str:
    """Hash of the whole package's code: equal on machines that run the same version."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def library_version(name: str) -> str | None:
    """Installed version of a distribution, found without importing it; None if not installed."""
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
    graph = _Graph({OURS, *(root.partition(".")[0] for root in roots)})
    start: list[str] = []
    for root in roots:
        if graph.file(root) is None and not graph.below(root):
            msg = f"the source of {root!r} cannot be found; define the function in a module that "
            msg += "can be imported"
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


def _hash(source: Source | None, leads_to: Mapping[Taken, set[str]]) -> str:
    digest = hashlib.sha256(source.content if source else b"")
    for taken, modules in sorted(leads_to.items(), key=repr):
        digest.update(f"{taken}: {sorted(modules)}\n".encode())
    return digest.hexdigest()[:16]


@cache
def _version_of_import(name: str) -> str | None:
    """Version of the distribution behind an import name, which mostly has the same name."""
    found = library_version(name)
    if found is None and find_spec(name) is not None:
        # Slow, because it reads every distribution.
        owners = sorted(set(packages_distributions().get(name, ())))
        return ", ".join(f"{owner} {library_version(owner)}" for owner in owners) or None
    return found


class _Graph:
    """Import graph of the packages whose sources count.

    Args:
        packages: Names of the top-level packages.
    """

    def __init__(self, packages: Iterable[str]) -> None:
        # find_spec fails for __main__.
        self._specs = {name: None if name == "__main__" else find_spec(name) for name in packages}

    def is_ours(self, name: str) -> bool:
        """Whether a module lies in one of the packages."""
        return name.partition(".")[0] in self._specs

    def _folders(self, name: str) -> tuple[Path, ...]:
        """Folders of the top-level package of a name."""
        spec = self._specs.get(name.partition(".")[0])
        return tuple(
            Path(folder_of_part)
            for folder_of_part in (spec and spec.submodule_search_locations) or ()
        )

    def file(self, name: str) -> Path | None:
        """Source file of a module; None if it has none, like a folder without ``__init__``."""
        top, _, rest = name.partition(".")
        if rest:
            return source_file(self._folders(top), rest)
        spec = self._specs.get(top)
        return Path(spec.origin) if spec and spec.origin and spec.has_location else None

    def below(self, name: str) -> list[str]:
        """All modules in a package and its subpackages; empty if the name is not a package."""
        rest = name.split(".")[1:]
        return [
            ".".join([name, *_parts(path.relative_to(folder))])
            for folder_of_part in self._folders(name)
            if (folder := folder_of_part.joinpath(*rest)).is_dir()
            for path in sorted(folder.rglob("*.py"))
            if path.parent != folder or path.name != "__init__.py"
        ]

    def source(self, name: str) -> Source | None:
        """Parse a module; None if it has no source file."""
        path = self.file(name)
        return parse(name, path) if path else None

    def follow(
        self, roots: Iterable[str], counts: Callable[[str], bool]
    ) -> dict[str, dict[Taken, set[str]]]:
        """Find every module that the roots reach, and the targets of its imports.

        Args:
            roots: Names of modules.
            counts: Whether to include and follow a module.
        """
        found: dict[str, dict[Taken, set[str]]] = {}
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
        """Find the modules that an import of a name from a module leads to."""
        if not self.is_ours(module):
            return {module}
        if name is None and module.endswith("."):  # the rest is known only at run time
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


def _parts(path: Path) -> tuple[str, ...]:
    return path.parts[:-1] if path.name == "__init__.py" else path.with_suffix("").parts
