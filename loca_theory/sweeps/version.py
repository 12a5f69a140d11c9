"""Versions of the code and of the libraries behind a stored result."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from loca_theory.errors import InvalidArgumentError

# Suffixes of the files of a package that can change a number.
_SOURCES = (".py", ".toml")
# The libraries whose version can change a number.
_LIBRARIES = ("numpy", "scipy", "torch")


@cache
def code_version(*packages: str) -> str:
    """Hash of the source files of packages, and of the versions of numpy, scipy and torch.

    Args:
        packages: Names of packages, with all that they contain, or of single modules.

    Raises:
        InvalidArgumentError: a package has no source files.

    >>> code_version("loca_theory.sweeps") == code_version("loca_theory.sweeps.random")
    False
    """
    digest = hashlib.sha256()
    for package in sorted(set(packages)):
        for name, path in _sources(package):
            digest.update(f"{package}/{name}\0".encode() + path.read_bytes() + b"\0")
    digest.update(
        "\n".join(f"{library}=={library_version(library)}" for library in _LIBRARIES).encode()
    )
    return digest.hexdigest()[:16]


def library_version(name: str) -> str | None:
    """Installed version of a distribution, found without importing it; None if not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _sources(package: str) -> list[tuple[str, Path]]:
    """The source files of a package or module, each with its name inside the package."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        spec = None
    folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    sources = [
        (path.relative_to(folder).as_posix(), path)
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix in _SOURCES
    ]
    if not folders and spec and spec.origin and spec.has_location:
        sources = [("", Path(spec.origin))]
    if not sources:
        raise InvalidArgumentError(
            f"the source of {package!r} cannot be found; name a package that can be imported"
        )
    return sorted(sources)
