"""Settings for the analysis of every increment."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from loca_theory import _arguments
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Accounting, Method
from loca_theory.expressivity.coders.coder import checked_bits
from loca_theory.expressivity.methods.registry import find_methods
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
        has_profiles: Whether to compute what LoCA retains at every size, for an allocation.

    Raises:
        InvalidArgumentError: a value is out of range.
    """

    ranks: tuple[int, ...]
    methods: tuple[Method, ...] = ANALYSED
    seed: int = 0
    epsilon: float = 0.001
    accounting: Accounting = Accounting.PAPER
    device: str = "cpu"
    printed: PrintedTest = field(default_factory=PrintedTest)
    subspaces: int | None = None
    has_profiles: bool = False
    group: str | None = None
    bits: tuple[float, ...] = ()

    def describe(self) -> dict[str, Any]:
        """The settings as plain data."""
        return {
            **vars(self),
            "ranks": list(self.ranks),
            "bits": list(self.bits),
            "methods": [method.name for method in self.methods],
            "accounting": self.accounting.value,
            "printed": asdict(self.printed),
        }

    def __post_init__(self) -> None:
        find_methods(self.methods)
        object.__setattr__(self, "ranks", _arguments.ranks(self.ranks))
        _arguments.fields_to_int(self, "seed")
        _arguments.expression("group", self.group)
        object.__setattr__(self, "bits", tuple(float(checked_bits(one)) for one in self.bits))
        if not 0 <= _arguments.real_number("epsilon", self.epsilon) < 1:
            msg = f"epsilon must be at least 0 and below 1, not {self.epsilon}; "
            raise InvalidArgumentError(msg + "choose a value such as epsilon=0.001")
        if self.subspaces is not None:
            _arguments.fields_to_int(self, "subspaces")
            if self.subspaces < 1:
                msg = f"subspaces must be at least 1, not {self.subspaces}; choose a value such as "
                raise InvalidArgumentError(msg + "subspaces=10")
