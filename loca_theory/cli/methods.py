"""Methods on the command line, by name or as ``module:attribute``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loca_theory.expressivity import Method


def chosen_methods(names: tuple[str, ...]) -> tuple[Method, ...]:
    """The methods that were typed; ``all`` stands for those of the package.

    Modules are looked for in the current folder as well, as ``python -m`` does.

    Raises:
        InvalidArgumentError: a name is unknown, a module does not import, or two are of one name.
    """
    from loca_theory.expressivity import METHODS, find_methods

    if any(":" in name for name in names) and "" not in sys.path:
        sys.path.insert(0, "")
    return tuple(METHODS.values()) if names == ("all",) else find_methods(names)
