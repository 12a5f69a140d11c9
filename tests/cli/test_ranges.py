"""Lists and inclusive ranges."""

import re

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loca_theory.cli.ranges import IntegerList, NameList, Shape, parse_integers

reproducible = settings(deadline=None, derandomize=True, database=None)
numbers = st.integers(1, 10**9 - 1)
spaces = st.sampled_from(["", " ", "  "])


@st.composite
def ranges(draw):
    """A range as text and the numbers it means."""
    first = draw(st.integers(1, 10**6))
    length, step = draw(st.integers(0, 50)), draw(st.integers(1, 20))
    last = first + length
    text = draw(st.sampled_from([f"{first}..{last}..{step}"] + [f"{first}..{last}"] * (step == 1)))
    return text, set(range(first, last + 1, step))


@reproducible
@given(st.lists(numbers, min_size=1, max_size=20))
def test_a_list_is_sorted_and_holds_each_number_once(values):
    assert parse_integers(",".join(map(str, values))) == tuple(sorted(set(values)))


@reproducible
@given(ranges())
def test_a_range(given_):
    text, wanted = given_
    assert parse_integers(text) == tuple(sorted(wanted))


@reproducible
@given(st.lists(ranges() | numbers.map(lambda n: (str(n), {n})), min_size=1, max_size=5), spaces)
def test_a_mix_means_the_union_of_its_parts(parts, space):
    text = f"{space},{space}".join(part for part, _ in parts)
    assert parse_integers(text) == tuple(sorted(set().union(*(wanted for _, wanted in parts))))


@reproducible
@given(st.text(alphabet="0123456789.,:- xe", max_size=12) | st.text(max_size=12))
def test_any_text_is_positive_numbers_or_a_one_line_error(text):
    found, message = None, ""
    try:
        found = parse_integers(text)
    except ValueError as error:
        message = str(error)
    if found is None:
        assert len(message) > 20, "it says how to write it"
        assert "\n" not in message or "\n" in text
    else:
        assert list(found) == sorted(set(found))
        assert min(found) >= 1


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("8..12", (8, 9, 10, 11, 12)),
        ("8..12..2", (8, 10, 12)),
        ("8..12..3", (8, 11)),
        ("8..12..100", (8,)),
        ("8..8", (8,)),
        ("8..9,1,8", (1, 8, 9)),
        (" 8 .. 10 , 4 ", (4, 8, 9, 10)),
        ("008", (8,)),
        ("999999999", (999_999_999,)),
    ],
)
def test_both_ends_count(text, wanted):
    assert parse_integers(text) == wanted


BAD = {
    "a letter": ("x", r"'x' is not a positive whole number; write a list such as 8,16,32 or"),
    "scientific": ("1e3", r"'1e3' is not a positive whole number"),
    "a fraction": ("8.5", r"'8.5' is not a positive whole number"),
    "a sign": ("+8", r"'\+8' is not a positive whole number"),
    "an underscore": ("1_000", r"'1_000' is not a positive whole number"),
    "foreign digits": ("८", r"is not a positive whole number"),
    "superscripts": ("8²", r"is not a positive whole number"),
    "empty": ("", r"'' is empty; write a list"),
    "blank": ("  ", r"'' in '  ' is empty"),
    "a comma alone": (",", r"'' in ',' is empty"),
    "two commas": ("8,,16", r"'' in '8,,16' is empty"),
    "a comma at the end": ("8,16,", r"'' in '8,16,' is empty"),
    "dots alone": ("..", r"'' in '\.\.' is empty"),
    "no end": ("8..", r"'' in '8\.\.' is empty"),
    "no start": ("..8", r"'' in '\.\.8' is empty"),
    "a slice": ("8:16", r"'8:16' is not a positive whole number; for a range write 8\.\.16$"),
    "a dash": ("8-16", r"for a range write 8\.\.16$"),
    "a word": ("8 to 16", r"for a range write 8\.\.16$"),
    "reversed": ("16..8", r"the range '16\.\.8' is reversed; write 8\.\.16$"),
    "reversed in a list": ("1,16..8..2", r"the range '16\.\.8\.\.2' is reversed"),
    "zero": ("0", r"0 in '0' is not positive"),
    "zero as start": ("0..8", r"0 in '0\.\.8' is not positive"),
    "negative": ("-3", r"'-3' is not a positive whole number"),
    "step zero": ("8..16..0", r"0 in '8\.\.16\.\.0' is not positive"),
    "step negative": ("8..16..-2", r"'-2' in '8\.\.16\.\.-2' is not a positive whole number"),
    "three dots": ("8...16", r"'8\.\.\.16' has too many dots; write 8\.\.16$"),
    "four dots": ("8....9", r"'8\.\.\.\.9' has too many dots; write 8\.\.9$"),
    "four parts": ("8..16..2..2", r"'8\.\.16\.\.2\.\.2' has too many parts"),
    "ten digits": (
        "1000000000",
        r"a number in '1000000000' is too large; the largest is 999999999",
    ),
    "huge digits": ("9" * 5000, r"a number in '9{37}\.\.\.' is too large"),
    "huge digits in a range": ("1.." + "9" * 5000, r"is too large"),
    "a huge range": ("1..999999999", r"the range '1\.\.999999999' holds more than 100000 numbers"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_says_how_to_write_it(text, message):
    with pytest.raises(ValueError, match=message):
        parse_integers(text)


@pytest.mark.parametrize("kind", [IntegerList(), Shape(), NameList()], ids=lambda kind: kind.name)
def test_a_converted_value_is_left_as_it_is(kind):
    """click converts defaults that are converted already."""
    assert kind.convert((3, 4), None, None) == (3, 4)


def test_a_bad_list_is_a_usage_error():
    with pytest.raises(click.BadParameter, match="is reversed"):
        IntegerList().convert("2..1", None, None)


@reproducible
@given(numbers, numbers, st.sampled_from("xX×"), spaces)
def test_a_shape(p, q, sign, space):
    assert Shape().convert(f"{space}{p}{sign}{q}{space}", None, None) == (p, q)


@pytest.mark.parametrize(
    "text",
    ["", "16", "16x", "x16", "16*8", "16 x 8", "0x8", "8x0", "-1x8", "1.5x2", "8x16x2", "१x8"],
)
def test_a_bad_shape_says_how_to_write_it(text):
    message = re.escape(f"{text!r} is not a shape; write rows x columns, such as 768x3072")
    with pytest.raises(click.BadParameter, match=message):
        Shape().convert(text, None, None)


@reproducible
@given(
    st.lists(st.text(alphabet="ABCdef123", min_size=1, max_size=4), min_size=1, max_size=6), spaces
)
def test_names_keep_their_order_and_come_once(names, space):
    text = f"{space},{space}".join(names)
    assert NameList().convert(text, None, None) == tuple(dict.fromkeys(names))


@pytest.mark.parametrize("text", ["", " ", ",", "A,,B", "A,"])
def test_an_empty_name_says_how_to_write_it(text):
    with pytest.raises(click.BadParameter, match="holds an empty name; write them as A,B,C"):
        NameList().convert(text, None, None)
