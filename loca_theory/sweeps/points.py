"""What identifies one computation of a sweep."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

# A parameter is anything that JSON keeps exactly.
Parameter = int | float | str | bool | None | list["Parameter"] | dict[str, "Parameter"]


@dataclass(frozen=True)
class Point:
    """One independent computation.

    Attributes:
        experiment: Name of what is computed.
        parameters: Everything the result depends on besides the code: sizes, seed, replicates.
    """

    experiment: str
    parameters: Mapping[str, Any]

    def describe(self) -> dict[str, Any]:
        """The point as plain data, as it is stored beside its result."""
        return {"experiment": self.experiment, "parameters": dict(self.parameters)}

    def key(self, version: str) -> str:
        """Hash that names the point's file: equal only for equal point and code version."""
        text = json.dumps({**self.describe(), "version": version}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def code_version(
    modules: Iterable[str], libraries: Iterable[str] = (), sources: Iterable[Path] = ()
) -> str:
    """Version of the computing code: a hash of its sources and of the libraries it rests on.

    Args:
        modules: Paths of modules or subpackages below ``loca_theory``, such as ``"expressivity"``.
            Every Python file in them counts, so a changed helper never leaves stale results behind.
        libraries: Distributions whose version can change a result, such as ``"numpy"``.
        sources: Further files of code, outside the package; where they stand does not count.

    Returns:
        A short hash.
    """
    return _hash_of_code(tuple(sorted(modules)), tuple(sorted(libraries)), tuple(sorted(sources)))


@cache
def _hash_of_code(
    modules: tuple[str, ...], libraries: tuple[str, ...], sources: tuple[Path, ...] = ()
) -> str:
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for module in modules:
        path = root / module
        for source in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(source.relative_to(root).as_posix().encode() + b"\0")
            digest.update(source.read_bytes() + b"\0")
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    for library in libraries:
        digest.update(f"{library}=={library_version(library)}\0".encode())
    return digest.hexdigest()[:16]


def package_version() -> str:
    """Hash of all the package's code: equal on machines that run the same."""
    return _hash_of_code(("",), ())


def library_version(name: str) -> str | None:
    """Installed version of a distribution, found without importing it."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
