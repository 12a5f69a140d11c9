"""Rounding in rational arithmetic, from the definition: the oracle of the other tests."""

from fractions import Fraction

# Significant bits, exponent of the smallest normal number, largest finite number.
FORMATS = {
    "float8_e4m3": (4, -6, Fraction(448)),
    "float8_e5m2": (3, -14, Fraction(57344)),
    "bfloat16": (8, -126, (2 - Fraction(1, 2**7)) * Fraction(2) ** 127),
    "float16": (11, -14, Fraction(65504)),
    "float32": (24, -126, (2 - Fraction(1, 2**23)) * Fraction(2) ** 127),
}


def step(value, name):
    """The distance between neighbours in the binade of a rational number."""
    bits, smallest, _ = FORMATS[name]
    exponent = smallest
    while abs(value) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    return Fraction(2) ** (exponent + 1 - bits)


def rounded(value, name):
    """The nearest number of a format, ties to even; infinite beyond the largest."""
    value = Fraction(value)
    result = round(value / step(value, name)) * step(value, name)
    if abs(result) > FORMATS[name][2]:
        return float("inf") if result > 0 else -float("inf")
    return result
