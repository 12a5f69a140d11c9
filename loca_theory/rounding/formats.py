r"""Floating-point formats: their numbers, the steps between them, and rounding to the nearest.

A number of t significant bits with :math:`2^e ≤ |w| < 2^{e+1}` is a multiple of the step
:math:`u = 2^{e+1-t}`. Below the smallest normal number the step stays the same. Numbers are
passed in float64, in which those of these formats, their midpoints and their steps are exact; for
formats of 16 bits and fewer, float32 does as well.

Source: IEEE 754-2019 for float16, float32 and rounding to nearest, ties to even; P. Micikevicius et
al., FP8 formats for deep learning, arXiv 2209.05433.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from loca_theory._lookup import find
from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms.inputs import ends

# The bits that hold the exponent.
_EXPONENTS = {
    torch.float32: (torch.int32, 0x7F800000),
    torch.float64: (torch.int64, 0x7FF0000000000000),
}
# How many bits follow the leading one.
_FRACTION_BITS = {torch.float32: 23, torch.float64: 52}


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Attributes:
        name: The name of its type in torch, without the letters that torch adds.
        dtype: The type itself.

    Source: see the module.
    """

    name: str
    dtype: torch.dtype

    @property
    def significant_bits(self) -> int:
        """Number t of significant bits, the leading one included."""
        return 2 - _exponent(torch.finfo(self.dtype).eps) - 1

    @property
    def smallest_exponent(self) -> int:
        """Exponent e of the smallest normal number, 2ᵉ."""
        return _exponent(torch.finfo(self.dtype).smallest_normal)

    @property
    def smallest_step(self) -> float:
        """The smallest positive number: the step of subnormal numbers."""
        return 2.0 ** (self.smallest_exponent + 1 - self.significant_bits)

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return torch.finfo(self.dtype).max

    def steps(self, values: torch.Tensor) -> torch.Tensor:
        """The distance u from each number of the format to the next one away from 0.

        Args:
            values: Finite numbers w of any shape.

        Returns:
            The steps, of the same shape and type.
        """
        return self._binades(values).mul_(2.0 ** (1 - self.significant_bits))

    def midpoint_above(self, values: torch.Tensor) -> torch.Tensor:
        """The numbers half way to the next larger one; arguments and result as :meth:`steps`.

        Beyond the largest number the steps go on.
        """
        if bool((values >= 0).all()):
            return self.steps(values).mul_(0.5).add_(values)
        magnitudes = values.abs()
        inwards = self._midpoint_inwards(magnitudes).neg_()
        return torch.where(values < 0, inwards, self.steps(magnitudes).mul_(0.5).add_(values))

    def midpoint_below(self, values: torch.Tensor) -> torch.Tensor:
        """The numbers half way to the next smaller one; as :meth:`midpoint_above`."""
        if bool((values >= 0).all()):
            return self._midpoint_inwards(values)
        return self.midpoint_above(-values).neg_()

    def is_odd(self, values: torch.Tensor) -> torch.Tensor:
        """1 where the last significant bit is set, so that ties round to a neighbour; else 0."""
        half = (values / self.steps(values)).mul_(0.5)
        return half.sub_(half.floor()).mul_(2)

    def floor(self, values: torch.Tensor) -> torch.Tensor:
        """The largest numbers of the format that are not above the values."""
        steps = self.steps(values)
        return torch.floor(values / steps).mul_(steps)

    def round(self, values: torch.Tensor) -> torch.Tensor:
        """Round to the nearest number of the format, ties to even; beyond the largest, to ±inf.

        Args:
            values: Numbers of any shape.

        Returns:
            The numbers, of the same type. Unlike torch's conversion of float64 to bfloat16, which
            rounds to float32 first, it rounds once.
        """
        steps = self.steps(values)
        rounded = torch.round(values / steps).mul_(steps)
        return rounded.masked_fill_(rounded > self.largest, torch.inf).masked_fill_(
            rounded < -self.largest, -torch.inf
        )

    def holds(self, values: torch.Tensor) -> bool:
        """Whether every one of these finite numbers is a number of the format."""
        return values.dtype is self.dtype or all(
            bool((self.round(rows) == rows).all())
            for rows in map(torch.Tensor.double, values.reshape(-1).split(2**20))
        )

    def _midpoint_inwards(self, values: torch.Tensor) -> torch.Tensor:
        """The numbers half way from non-negative ones to the next one below."""
        integers, _ = _EXPONENTS[values.dtype]
        # The pattern of bits of half a step, which is shorter below a power of two.
        half = 1 << (_FRACTION_BITS[values.dtype] - self.significant_bits)
        normal = values.clamp(min=2.0**self.smallest_exponent).view(integers).sub(half)
        return torch.minimum(normal.view(values.dtype), values - 0.5 * self.smallest_step)

    def _binades(self, values: torch.Tensor) -> torch.Tensor:
        """2ᵉ of each value, not below the smallest normal number."""
        integers, bits = _EXPONENTS[values.dtype]
        powers = values.view(integers).bitwise_and(bits).view(values.dtype)
        return powers.clamp_(min=2.0**self.smallest_exponent)


FORMATS: dict[str, Format] = {
    name: Format(name, dtype)
    for name, dtype in (
        ("float8_e4m3", torch.float8_e4m3fn),
        ("float8_e5m2", torch.float8_e5m2),
        ("bfloat16", torch.bfloat16),
        ("float16", torch.float16),
        ("float32", torch.float32),
    )
}
"""The formats by their names, those of fewer significant bits first among those of equal size."""


def find_format(name: str) -> Format:
    """The format of a name.

    Raises:
        InvalidArgumentError: there is no such format.
    """
    return find("format", name, FORMATS)


def format_of(values: torch.Tensor, name: str = "values") -> Format | None:
    """The narrowest format that holds all values of a tensor, whatever its type.

    A float32 tensor of bfloat16 numbers is bfloat16: rounding left its traces in the values.

    Args:
        values: Finite numbers of a floating type, of any shape.
        name: What errors call the tensor.

    Returns:
        The first of :data:`FORMATS` that holds them; None for float64 numbers of more than 24 bits.

    Raises:
        InvalidArgumentError: the tensor is not of a floating type, or has NaN or infinite entries.
    """
    if not values.is_floating_point():
        raise InvalidArgumentError(
            f"{name} must be of a floating type, not {values.dtype}; dequantise it first"
        )
    wide = values.float() if values.dtype.itemsize < 2 else values
    ends(wide, name)
    return next((form for form in FORMATS.values() if form.holds(wide)), None)


def _exponent(power_of_two: float) -> int:
    """The exponent of a power of two."""
    return int(torch.frexp(torch.tensor(power_of_two, dtype=torch.float64)).exponent) - 1
