"""Several fine-tunes of one base at once, and two increments side by side."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from loca_theory.checkpoints import Analysis, analyze
from loca_theory.checkpoints.change.opening import labels, open_pair
from loca_theory.checkpoints.change.task import Task
from loca_theory.checkpoints.measure.comparison import compare
from loca_theory.increments import PrintedTest
from loca_theory.sweeps import Runner
from tests.checkpoints.files import normal

ASKED = {"ranks": (2,), "device": "cpu", "printed": PrintedTest(copies=10, samples=5000)}


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """Files of a base and of two fine-tunes; the second leaves one matrix alone."""
    names = ("layers.0.q_proj.weight", "layers.1.q_proj.weight", "layers.1.v_proj.weight")
    base = {name: normal(40, 30, seed=i) for i, name in enumerate(names)}
    shared = normal(40, 30, seed=10)
    one = {name: w + 0.1 * shared for name, w in base.items()}
    two = {name: one[name] + 0.1 * normal(40, 30, seed=20 + i) for i, name in enumerate(names[:2])}
    folder = tmp_path_factory.mktemp("family")
    paths = [folder / f"{name}.safetensors" for name in ("base", "one", "two")]
    for path, content in zip(paths, (base, one, base | two), strict=True):
        save_file(content, path)
    return paths


@pytest.fixture(scope="module")
def both(family):
    return analyze(*family, **ASKED)


def test_each_fine_tune_has_the_rows_that_it_has_alone(family, both):
    base, *tuned = family
    for path, count in zip(tuned, (3, 2), strict=True):
        alone = analyze(base, path, **ASKED)
        for name in ("matrices", "errors"):
            mine = [one for one in getattr(both, name) if one.tuned == path.stem]
            assert tuple(replace(one, tuned="tuned") for one in mine) == getattr(alone, name)
        assert len(alone.matrices) == count
    assert both.tuned == ("one", "two")
    assert [(one.name, one.tuned) for one in both.skipped] == [("layers.1.v_proj.weight", "two")]
    # They are compared on what both change.
    found = [(one.name, one.kind, one.layer, one.first, one.second) for one in both.comparisons]
    assert found == [(f"layers.{i}.q_proj.weight", "query", i, "one", "two") for i in (0, 1)]


def test_stored_results_are_those_that_were_computed(family, tmp_path, monkeypatch):
    asked = {**ASKED, "subspaces": 2, "allocate": 400, "runner": Runner(tmp_path, jobs=1)}
    computed = analyze(*family, **asked)
    for name in ("measure.cells.analyse_matrix", "measure.cells.compare", "form.cells.change_of"):
        monkeypatch.delattr(f"loca_theory.checkpoints.{name}")
    assert repr(replace(analyze(*family, **asked), manifest={}).__dict__) == repr(
        replace(computed, manifest={}).__dict__
    )


def test_two_increments_are_compared_by_their_entries():
    a, b = normal(2, 30, 20).double()
    a[:, :4], b[:, 2:6] = 0, 0
    found = compare(1e30 * a, 1e-30 * b, 4)
    products = a * b
    cosine = float(products.sum() / a.norm() / b.norm())
    assert found["cosine"] == pytest.approx(cosine, abs=1e-12)
    assert found["sign_conflict"] == float((products[products != 0] < 0).double().mean())
    opposite = compare(a, -a, 4)
    assert (opposite["cosine"], opposite["sign_conflict"]) == (pytest.approx(-1), 1)
    assert opposite["left_overlap"] == pytest.approx(1, abs=1e-5)
    assert opposite["right_overlap"] == pytest.approx(1, abs=1e-5)
    apart = compare(torch.eye(8), torch.eye(8).flip(0))
    assert (apart["cosine"], apart["sign_conflict"], apart["left_overlap"]) == (0, None, None)


def test_a_verdict_on_several_counts_them_and_gives_ranges(both):
    ends = sorted(f"{1 - error.error:.0%}" for one in both.summary.by_tuned
                  for error in one.errors if error.method == "LoCA")  # fmt: skip
    first = both.findings[0]
    assert "retains most of the energy" in first
    assert " of 2 fine-tunes: " in first
    assert f"LoCA (best DCT coefficients) {' to '.join(dict.fromkeys(ends))}" in first
    assert "the form that retains most is " in both.message
    assert " of 2 fine-tunes, " in both.message
    lines = repr(both).splitlines()
    (of_two,) = (line.split() for line in lines if line.split()[:2] == ["two", "2"])
    (errors,) = (one.errors for one in both.summary.by_tuned if one.name == "two")
    (own,) = (error.error for error in errors if error.method == "LoRA")
    assert of_two[2] == f"{1 - own:.1%}"
    assert "<th>fine-tune</th>" in both._repr_html_()


def test_a_fine_tune_of_other_weights_is_named():
    base = {"a.weight": normal(40, 30)}
    changed = {"a.weight": base["a.weight"] + 0.01 * normal(40, 30, seed=1)}
    (warning,) = analyze(base, changed, {"a.weight": normal(40, 30, seed=2)}, ranks=[2]).warnings
    assert warning.startswith("fine-tune 2: The weights of the base and of the fine-tune are")


@pytest.mark.parametrize("sides", ["one module", "equal files", "other biases", "packed"])
def test_a_fine_tune_that_is_the_base_is_said_to_be(tmp_path, sides):
    module = torch.nn.Linear(30, 40)
    base, tuned = module, dict(module.state_dict())
    if sides == "one module":
        tuned = module
    elif sides == "equal files":
        paths = [tmp_path / name for name in ("a.safetensors", "b.safetensors")]
        for path in paths:
            save_file(tuned, path)
        base, tuned = paths
    elif sides == "other biases":
        tuned["bias"] = tuned["bias"] + 1
    else:  # of which it cannot be known
        tuned |= {"head.weight_packed": torch.ones(40, 30, dtype=torch.int32)}
        base = dict(tuned)
    found = analyze(base, tuned, ranks=[2])
    are_known = sides in ("one module", "equal files")
    assert [text.partition(":")[0] for text in found.warnings] == (
        ["The base and the fine-tune are identical"] * are_known
    )
    assert found.message == "No matrix could be analysed: 1 have not changed."
    assert ("are identical" in found.verdict) is are_known
    both = analyze(base, tuned, {"weight": normal(40, 30)}, ranks=[2]).warnings
    assert len([one for one in both if "are identical" in one]) == are_known


def test_fine_tunes_without_a_matrix_in_common_are_named():
    base = {name: normal(40, 30) for name in ("a.weight", "b.weight")}
    one, other = ({**base, name: normal(40, 30, seed=1)} for name in base)
    both = {"a.weight": one["a.weight"], "b.weight": other["b.weight"]}
    warning = analyze(base, one, other, both, ranks=[2]).warnings[-1]
    assert warning.endswith("same name and shape: fine-tune 1 and fine-tune 2.")


def test_totals_and_tables_tell_fine_tunes_apart(both, tmp_path):
    assert [(one.name, one.matrices) for one in both.summary.by_tuned] == [("one", 3), ("two", 2)]
    document = json.loads(json.dumps(both.to_json(), allow_nan=False))
    assert all(len(row["errors"]) == 7 for row in document["rows"])
    assert set(document["summary"]["by_tuned"]) == {"one", "two"}
    assert list(both.overview()["tuned"]) == ["one"] * 3 + ["two"] * 2
    both.save(tmp_path)
    assert Analysis.load(tmp_path) == both


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["runs/a/model.safetensors", "runs/b/pytorch_model.bin"], ["a", "b"]),
        (["x/final.safetensors", "y/final.safetensors"], ["x/final", "y/final"]),
        (["a/model.safetensors", "a/model.bin"], ["model.safetensors", "model.bin"]),
        (["hub:org/name", "./name/"], ["org/name", "name"]),
        ([{}, "b"], ["fine-tune 1", "b"]),
    ],
)
def test_labels_are_the_shortest_that_differ(given, expected):
    assert labels(given) == expected


def test_only_large_matrices_are_known_to_take_seconds():
    large, small = ({"w.weight": torch.zeros(one)} for one in ((4096, 1024), (64, 64)))
    assert Task({"": open_pair(large, large)}, "cpu", Runner()).is_long
    assert not Task({"": open_pair(small, small)}, "cpu", Runner()).is_long
