"""What the comparison holds fixed while dependence grows."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from loca_theory._arguments import several
from loca_theory._lookup import member


class Protocol(StrEnum):
    """What R is compared with.

    - ``same-draw``: every curve approximates the same correlated matrix.
    - ``iid-reference``: R approximates the correlated matrix; D, M1, M2 and U stay at their values
      for independent entries. The paper's printed crossings come out under this one.
    """

    SAME_DRAW = "same-draw"
    IID_REFERENCE = "iid-reference"


def find_protocols(names: str | Iterable[str]) -> tuple[Protocol, ...]:
    """The protocols of these names.

    Raises:
        InvalidArgumentError: one is unknown; the message lists those there are.
    """
    return tuple(member(Protocol, "protocol", name) for name in several(names))
