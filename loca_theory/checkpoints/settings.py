"""Settings for the analysis of every increment, and which matrices are taken."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from loca_theory import _arguments
from loca_theory._lookup import find
from loca_theory.checkpoints.model.layouts import EXPERTS, Experts
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Accounting, Method
from loca_theory.expressivity.coders.coder import checked_bits
from loca_theory.expressivity.methods.registry import find_methods, identities
from loca_theory.increments import PrintedTest

ANALYSED = find_methods(("R", "F1", "FourierFT", "F2", "F3", "D", "S"))
"""Methods whose errors on an increment are computed by default."""


@dataclass(frozen=True)
class Settings:
    """Settings for the analysis of every increment; see :func:`~loca_theory.checkpoints.analyze`.

    Attributes:
        subspaces: Number k of leading singular vectors to compare; None for no comparison.
        group: Regular expression for the kinds of matrices, as in ``analyze``; None for none.
        bits: Bits per entry at which coders are compared.

    Raises:
        InvalidArgumentError: a value is out of range.
    """

    ranks: tuple[int, ...]
    methods: tuple[Method, ...] = field(default=ANALYSED, metadata={"describe": identities})
    seed: int = 0
    epsilon: float = 0.001
    accounting: Accounting = Accounting.PAPER
    # Not part of a key: NumPy draws all random numbers, so results on different devices differ only
    # by rounding.
    device: str = field(default="cpu", compare=False)
    printed: PrintedTest = field(default_factory=PrintedTest)
    subspaces: int | None = None
    group: str | None = None
    bits: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _arguments.fields_to_int(self, "seed")
        _arguments.expression("group", self.group)
        object.__setattr__(self, "bits", tuple(float(checked_bits(one)) for one in self.bits))
        if not 0 <= _arguments.real_number("epsilon", self.epsilon) < 1:
            msg = f"epsilon must be at least 0 and below 1, not {self.epsilon}; "
            raise InvalidArgumentError(msg + "choose a value such as epsilon=0.001")
        if self.subspaces is not None:
            found = _arguments.positive_number("subspaces", self.subspaces)
            object.__setattr__(self, "subspaces", found)


@dataclass(frozen=True)
class Selection:
    """Which matrices to compare.

    Attributes:
        include: Regular expression; the name must contain a match.
        exclude: Regular expression; the name must not contain a match.
        max_size: Largest number of entries, or None for no limit.
        smallest_side: Matrices with fewer rows or fewer columns are left out.
        experts: What the weights of several experts in one tensor are: ``each``, one matrix per
            expert, ``NAME[0]``, ``NAME[1]``, …; ``stacked``, one matrix with the rows of all.

    Raises:
        InvalidArgumentError: an expression is not valid, max_size is not a positive integer, or
            experts is neither of the two.
    """

    include: str | None = None
    exclude: str | None = None
    max_size: int | None = None
    smallest_side: int = 16
    experts: Experts = "each"

    def __post_init__(self) -> None:
        for name in ("include", "exclude"):
            _arguments.expression(name, getattr(self, name))
        if self.max_size is not None:
            _arguments.positive_number("max_size", self.max_size)
        find("interpretation of experts", self.experts, EXPERTS)

    def of_extraction(self) -> Selection:
        """The same matrices as an adapter changes them: of any size, and all experts together."""
        return replace(self, smallest_side=1, experts="stacked")

    def selects(self, name: str) -> bool:
        """Whether include and exclude admit a name."""
        is_included = bool(re.search(self.include or "", name))
        return is_included and (self.exclude is None or not re.search(self.exclude, name))
