"""Lists and inclusive ranges on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

import click

_NUMBER_FORMS = (
    "write a list such as 0.1,0.2 or an inclusive range with its step such as 0..0.4..0.01"
)
_FORMS = "write a list such as 8,16,32 or an inclusive range such as 8..32 or 8..32..4"
# A longer list is a typing error, and would fill the memory.
_MOST = 100_000


class _ParsedList(click.ParamType):
    """A list in one argument; text that its parser cannot read is a usage error."""

    parse: ClassVar[Callable[[str], tuple[Any, ...]]]

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        """Return the items in increasing order, without duplicates."""
        if isinstance(value, tuple):
            return value
        try:
            return type(self).parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def parse_integers(text: str) -> tuple[int, ...]:
    """Parse a list of positive whole numbers.

    Returns:
        The numbers in increasing order, without duplicates.
    """
    found: set[int] = set()
    for part in text.split(","):
        if "..." in part:
            msg = (
                f"{part.strip()!r} has too many dots; write {re.sub('[.]{3,}', '..', part).strip()}"
            )
            raise ValueError(msg)
        numbers = [_positive(number, text) for number in re.split(r"\.\.", part)]
        if len(numbers) > 3:
            msg = f"{part.strip()!r} has too many parts; {_FORMS}"
            raise ValueError(msg)
        first, last, step = (
            [*numbers, numbers[0], 1][:3] if len(numbers) == 1 else [*numbers, 1][:3]
        )
        if last < first:
            msg = f"the range {part.strip()!r} is reversed; write {last}..{first}"
            raise ValueError(msg)
        if (last - first) // step >= _MOST:
            msg = f"the range {part.strip()!r} holds more than {_MOST} numbers; choose fewer"
            raise ValueError(msg)
        found.update(range(first, last + 1, step))
    return tuple(sorted(found))


def _positive(text: str, whole: str) -> int:
    text = text.strip()
    if not re.fullmatch(r"[0-9]+", text):
        shown = f"{text!r} in {whole!r}" if text != whole else repr(text)
        problem = "is empty" if not text else "is not a positive whole number"
        way_out = _FORMS
        if meant := re.fullmatch(r"([0-9]+)\s*(?:[:-]|to)\s*([0-9]+)", text):
            way_out = f"for a range write {meant[1]}..{meant[2]}"
        msg = f"{shown} {problem}; {way_out}"
        raise ValueError(msg)
    if len(text.lstrip("0")) > 9:
        msg = f"a number in {_shortened(whole)} is too large; the largest is 999999999"
        raise ValueError(msg)
    if int(text) == 0:
        msg = f"0 in {whole!r} is not positive; {_FORMS}"
        raise ValueError(msg)
    return int(text)


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


class Shape(click.ParamType):
    """A matrix shape, ``PxQ``."""

    name = "PxQ"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return (p, q)."""
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"([1-9][0-9]{0,8})[xX×]([1-9][0-9]{0,8})", value.strip())
        if not match:
            self.fail(
                f"{value!r} is not a shape; write rows x columns, such as 768x3072", param, ctx
            )
        return int(match[1]), int(match[2])


class NameList(click.ParamType):
    """Comma-separated names, which the command checks."""

    name = "names"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names in the given order, without duplicates."""
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(name.strip() for name in value.split(",")))
        if "" in names:
            self.fail(f"{value!r} holds an empty name; write them as A,B,C", param, ctx)
        return names


def parse_numbers(text: str) -> tuple[float, ...]:
    """Parse a list of decimal numbers.

    Returns:
        The numbers in increasing order, without duplicates.
    """
    found: set[Decimal] = set()
    for part in text.split(","):
        numbers = [_decimal(number, text) for number in part.split("..")]
        if len(numbers) not in (1, 3):
            msg = f"{part.strip()!r} is not a number or a range with its step; {_NUMBER_FORMS}"
            raise ValueError(msg)
        first, last, step = numbers if len(numbers) == 3 else (numbers[0], numbers[0], Decimal(1))
        if step <= 0 or last < first:
            problem = "has a step that is not positive" if step <= 0 else "is reversed"
            msg = f"the range {part.strip()!r} {problem}; {_NUMBER_FORMS}"
            raise ValueError(msg)
        count = int((last - first) / step)
        if count >= _MOST:
            msg = (
                f"the range {part.strip()!r} holds more than {_MOST} numbers; choose a larger step"
            )
            raise ValueError(msg)
        found.update(first + step * i for i in range(count + 1))
    return tuple(float(number) for number in sorted(found))


def _decimal(text: str, whole: str) -> Decimal:
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite():
        msg = f"{text.strip()!r} in {_shortened(whole)} is not a number; {_NUMBER_FORMS}"
        raise ValueError(msg)
    return number


class IntegerList(_ParsedList):
    """Positive whole numbers: ``8``, ``8,16,32``, ``8..32``, ``8..32..4`` or a mix of these."""

    name = "list"
    parse = staticmethod(parse_integers)


class NumberList(_ParsedList):
    """Numbers: ``0.1``, ``0,0.1,0.3`` or the inclusive range ``0..0.4..0.01``."""

    name = "list"
    parse = staticmethod(parse_numbers)
