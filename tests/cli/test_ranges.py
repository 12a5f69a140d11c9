"""Lists, inclusive ranges, names and shapes on the command line."""

import re

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loca_theory.cli.ranges import IntegerList, NameList, NumberList, Shape

reproducible = settings(deadline=None, derandomize=True, database=None)


def integers(text):
    return IntegerList().convert(text, None, None)


@reproducible
@given(st.text(alphabet="0123456789.,:- xe", max_size=12) | st.text(max_size=12))
@pytest.mark.parametrize("kind", [IntegerList(), NumberList()], ids=["integers", "numbers"])
def test_any_text_is_numbers_or_a_usage_error_that_says_how_to_write_it(kind, text):
    found, message = (1,), "; write "
    try:
        found = kind.convert(text, None, None)
    except click.BadParameter as error:
        message = error.message
    assert re.search(r"; (write|choose) ", message)
    assert list(found) == sorted(set(found))
    assert kind.what == "a number" or found[0] >= 1


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("8..12", (8, 9, 10, 11, 12)),
        ("8..12..3", (8, 11)),
        ("8..12..100", (8,)),
        ("8..8", (8,)),
        (" 8 .. 10 , 4, 8 ", (4, 8, 9, 10)),
        ("008,999999999", (8, 999_999_999)),
    ],
)
def test_both_ends_of_a_range_count(text, wanted):
    assert integers(text) == wanted


def test_the_steps_of_numbers_are_exact():
    found = NumberList().convert("0..0.4..0.1,0.05", None, None)
    assert found == (0.0, 0.05, 0.1, 0.2, 0.3, 0.4)


WHOLE = "a whole number between 1 and 999999999"
BAD = {
    IntegerList: {
        "x": f"'x' is not {WHOLE}; write a list such as 8,16,32 or an inclusive range such as",
        "8,1e3": f"'1e3' is not {WHOLE}",
        **dict.fromkeys(("", " ", ",", "8.5", "+8", "1_000", "८", "8²"), f"is not {WHOLE}"),
        **dict.fromkeys(("8,,16", "8..", "..8", "8:16", "0", "0..8"), f"is not {WHOLE}"),
        **dict.fromkeys(("-3", "8..16..0", "8...16", "1000000000"), f"is not {WHOLE}"),
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
}


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [(kind, *one) for kind, table in BAD.items() for one in table.items()],
    ids=lambda one: one[:20] if isinstance(one, str) else one.__name__,
)
def test_bad_numbers_are_usage_errors(kind, text, message):
    with pytest.raises(click.BadParameter, match=re.escape(message)):
        kind().convert(text, None, None)


@pytest.mark.parametrize("kind", [IntegerList(), Shape(), NameList()], ids=lambda kind: kind.name)
def test_a_converted_value_is_left_as_it_is(kind):
    """click converts defaults that are converted already."""
    assert kind.convert((3, 4), None, None) == (3, 4)


@pytest.mark.parametrize("text", ["12x345", " 12X345", "12×345 "])
def test_a_shape(text):
    assert Shape().convert(text, None, None) == (12, 345)


@pytest.mark.parametrize(
    "text",
    ["", "16", "16x", "x16", "16*8", "16 x 8", "0x8", "8x0", "-1x8", "1.5x2", "8x16x2", "१x8"],
)
def test_a_bad_shape_says_how_to_write_it(text):
    message = re.escape(f"{text!r} is not a shape; write rows x columns, such as 768x3072")
    with pytest.raises(click.BadParameter, match=message):
        Shape().convert(text, None, None)


def test_names_keep_their_order_and_come_once():
    assert NameList().convert(" B, A,B ,C", None, None) == ("B", "A", "C")


@pytest.mark.parametrize("text", ["", " ", ",", "A,,B", "A,"])
def test_an_empty_name_says_how_to_write_it(text):
    with pytest.raises(click.BadParameter, match="holds an empty name; write them as A,B,C"):
        NameList().convert(text, None, None)
