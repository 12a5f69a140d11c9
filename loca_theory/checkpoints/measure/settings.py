"""Settings for the analysis of every increment."""

from __future__ import annotations

from dataclasses import dataclass, field

from loca_theory import _arguments
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Accounting, Method
from loca_theory.expressivity.coders.coder import checked_bits
from loca_theory.expressivity.methods.registry import find_methods, identities
from loca_theory.increments import PrintedTest

ANALYSED = find_methods(
    ("LoRA", "random Fourier", "FourierFT", "Fourier pairs", "Fourier", "LoCA", "entries")
)
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
        object.__setattr__(self, "bits", tuple(float(checked_bits(bits)) for bits in self.bits))
        if not 0 <= _arguments.real_number("epsilon", self.epsilon) < 1:
            raise InvalidArgumentError(
                f"epsilon must be at least 0 and below 1, not {self.epsilon}; "
                "choose a value such as epsilon=0.001"
            )
        if self.subspaces is not None:
            subspaces = _arguments.positive_number("subspaces", self.subspaces)
            object.__setattr__(self, "subspaces", subspaces)
