"""Lists, inclusive ranges and shapes on the command line, each of which is one text."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any

import click

# A longer list is a typing error, and would fill the memory.
_MOST = 100_000
# No number that a user means has a larger exponent, with which arithmetic might overflow.
_LARGEST_EXPONENT = 99


class NumberList(click.ParamType):
    """Numbers: ``0.1``, ``0,0.1,0.3``, the inclusive range ``0..0.4..0.01`` or a mix of these."""

    name = "list"
    content = "a number"
    forms = "write a list such as 0.1,0.2 or an inclusive range with its step such as 0..0.4..0.01"
    pattern = ".*"
    default_steps: tuple[Decimal, ...] = ()
    kind: type = float

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[Any, ...]:  # noqa: ARG002
        """The numbers in increasing order, without duplicates."""
        numbers = {number for part in value.split(",") for number in self._range(part)}
        return tuple(map(self.kind, sorted(numbers)))

    def get_missing_message(self, param: Any, ctx: Any) -> str:  # noqa: ARG002
        """What to write for an option that must be given."""
        return self.forms.capitalize()

    def _range(self, part: str) -> list[Decimal]:
        """The numbers of a range, or the only number."""
        shown = _shortened(part.strip())
        texts = part.split("..")
        where = f" in the range {shown}" if len(texts) > 1 else ""
        numbers = [self._number(text.strip(), where) for text in texts]
        if len(numbers) == 1:
            return numbers
        if len(numbers) == 2:
            numbers += self.default_steps
        if len(numbers) != 3:
            self.fail(f"{shown} is not {self.content} or a range; {self.forms}")
        first, last, step = numbers
        if step <= 0 or last < first:
            fault = "has a step that is not positive" if step <= 0 else "is reversed"
            self.fail(f"the range {shown} {fault}; {self.forms}")
        count = int((last - first) / step) + 1
        if count > _MOST:
            self.fail(f"the range {shown} holds more than {_MOST} numbers; choose fewer")
        return [first + step * i for i in range(count)]

    def _number(self, text: str, where: str) -> Decimal:
        try:
            number = Decimal(text if re.fullmatch(self.pattern, text) else "nan")
        except InvalidOperation:
            number = Decimal("nan")
        if not number.is_finite() or abs(number.adjusted()) > _LARGEST_EXPONENT:
            self.fail(f"{_shortened(text)}{where} is not {self.content}; {self.forms}")
        return number


class WholeNumber(click.IntRange):
    """A whole number between bounds; click calls its type "integer range" in messages."""

    name = "integer"


class IntegerList(NumberList):
    """Positive whole numbers: ``8``, ``8,16,32``, ``8..32``, ``8..32..4`` or a mix of these."""

    content = "a whole number between 1 and 999999999"
    forms = "write a list such as 8,16,32 or an inclusive range such as 8..32 or 8..32..4"
    pattern = "0*[1-9][0-9]{0,8}"
    default_steps = (Decimal(1),)
    kind = int


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def parsed_shape(text: str) -> tuple[int, int]:
    """The shape (p, q) of a matrix that is written as ``PxQ``."""
    match = re.fullmatch(r"([1-9][0-9]{0,8})[xX×]([1-9][0-9]{0,8})", text.strip())
    if not match:
        raise click.BadParameter(f"{text!r} is not a shape; write rows x columns, such as 768x3072")
    return int(match[1]), int(match[2])


def parsed_size(text: str) -> tuple[float, float]:
    """The width and the height of a figure, which are written as ``WxH``."""
    width, _, height = text.strip().replace("×", "x").lower().partition("x")
    try:
        return float(width), float(height)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a size; write width x height in inches, such as 3.25x2.4"
        ) from None


def names(text: str) -> tuple[str, ...]:
    """Comma-separated names in the given order, without duplicates; the command checks them."""
    unique = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if "" in unique:
        raise click.BadParameter(f"{text!r} holds an empty name; write them as A,B,C")
    return unique
