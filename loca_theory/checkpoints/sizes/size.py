"""Sizes of adapters: a total in trainable numbers or bytes, and what the layers get."""

from __future__ import annotations

import re
from dataclasses import dataclass

from loca_theory import _arguments
from loca_theory._lookup import find
from loca_theory.checkpoints.form.form import Form
from loca_theory.checkpoints.form.forms import CHOICES
from loca_theory.checkpoints.form.layer import Layer
from loca_theory.checkpoints.source.checkpoint import Reason
from loca_theory.errors import InvalidArgumentError

DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Types in which an adapter can be stored, and their bytes per number."""

_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)(i?)(b?)", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3}


@dataclass(frozen=True)
class TotalSize:
    """Size of a whole adapter.

    Attributes:
        size: The size.
        in_bytes: Whether it is in bytes of the stored tensors; otherwise in trainable numbers. The
            header of the file is not counted.

    Raises:
        InvalidArgumentError: the size is not a positive whole number.
    """

    size: int
    in_bytes: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _arguments.positive_number("allocate", self.size))

    @classmethod
    def parse(cls, value: int | str | TotalSize | None) -> TotalSize | None:
        """Convert an argument ``allocate`` to a size; None stays None.

        >>> TotalSize.parse("1.5MB")
        TotalSize(size=1500000, in_bytes=True)
        """
        if value is None or isinstance(value, TotalSize):
            return value
        if not isinstance(value, str):
            return cls(value)
        match = _TEXT.fullmatch(value.strip())
        size = 0.0
        if match:
            base = 1024 if match[3] else 1000
            size = float(match[1]) * base ** _POWERS[match[2].lower()]
        # 1Mi without a B and 1iB without a prefix are units of nothing.
        if not match or (match[3] and not (match[2] and match[4])) or not size.is_integer():
            raise InvalidArgumentError(
                f"{value!r} is not a size of an adapter; write numbers, such as 200000 or 200k, "
                "or bytes, such as 500kB, 4MB or 1MiB"
            )
        return cls(int(size), in_bytes=bool(match[4]))

    def number_bytes(self, dtype: str) -> int | None:
        """Bytes of a stored number, if the size is in bytes; otherwise None."""
        return DTYPES[dtype] if self.in_bytes else None

    def __str__(self) -> str:
        """``200,000 trainable numbers`` or ``4,000,000 bytes``."""
        return f"{self.size:,} {'bytes' if self.in_bytes else 'trainable numbers'}"


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

    def __post_init__(self) -> None:
        find("method", self.method, CHOICES)
        _arguments.fields_to_int(self, "floor")
        for name in ("rank", "components", "cap"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, _arguments.positive_number(name, value))
        self._check_one_size()
        self._check_limits()
        fraction = 1.0 if self.energy is None else _arguments.real_number("energy", self.energy)
        if not 0 < fraction <= 1:
            raise InvalidArgumentError(
                f"the fraction of the energy must be above 0 and at most 1, not {fraction}"
            )

    def _check_one_size(self) -> None:
        has_components = all(form.size_name == "components" for form in self.forms)
        if self.components is not None and not has_components:
            raise InvalidArgumentError(
                "components is for LoCA only; give the size of another adapter as a rank, such "
                "as rank=8"
            )
        for form in self.forms:
            if form.one_size and self.rank is None:
                raise InvalidArgumentError(
                    f"{form.one_size}; pass a rank, such as rank=8, and no other size"
                )
        sizes = (self.rank, self.components, self.allocate, self.energy)
        if sum(size is not None for size in sizes) != 1:
            either = "rank=8, components=1000" if has_components else "rank=8"
            raise InvalidArgumentError(
                "the adapter needs exactly one size; pass one of "
                f'{either}, allocate="4MB" or energy=0.9'
            )

    def _check_limits(self) -> None:
        if self.floor < 0 or (self.cap is not None and self.floor > self.cap):
            raise InvalidArgumentError(
                f"floor must be at least 0 and at most cap, not {self.floor}"
            )
        if not self.floor and self.cap is None:
            return
        if not self.is_split:
            raise InvalidArgumentError(
                "floor and cap limit the sizes of a split; pass "
                'allocate="4MB" or energy=0.9 as well'
            )
        if len(self.forms) > 1:
            raise InvalidArgumentError(
                "floor and cap count ranks or coefficients, which method best mixes; choose one "
                "method"
            )

    @property
    def is_split(self) -> bool:
        """Whether the sizes of the layers depend on their increments."""
        return self.allocate is not None or self.energy is not None

    @property
    def forms(self) -> tuple[Form, ...]:
        """The forms that a layer can have."""
        return CHOICES[self.method]

    def obstacle(self, layer: Layer) -> Reason | None:
        """Why a layer can have none of the forms; None if it can have one."""
        reasons = [form.obstacle(layer, self.rank or 0) for form in self.forms]
        return None if None in reasons else reasons[0]

    def sizes_of(self, layer: Layer) -> dict[str, int]:
        """The size of a layer in each form that it can have, if all have the same."""
        return {
            form.key: min(
                self.components or form.size_of_rank(layer, self.rank or 0), form.largest(layer)
            )
            for form in self.forms
            if form.obstacle(layer) is None
        }
