"""Sizes of adapters: a total in trainable numbers or bytes, and what the matrices get."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass

from loca_theory import _arguments
from loca_theory._lookup import find
from loca_theory.checkpoints.form.layer import Layer
from loca_theory.errors import InvalidArgumentError

TITLES = {"loca": "LoCA", "lora": "LoRA", "entries": "SHiRA"}
METHODS = {one: (one,) for one in TITLES} | {"best": ("lora", "loca")}
"""The methods that a matrix can have, by what is asked for; it gets the best of them."""

# Bytes of a location, two integers: of 64 bits for LoCA, whose matrices also store their shape, and
# of 32 bits for SHiRA.
_LOCATION_BYTES = {"lora": 0, "loca": 16, "entries": 8}

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
    def parse(cls, value: int | str | TotalSize | None) -> TotalSize | None:
        """Convert an argument ``allocate`` to a size; None stays None.

        >>> TotalSize.parse("1.5MB")
        TotalSize(amount=1500000, in_bytes=True)
        """
        if value is None or isinstance(value, TotalSize):
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
        """Cost of a unit, and of any size above 0 besides.

        A unit is a rank of LoRA, as many entries of SHiRA, or a coefficient of LoCA.
        """
        location = _LOCATION_BYTES[method] if self.in_bytes else 0
        number = location + (number_bytes if self.in_bytes else 1)
        return (number, location) if method == "loca" else (number * sum(shape), 0)

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
    allocate: TotalSize | None = None
    energy: float | None = None
    floor: int = 0
    cap: int | None = None
    pad: bool = False

    def __post_init__(self) -> None:
        find("method", self.method, METHODS)
        _arguments.fields_to_int(self, "floor")
        for name in ("rank", "components", "cap"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, _arguments.positive_number(name, value))
        self._check_one_size()
        self._check_limits()
        fraction = 1.0 if self.energy is None else _arguments.real_number("energy", self.energy)
        if not 0 < fraction <= 1:
            msg = f"the fraction of the energy must be above 0 and at most 1, not {fraction}"
            raise InvalidArgumentError(msg)

    def _check_one_size(self) -> None:
        if self.components is not None and self.method != "loca":
            msg = "components is for LoCA only; give the size of another adapter as a rank, such "
            raise InvalidArgumentError(msg + "as rank=8")
        if self.method == "entries" and self.rank is None:
            msg = "plain entries are stored as SHiRA, with r (p + q) in each matrix and one r for "
            raise InvalidArgumentError(msg + "all; pass a rank, such as rank=8, and no other size")
        sizes = (self.rank, self.components, self.allocate, self.energy)
        if sum(size is not None for size in sizes) != 1:
            either = "rank=8, components=1000" if self.method == "loca" else "rank=8"
            msg = "the adapter needs exactly one size; pass one of "
            msg += f'{either}, allocate="4MB" or energy=0.9'
            raise InvalidArgumentError(msg)

    def _check_limits(self) -> None:
        if self.floor < 0 or (self.cap is not None and self.floor > self.cap):
            msg = f"floor must be at least 0 and at most cap, not {self.floor}"
            raise InvalidArgumentError(msg)
        if not self.floor and self.cap is None:
            return
        if not self.is_split:
            msg = "floor and cap limit the sizes of a split; pass "
            raise InvalidArgumentError(msg + 'allocate="4MB" or energy=0.9 as well')
        if self.method == "best":
            msg = "floor and cap count ranks or coefficients, which method best mixes; choose one "
            raise InvalidArgumentError(msg + "method")

    @property
    def is_split(self) -> bool:
        """Whether the sizes of the matrices depend on their increments."""
        return self.allocate is not None or self.energy is not None

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that a matrix can have."""
        return METHODS[self.method]

    def methods_of(self, possible: Collection[str]) -> tuple[str, ...]:
        """Those of the methods that are possible for a matrix."""
        return tuple(one for one in self.methods if one in possible)

    def sizes_of(self, layer: Layer) -> dict[str, int]:
        """The r of LoRA or SHiRA, or the number of LoCA's coefficients, by possible method."""
        rank, most = self.rank or 0, math.prod(layer.stack)
        budget = self.components or sum(layer.sides) * rank // 2
        sizes = {"lora": min(rank, *layer.shape), "loca": min(budget, most), "entries": rank}
        return {method: sizes[method] for method in self.methods_of(layer.adapters)}
