"""Sizes of adapters: a total in trainable numbers or bytes, and what the matrices get."""

from __future__ import annotations

import re
from dataclasses import dataclass

from loca_theory import _arguments
from loca_theory._lookup import find
from loca_theory.errors import InvalidArgumentError

TITLES = {"loca": "LoCA", "lora": "LoRA", "entries": "SHiRA"}
BETTER = ("lora", "loca")
"""The methods of which ``best`` takes the better one for each matrix."""
_CHOICES = {**TITLES, "best": "the better of LoRA and LoCA"}
# More than any matrix has; larger numbers do not fit the integers of NumPy.
_MOST = 2**53
# A location of LoCA, or the shape of its matrix, is two 64-bit integers.
_PAIR_BYTES = 16

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
        object.__setattr__(self, "amount", _arguments.positive_number("allocate", self.amount))

    @classmethod
    def parse(cls, value: int | str | TotalSize) -> TotalSize:
        """Convert an argument ``allocate`` to a size.

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

    def costs(self, method: str, shape: tuple[int, int], number_bytes: int = 4) -> tuple[int, int]:
        """Cost of a rank of LoRA or of a coefficient of LoCA, and of any size above 0 besides."""
        number = number_bytes if self.in_bytes else 1
        if method == "lora":
            return number * sum(shape), 0
        # LoCA also stores locations and the shape of the matrix.
        return (number + _PAIR_BYTES, _PAIR_BYTES) if self.in_bytes else (number, 0)

    def __str__(self) -> str:
        """``200,000 trainable numbers`` or ``4,000,000 bytes``."""
        return f"{self.amount:,} {'bytes' if self.in_bytes else 'trainable numbers'}"


@dataclass(frozen=True)
class AdapterSize:
    """Size of an adapter; see :func:`~loca_theory.checkpoints.extract`.

    Raises:
        InvalidArgumentError: the method is unknown, there is not exactly one size, or a value is
            out of range.
    """

    method: str
    rank: int | None = None
    components: int | None = None
    allocate: int | str | TotalSize | None = None
    energy: float | None = None
    floor: int = 0
    cap: int | None = None

    def __post_init__(self) -> None:
        find("method", self.method, _CHOICES)
        for name in ("rank", "components", "cap"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, _arguments.positive_number(name, value))
        if self.components is not None and self.method != "loca":
            msg = (
                "components is for LoCA only; give the size of another adapter as a rank, such as "
            )
            raise InvalidArgumentError(msg + "rank=8")
        rest = (self.components, self.allocate, self.energy)
        if self.method == "entries" and (self.rank is None or any(one is not None for one in rest)):
            msg = "plain entries are stored as SHiRA, with r (p + q) in each matrix and one r for "
            raise InvalidArgumentError(msg + "all; pass a rank, such as rank=8, and no other size")
        sizes = (self.rank, self.components, self.allocate, self.energy)
        if sum(size is not None for size in sizes) != 1:
            either = "rank=8, components=1000" if self.method == "loca" else "rank=8"
            msg = "the adapter needs exactly one size; pass one of "
            msg += f'{either}, allocate="4MB" or energy=0.9'
            raise InvalidArgumentError(msg)
        if self.allocate is not None:
            object.__setattr__(self, "allocate", TotalSize.parse(self.allocate))
        fraction = 1.0 if self.energy is None else _arguments.real_number("energy", self.energy)
        if not 0 < fraction <= 1:
            msg = f"the fraction of the energy must be above 0 and at most 1, not {fraction}"
            raise InvalidArgumentError(msg)
        self._check_limits()

    def _check_limits(self) -> None:
        _arguments.fields_to_int(self, "floor")
        if self.cap is not None:
            object.__setattr__(self, "cap", min(self.cap, _MOST))
        most = _MOST if self.cap is None else self.cap
        has_limits = self.floor > 0 or self.cap is not None
        if not 0 <= self.floor <= most:
            msg = f"floor must be from 0 to {most if self.cap is None else 'cap'}, not {self.floor}"
            raise InvalidArgumentError(msg)
        if has_limits and not self.is_split:
            msg = "floor and cap limit the sizes of a split; pass "
            raise InvalidArgumentError(msg + 'allocate="4MB" or energy=0.9 as well')
        if has_limits and self.method == "best":
            msg = "floor and cap count ranks or coefficients, which method best mixes; choose one "
            raise InvalidArgumentError(msg + "method")

    @property
    def is_split(self) -> bool:
        """Whether the sizes of the matrices depend on their increments."""
        return self.allocate is not None or self.energy is not None

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that a matrix can have."""
        return BETTER if self.method == "best" else (self.method,)

    def count(self, method: str, p: int, q: int) -> int:
        """The r of LoRA or SHiRA, or the number of LoCA's coefficients, for a p×q matrix."""
        if method == "entries":
            return self.rank or 0
        if method == "lora":
            return min(self.rank or 0, p, q)
        return min(self.components or (p + q) * (self.rank or 0) // 2, p * q)
