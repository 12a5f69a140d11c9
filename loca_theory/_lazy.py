"""Names that a package re-exports but imports only when they are used (PEP 562)."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as in typing, whose import would take as long as all of Python's start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the ``__getattr__`` of a package, which imports a name when it is first used.

    Args:
        package: The package's ``__name__``.
        modules: For each exported name, the submodule that it comes from.
    """

    def get(name: str) -> Any:
        if name in modules:
            return getattr(import_module(f"{package}.{modules[name]}"), name)
        msg = f"module {package!r} has no attribute {name!r}"
        raise AttributeError(msg)

    return get
