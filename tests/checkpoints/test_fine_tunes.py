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
    first = {name: w + 0.1 * shared for name, w in base.items()}
    second = {
        name: first[name] + 0.1 * normal(40, 30, seed=20 + i) for i, name in enumerate(names[:2])
    }
    folder = tmp_path_factory.mktemp("family")
    paths = [folder / f"{name}.safetensors" for name in ("base", "one", "two")]
    for path, content in zip(paths, (base, first, base | second), strict=True):
        save_file(content, path)
    return paths


@pytest.fixture(scope="module")
def analysis(family):
    return analyze(*family, **ASKED)


def test_each_fine_tune_has_the_rows_that_it_has_alone(family, analysis):
    base, *tuned = family
    for path, count in zip(tuned, (3, 2), strict=True):
        alone = analyze(base, path, **ASKED)
        for name in ("matrices", "errors"):
            rows = [row for row in getattr(analysis, name) if row.tuned == path.stem]
            assert tuple(replace(row, tuned="tuned") for row in rows) == getattr(alone, name)
        assert len(alone.matrices) == count
    assert analysis.tuned == ("one", "two")
    assert [(skipped.name, skipped.tuned) for skipped in analysis.skipped] == [
        ("layers.1.v_proj.weight", "two")
    ]
    # They are compared on what both change.
    pairs = [(row.name, row.kind, row.layer, row.first, row.second) for row in analysis.comparisons]
    assert pairs == [(f"layers.{i}.q_proj.weight", "query", i, "one", "two") for i in (0, 1)]


def test_stored_results_are_those_that_were_computed(family, tmp_path, monkeypatch):
    options = {**ASKED, "subspaces": 2, "allocate": 400, "runner": Runner(tmp_path, jobs=1)}
    computed = analyze(*family, **options)
    for name in ("measure.cells.analyse_matrix", "measure.cells.compare", "form.cells.change_of"):
        monkeypatch.delattr(f"loca_theory.checkpoints.{name}")
    assert repr(replace(analyze(*family, **options), manifest={}).__dict__) == repr(
        replace(computed, manifest={}).__dict__
    )


def test_two_increments_are_compared_by_their_entries():
    a, b = normal(2, 30, 20).double()
    a[:, :4], b[:, 2:6] = 0, 0
    comparison = compare(1e30 * a, 1e-30 * b, 4)
    products = a * b
    cosine = float(products.sum() / a.norm() / b.norm())
    assert comparison["cosine"] == pytest.approx(cosine, abs=1e-12)
    assert comparison["sign_conflict"] == float((products[products != 0] < 0).double().mean())
    opposite = compare(a, -a, 4)
    assert (opposite["cosine"], opposite["sign_conflict"]) == (pytest.approx(-1), 1)
    assert opposite["left_overlap"] == pytest.approx(1, abs=1e-5)
    assert opposite["right_overlap"] == pytest.approx(1, abs=1e-5)
    apart = compare(torch.eye(8), torch.eye(8).flip(0))
    assert (apart["cosine"], apart["sign_conflict"], apart["left_overlap"]) == (0, None, None)


def test_a_verdict_on_several_counts_them_and_gives_ranges(analysis):
    ends = sorted(
        f"{1 - error.error:.0%}"
        for totals in analysis.summary.by_tuned
        for error in totals.errors
        if error.method == "LoCA"
    )
    first = analysis.findings[0]
    assert "retains most of the energy" in first
    assert " of 2 fine-tunes: " in first
    assert f"LoCA (best DCT coefficients) {' to '.join(dict.fromkeys(ends))}" in first
    assert "the form that retains most is " in analysis.message
    assert " of 2 fine-tunes, " in analysis.message
    lines = repr(analysis).splitlines()
    (of_two,) = (line.split() for line in lines if line.split()[:2] == ["two", "2"])
    (errors,) = (totals.errors for totals in analysis.summary.by_tuned if totals.name == "two")
    (error_of_lora,) = (error.error for error in errors if error.method == "LoRA")
    assert of_two[2] == f"{1 - error_of_lora:.1%}"
    assert "<th>fine-tune</th>" in analysis._repr_html_()


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
    analysis = analyze(base, tuned, ranks=[2])
    are_known = sides in ("one module", "equal files")
    assert [text.partition(":")[0] for text in analysis.warnings] == (
        ["The base and the fine-tune are identical"] * are_known
    )
    assert analysis.message.startswith("No matrix could be analysed; left out: 1 tensor (")
    assert "1 tensor (unchanged)" in analysis.message
    assert ("are identical" in analysis.verdict) is are_known
    warnings = analyze(base, tuned, {"weight": normal(40, 30)}, ranks=[2]).warnings
    assert len([warning for warning in warnings if "are identical" in warning]) == are_known


def test_fine_tunes_without_a_matrix_in_common_are_named():
    base = {name: normal(40, 30) for name in ("a.weight", "b.weight")}
    only_a, only_b = ({**base, name: normal(40, 30, seed=1)} for name in base)
    tuned = {"a.weight": only_a["a.weight"], "b.weight": only_b["b.weight"]}
    warning = analyze(base, only_a, only_b, tuned, ranks=[2]).warnings[-1]
    assert warning.endswith("same name and shape: fine-tune 1 and fine-tune 2.")


def test_totals_and_tables_tell_fine_tunes_apart(analysis, tmp_path):
    assert [(totals.name, totals.matrices) for totals in analysis.summary.by_tuned] == [
        ("one", 3),
        ("two", 2),
    ]
    document = json.loads(json.dumps(analysis.to_json(), allow_nan=False))
    assert all(len(row["errors"]) == 7 for row in document["rows"])
    assert set(document["summary"]["by_tuned"]) == {"one", "two"}
    assert list(analysis.overview()["tuned"]) == ["one"] * 3 + ["two"] * 2
    analysis.save(tmp_path)
    assert Analysis.load(tmp_path) == analysis


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["runs/a/model.safetensors", "runs/b/pytorch_model.bin"], ["a", "b"]),
        (["x/final.safetensors", "y/final.safetensors"], ["x/final", "y/final"]),
        (["a/model.safetensors", "a/model.bin"], ["model.safetensors", "model.bin"]),
        (["hub:org/name", "./name/"], ["org/name", "name"]),
        ([{}, "b"], ["fine-tune 1", "b"]),
    ],
)
def test_labels_are_the_shortest_that_differ(sources, expected):
    assert labels(sources) == expected


def test_only_large_matrices_are_known_to_take_seconds():
    large, small = ({"w.weight": torch.zeros(shape)} for shape in ((4096, 1024), (64, 64)))
    assert Task({"": open_pair(large, large)}, "cpu", Runner()).is_long
    assert not Task({"": open_pair(small, small)}, "cpu", Runner()).is_long
