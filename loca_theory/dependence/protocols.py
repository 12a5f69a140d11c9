"""What the comparison holds fixed while dependence grows."""

from __future__ import annotations

from enum import StrEnum


class Protocol(StrEnum):
    """What R is compared with.

    - ``same-draw``: every curve approximates the same correlated matrix.
    - ``iid-reference``: R approximates the correlated matrix; D, M1, M2 and U stay at their values
      for independent entries. The paper's printed crossings come out under this one.
    """

    SAME_DRAW = "same-draw"
    IID_REFERENCE = "iid-reference"
