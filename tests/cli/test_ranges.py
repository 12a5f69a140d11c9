"""Lists, inclusive ranges, names and shapes on the command line."""

import re

import click
import pytest

from loca_theory.cli.ranges import IntegerList, NumberList, names, parsed_shape


def convert(kind, text):
    return kind().convert(text, None, None) if isinstance(kind, type) else kind(text)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (IntegerList, "8..12", (8, 9, 10, 11, 12)),
        (IntegerList, "8..12..3", (8, 11)),
        (IntegerList, "8..12..100", (8,)),
        (IntegerList, " 8 .. 10 , 4, 8 ", (4, 8, 9, 10)),
        (IntegerList, "008,999999999", (8, 999_999_999)),
        (NumberList, "0..0.4..0.1,0.05", (0.0, 0.05, 0.1, 0.2, 0.3, 0.4)),
        (parsed_shape, " 12X345", (12, 345)),
        (parsed_shape, "12×345 ", (12, 345)),
        (names, " B, A,B ,C", ("B", "A", "C")),
    ],
)
def test_values_are_sorted_exact_and_come_once(kind, text, expected):
    """Names keep their order."""
    assert convert(kind, text) == expected


WHOLE = "a whole number between 1 and 999999999"
BAD = {
    IntegerList: {
        "x": f"'x' is not {WHOLE}; write a list such as 8,16,32 or an inclusive range such as",
        "8,1e3": f"'1e3' is not {WHOLE}",
        **dict.fromkeys(("", " ", ",", "8.5", "+8", "1_000", "८", "8²"), f"is not {WHOLE}"),
        **dict.fromkeys(("8,,16", "8:16", "0", "-3", "1000000000"), f"is not {WHOLE}"),
        **{
            text: f" in the range {text!r} is not {WHOLE}"
            for text in ("8..", "..8", "0..8", "8..16..0", "8...16")
        },
        "9" * 5000: f"'{'9' * 37}...' is not {WHOLE}",
        "1,16..8..2": "the range '16..8..2' is reversed; write a list such as 8,16,32 or an",
        "8..16..2..2": f"'8..16..2..2' is not {WHOLE} or a range",
        "1..999999999": "the range '1..999999999' holds more than 100000 numbers; choose fewer",
    },
    NumberList: {
        "x": "'x' is not a number; write a list such as 0.1,0.2 or an inclusive range with its",
        "0..0.4": "'0..0.4' is not a number or a range",
        "0..1..0": "the range '0..1..0' has a step that is not positive",
        "0.4..0..0.1": "the range '0.4..0..0.1' is reversed; write a list such as 0.1,0.2 or an",
        "0..1..1e-9": "holds more than 100000 numbers",
        **dict.fromkeys(("nan", "inf", "", "0..1e999999..1e-999999"), "is not a number"),
    },
    parsed_shape: {
        text: f"{text!r} is not a shape; write rows x columns, such as 768x3072"
        for text in ("", "16", "x16", "16*8", "16 x 8", "0x8", "8x0", "1.5x2", "8x16x2", "१x8")
    },
    names: dict.fromkeys(("", "A,,B", "A,"), "holds an empty name; write them as A,B,C"),
}


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [(kind, *case) for kind, table in BAD.items() for case in table.items()],
    ids=lambda part: part[:20] if isinstance(part, str) else part.__name__,
)
def test_bad_values_are_usage_errors(kind, text, message):
    with pytest.raises(click.BadParameter, match=re.escape(message)):
        convert(kind, text)
