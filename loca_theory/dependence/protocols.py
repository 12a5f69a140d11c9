"""Protocols: what the low-rank error is compared with while dependence grows."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from loca_theory._arguments import as_tuple
from loca_theory._lookup import member
from loca_theory.expressivity import Method
from loca_theory.expressivity.methods.registry import find_methods

COMPARED = find_methods(("R", "D"))
"""The methods that the crossings compare."""
DRAWN = find_methods(("R", "F2", "D", "S"))
"""The methods that approximate the correlated draws by default."""


class Protocol(StrEnum):
    """What the low-rank error is compared with.

    - ``same-draw``: every method approximates the same correlated matrix.
    - ``iid-reference``: only the method R approximates the correlated matrix; the other methods
      have their exact errors for independent entries. The paper's printed crossings follow from
      this protocol.
    """

    SAME_DRAW = "same-draw"
    IID_REFERENCE = "iid-reference"

    def draws(self, method: Method) -> bool:
        """Whether a method approximates the correlated draws."""
        return method.can_approximate if self is Protocol.SAME_DRAW else method is COMPARED[0]


def find_protocols(names: str | Iterable[str]) -> tuple[Protocol, ...]:
    """Find protocols by their names."""
    return tuple(member(Protocol, "protocol", name) for name in as_tuple(names))
