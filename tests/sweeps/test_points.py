"""What names a point's file, and what makes stored results stale."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loca_theory
from loca_theory.sweeps import Point, code_version, points

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


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the package's sources that a test may change; ``code_version`` reads it."""
    root = tmp_path / "loca_theory"
    source = Path(loca_theory.__file__).parent
    shutil.copytree(source, root, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(points, "__file__", str(root / "sweeps" / "points.py"))
    forget()
    yield root
    forget()


def forget():
    points._hash_of_code.cache_clear()


def test_code_version_of_a_copy_is_that_of_the_original(package):
    copy = code_version(("sweeps", "expressivity/exact.py"), ("numpy",))
    forget()
    assert copy == code_version(("sweeps", "expressivity/exact.py"), ("numpy",))


@pytest.mark.parametrize("changed", ["sweeps/seeds.py", "sweeps/moments.py", "sweeps/new.py"])
def test_code_version_changes_with_every_file_named(package, changed):
    before = code_version(("sweeps",))
    path = package / changed
    path.write_text((path.read_text() if path.exists() else "") + "# changed\n")
    forget()
    assert code_version(("sweeps",)) != before


def test_code_version_changes_when_a_file_is_renamed(package):
    before = code_version(("sweeps",))
    (package / "sweeps" / "seeds.py").rename(package / "sweeps" / "tree.py")
    forget()
    assert code_version(("sweeps",)) != before


def test_code_version_ignores_files_not_named(package):
    before = code_version(("sweeps/seeds.py",))
    (package / "sweeps" / "moments.py").write_text("")
    forget()
    assert code_version(("sweeps/seeds.py",)) == before


def test_code_version_changes_with_a_library(package, monkeypatch):
    before = code_version(("sweeps",), ("numpy", "scipy"))
    monkeypatch.setattr(points, "library_version", lambda name: f"{name} of tomorrow")
    forget()
    assert code_version(("sweeps",), ("numpy", "scipy")) != before


def test_code_version_does_not_depend_on_order_or_container():
    wanted = code_version(("sweeps", "errors.py"), ("numpy", "scipy"))
    assert code_version(["errors.py", "sweeps"], ["scipy", "numpy"]) == wanted
    assert code_version(iter(("errors.py", "sweeps")), {"numpy", "scipy"}) == wanted


def test_code_version_of_a_file_that_is_not_there_is_an_error():
    with pytest.raises(FileNotFoundError, match="no_such_module"):
        code_version(("no_such_module.py",))


def test_library_version_of_what_is_not_installed_is_none():
    assert points.library_version("no-such-distribution-anywhere") is None
