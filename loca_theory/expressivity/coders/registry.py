"""The coders by name, in the order of tables."""

from __future__ import annotations

from loca_theory.expressivity.coders.coder import Coder
from loca_theory.expressivity.coders.low_rank import SingularVectors
from loca_theory.expressivity.coders.patches import Patches
from loca_theory.expressivity.coders.scalar import (
    EntropyCoded,
    Largest,
    LloydMax,
    RateDistortion,
    Signs,
    Uniform,
)

CODERS: dict[str, Coder] = {
    coder.name: coder
    for coder in (
        RateDistortion(), EntropyCoded(), LloydMax(), Uniform(), Signs(), Largest(),
        SingularVectors(), Patches("patches"), Patches("positions"),
    )
}  # fmt: skip
