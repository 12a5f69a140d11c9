"""Names of methods: what is typed, and what is shown and stored."""

import pytest

from loca_theory.expressivity import METHODS
from loca_theory.expressivity.methods.names import LETTERS, NAMES, known_name, seed_name
from loca_theory.expressivity.methods.registry import find_method


def test_every_name_and_letter_stands_for_one_method():
    assert tuple(METHODS) == NAMES
    for text, name in {**{name: name for name in NAMES}, **LETTERS}.items():
        assert find_method(text) is find_method(text.lower()) is METHODS[name]


def test_the_seeds_of_draws_have_the_letters():
    assert {seed_name(name) for name in NAMES} == {*LETTERS} | {*NAMES} - {*LETTERS.values()}


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("lora", "LoRA"),
        ("LOCA", "LoCA"),
        ("r", "LoRA"),
        ("fourier-pairs", "Fourier pairs"),
        ("Fourier", "Fourier"),
        ("rate–distortion", "rate-distortion"),
        ("random fourier", "random Fourier"),
        ("vera", "VeRA"),
        ("mine", "mine"),
    ],
)
def test_case_and_punctuation_do_not_matter(typed, name):
    assert known_name(typed) == name
