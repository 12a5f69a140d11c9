"""``loca-theory extract`` as a user meets it."""

import json
import shutil

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file


@pytest.fixture
def pair(here):
    source = torch.Generator().manual_seed(0)
    base = {f"layers.{i}.q_proj.weight": torch.randn(48, 40, generator=source) for i in range(2)}
    tuned = {name: w + 0.01 * torch.randn(w.shape, generator=source) for name, w in base.items()}
    for name, content in (("base", base), ("tuned", tuned)):
        save_file(content | {"norm.weight": torch.ones(48)}, here / f"{name}.safetensors")
    return "base.safetensors", "tuned.safetensors"


@pytest.mark.parametrize(
    ("arguments", "kind", "numbers"),
    [
        (("--method", "loca", "--components", "100"), "LOCA", 100),
        (("--method", "loca", "--r", "4"), "LOCA", 176),
        (("--method", "lora", "--r", "4"), "LORA", 352),
    ],
    ids=["loca by coefficients", "loca by rank", "lora by rank"],
)
def test_an_adapter_is_written_with_its_errors(cli, here, pair, arguments, kind, numbers):
    done = cli("extract", *pair, *arguments, "--out", "adapter", "--format", "json", "--quiet")
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert [row["numbers"] for row in document["rows"]] == [numbers] * 2
    assert all(0 < row["error"] < 1 for row in document["rows"])
    assert document["skipped"] == [{"name": "norm.weight", "reason": "not a matrix: 1 dimensions"}]
    config = json.loads((here / "adapter" / "adapter_config.json").read_text())
    assert config["peft_type"] == kind
    assert config["target_modules"] == ["layers.0.q_proj", "layers.1.q_proj"]
    assert load_file(here / "adapter" / "adapter_model.safetensors")
    stored = pd.read_parquet(here / "adapter" / "extract-matrices.parquet")
    assert stored["error"].tolist() == [row["error"] for row in document["rows"]]


def test_people_get_a_table_and_a_sentence(cli, pair):
    done = cli("extract", *pair, "--components", "100", "--quiet")
    assert done.code == 0
    assert "layers.0.q_proj" in done.out
    assert "LoCA with 200 learned numbers: relative squared error " in done.out


def test_csv_has_a_line_a_matrix(cli, pair):
    done = cli("extract", *pair, "--components", "100", "--format", "csv", "--quiet")
    lines = done.out.splitlines()
    assert lines[0] == "name,shape,r,components,numbers,error,energy"
    assert lines[1].startswith("layers.0.q_proj.weight,48x40,,100,100,")


@pytest.mark.parametrize("out", [(), ("--out", "adapter")], ids=["default", "named"])
def test_the_result_says_where_the_adapter_is(cli, here, pair, out):
    folder = out[-1] if out else "loca-results"
    done = cli("extract", *pair, "--components", "100", *out, "--quiet")
    assert f"The adapter is in {folder}.\n" in done.out
    done = cli("extract", *pair, "--components", "100", *out, "--quiet", "--format", "json")
    assert json.loads(done.out)["files"] == [
        f"{folder}/{name}"
        for name in ("adapter_model.safetensors", "README.md", "adapter_config.json",
                     "extract-matrices.parquet", "extract-matrices.manifest.json",
                     "extract-skipped.parquet", "extract-skipped.manifest.json")
    ]  # fmt: skip


def test_the_folder_of_a_model_is_refused_before_anything_is_opened(cli, here, pair, monkeypatch):
    folder = here / "model"
    folder.mkdir()
    shutil.copy(here / pair[1], folder / "model.safetensors")
    (folder / "README.md").write_text("about my model", encoding="utf-8")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = cli("extract", "none", "none", "--r", "2", "--out", "model")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(
        "loca-theory: model holds model.safetensors, which no extraction wrote"
    )
    assert len(done.err.splitlines()) == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_neither_size_is_one_line(cli, pair):
    done = cli("extract", *pair)
    assert (done.code, done.out) == (2, "")
    assert "either --r 8 or --components 1000" in done.err


def test_an_adapter_cannot_be_extracted_from_again(cli, here, pair):
    cli("extract", *pair, "--method", "lora", "--r", "2", "--out", "adapter", "--quiet")
    done = cli("extract", pair[0], "adapter", "--r", "2")
    assert done.code == 2
    assert "an adapter already" in done.err


def test_a_matrix_that_is_not_finite_is_left_out_and_said(cli, here, pair):
    content = load_file(here / pair[1])
    content["layers.1.q_proj.weight"][0, 0] = float("nan")
    save_file(content, here / pair[1])
    done = cli("extract", *pair, "--components", "100", "--quiet", "--format", "json")
    assert done.code == 4
    assert "not finite" in done.err
    assert len(json.loads(done.out)["rows"]) == 1
