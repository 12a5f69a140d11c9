"""What the comparison holds fixed while dependence grows."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from loca_theory._arguments import several
from loca_theory._lookup import member
from loca_theory.expressivity import Method, find_methods

COMPARED = find_methods(("R", "D"))
"""The methods that the crossings compare."""
DRAWN = find_methods(("R", "F2", "D", "S"))
"""Methods that approximate the correlated draws, unless others are named."""


class Protocol(StrEnum):
    """What R is compared with.

    - ``same-draw``: every method approximates the same correlated matrix.
    - ``iid-reference``: R approximates the correlated matrix; the other methods stay at their exact
      values for independent entries. The paper's printed crossings come out under this one.
    """

    SAME_DRAW = "same-draw"
    IID_REFERENCE = "iid-reference"

    def draws(self, method: Method) -> bool:
        """Whether a method approximates the correlated draws."""
        return method.is_approximation if self is Protocol.SAME_DRAW else method is COMPARED[0]


def find_protocols(names: str | Iterable[str]) -> tuple[Protocol, ...]:
    """The protocols of these names.

    Raises:
        InvalidArgumentError: one is unknown; the message lists those there are.
    """
    return tuple(member(Protocol, "protocol", name) for name in several(names))
