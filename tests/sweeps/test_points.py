"""What names a point's file."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loca_theory.sweeps import Point

reproducible = settings(deadline=None, derandomize=True, database=None)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
parameters = st.dictionaries(st.text(max_size=4), values, max_size=4)


def exactly(value):
    """Equality that tells 1 from 1.0 and True, and 0.0 from -0.0."""
    if isinstance(value, dict):
        return ("dict", sorted((name, exactly(inner)) for name, inner in value.items()))
    if isinstance(value, list):
        return ("list", [exactly(inner) for inner in value])
    return (type(value).__name__, repr(value))


@reproducible
@given(parameters, parameters)
def test_equal_keys_mean_equal_points(one, other):
    keys = [Point("e", given_).key("v") for given_ in (one, other)]
    assert (keys[0] == keys[1]) == (exactly(one) == exactly(other))


@reproducible
@given(parameters, st.randoms())
def test_the_order_of_parameters_does_not_matter(given_, random):
    names = list(given_)
    random.shuffle(names)
    shuffled = {name: given_[name] for name in names}
    assert Point("e", shuffled).key("v") == Point("e", given_).key("v")


@pytest.mark.parametrize(
    ("point", "version"),
    [
        pytest.param(Point("f", {"K": 1}), "v", id="experiment"),
        pytest.param(Point("e", {"K": 2}), "v", id="value"),
        pytest.param(Point("e", {"K": 1.0}), "v", id="type"),
        pytest.param(Point("e", {"K": True}), "v", id="bool"),
        pytest.param(Point("e", {"k": 1}), "v", id="name"),
        pytest.param(Point("e", {"K": 1, "r": None}), "v", id="another parameter"),
        pytest.param(Point("e", {"K": 1}), "w", id="code version"),
    ],
)
def test_the_key_changes_with(point, version):
    assert point.key(version) != Point("e", {"K": 1}).key("v")


def test_description_is_a_copy():
    given_ = {"K": 1}
    Point("e", given_).describe()["parameters"]["K"] = 2
    assert given_ == {"K": 1}
