"""One table of names: what is typed, what files hold, and what is shown."""

import pytest

from loca_theory.expressivity import METHODS
from loca_theory.expressivity.methods.names import DISPLAY_NAMES, display_name, key_of
from loca_theory.expressivity.methods.registry import find_method


def test_every_name_stands_for_one_method():
    names = [*DISPLAY_NAMES, *DISPLAY_NAMES.values()]
    found = {name.upper(): find_method(name.upper()).name for name in names}
    assert found == {name.upper(): find_method(name).name for name in names}
    for key, shown in DISPLAY_NAMES.items():
        assert find_method(key) is find_method(shown) is METHODS[key]
        assert METHODS[key].display_name == display_name(key) == shown


@pytest.mark.parametrize(
    ("typed", "key"),
    [("lora", "R"), ("LOCA", "D"), ("r", "R"), ("fourier-pairs", "F2"), ("Fourier", "F3"),
     ("rate-distortion", "RD"), ("random fourier", "F1"), ("vera", "VeRA"), ("mine", "mine")],
)  # fmt: skip
def test_case_and_punctuation_do_not_matter(typed, key):
    assert key_of(typed) == key
