"""Size of a whole adapter, in trainable numbers or in bytes, and what a unit of it costs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from loca_theory._arguments import whole_number
from loca_theory.errors import InvalidArgumentError

LOCATION_BYTES = 16
"""A stored location of LoCA is two 64-bit integers."""

_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)(i?)(b?)", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3}


@dataclass(frozen=True)
class TotalSize:
    """Size of a whole adapter.

    Attributes:
        amount: The size.
        in_bytes: Whether it is in bytes of the stored tensors; otherwise in trainable numbers. The
            header of the file is not counted.

    Raises:
        InvalidArgumentError: the amount is not a positive whole number.
    """

    amount: int
    in_bytes: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "amount", whole_number("allocate", self.amount))
        if self.amount < 1:
            msg = f"allocate must be at least 1, not {self.amount}"
            raise InvalidArgumentError(msg)

    @classmethod
    def parse(cls, value: int | str | TotalSize) -> TotalSize:
        """Convert an argument ``allocate`` to a size.

        Args:
            value: A number of trainable numbers, such as 200000 or ``"200k"``, or a size in bytes,
                such as ``"4MB"``, ``"500kB"`` or ``"1MiB"``.

        Raises:
            InvalidArgumentError: the value is none of these.

        >>> TotalSize.parse("1.5MB")
        TotalSize(amount=1500000, in_bytes=True)
        """
        if isinstance(value, TotalSize):
            return value
        if not isinstance(value, str):
            return cls(value)
        found = _TEXT.fullmatch(value.strip())
        amount = 0.0
        if found:
            base = 1024 if found[3] else 1000
            amount = float(found[1]) * base ** _POWERS[found[2].lower()]
        # 1Mi without a B and 1iB without a prefix are units of nothing.
        if not found or (found[3] and not (found[2] and found[4])) or not amount.is_integer():
            msg = f"{value!r} is not a size of an adapter; write numbers, such as 200000 or 200k, "
            msg += "or bytes, such as 500kB, 4MB or 1MiB"
            raise InvalidArgumentError(msg)
        return cls(int(amount), in_bytes=bool(found[4]))

    def cost_of_number(self, number_bytes: int = 4) -> int:
        """Cost of one trainable number.

        Args:
            number_bytes: Bytes of a stored number.
        """
        return number_bytes if self.in_bytes else 1

    def cost_of_component(self, number_bytes: int = 4) -> int:
        """Cost of one of LoCA's coefficients; in bytes, with its location.

        Args:
            number_bytes: Bytes of a stored number.
        """
        return number_bytes + LOCATION_BYTES if self.in_bytes else 1

    def __str__(self) -> str:
        """``200,000 trainable numbers`` or ``4,000,000 bytes``."""
        return f"{self.amount:,} {'bytes' if self.in_bytes else 'trainable numbers'}"
