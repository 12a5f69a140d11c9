"""``loca-theory extract`` as a user meets it."""

import json
import shutil

import pandas as pd
import peft
import pytest
import torch
import transformers
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
    folder = here / "adapter" / kind.lower()
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["peft_type"] == kind
    assert config["target_modules"] == ["layers.0.q_proj", "layers.1.q_proj"]
    assert load_file(folder / "adapter_model.safetensors")
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
    assert (
        lines[0]
        == "name,shape,method,r,components,numbers,error,gap,energy,uniform_error,uniform_size,"
        "equal_error,least_error,loaded_error"
    )
    assert lines[1].startswith("layers.0.q_proj.weight,48x40,loca,,100,100,")


@pytest.mark.parametrize("out", [(), ("--out", "adapter")], ids=["default", "named"])
def test_the_result_says_where_the_adapter_is(cli, here, pair, out):
    folder = out[-1] if out else "loca-results"
    done = cli("extract", *pair, "--components", "100", *out, "--quiet")
    assert f"The adapter is in {folder}/loca.\n" in done.out
    done = cli("extract", *pair, "--components", "100", *out, "--quiet", "--format", "json")
    assert json.loads(done.out)["files"] == [
        f"{folder}/{name}"
        for name in ("loca/adapter_model.safetensors", "loca/README.md", "loca/adapter_config.json",
                     "extract-matrices.parquet", "extract-matrices.manifest.json",
                     "extract-skipped.parquet", "extract-skipped.manifest.json")
    ]  # fmt: skip


def test_the_folder_of_a_model_is_refused_before_anything_is_opened(cli, here, pair, monkeypatch):
    folder = here / "model" / "lora"
    folder.mkdir(parents=True)
    shutil.copy(here / pair[1], folder / "model.safetensors")
    (folder / "README.md").write_text("about my model", encoding="utf-8")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = cli("extract", "none", "none", "--method", "lora", "--r", "2", "--out", "model")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(
        "loca-theory: model/lora holds README.md, model.safetensors, which no extraction wrote"
    )
    assert len(done.err.splitlines()) == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_neither_size_is_one_line(cli, pair):
    done = cli("extract", *pair)
    assert (done.code, done.out) == (2, "")
    assert "pass one of --r 8, --components 1000, --allocate 4MB or --energy 0.9" in done.err


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


@pytest.mark.parametrize("method", ["lora", "loca"])
def test_a_total_is_split_and_compared_with_uniform_sizes(cli, here, pair, method):
    content = load_file(here / pair[1])
    base = load_file(here / pair[0])
    name = "layers.1.q_proj.weight"
    content[name] = base[name] + 3 * (content[name] - base[name])
    save_file(content, here / pair[1])
    arguments = ("extract", *pair, "--method", method, "--allocate", "2kB", "--out", "adapter")
    done = cli(*arguments, "--quiet")
    assert done.code == 0
    assert "Uniform sizes retain " in done.out
    assert " of the energy, a split of what they cost " in done.out
    again = cli(*arguments, "--format", "json")
    document = json.loads(again.out)
    assert document["error"] < document["uniform_error"]
    stored = load_file(here / "adapter" / method / "adapter_model.safetensors")
    assert sum(one.numel() * one.element_size() for one in stored.values()) <= 2000
    # The second run has found the spectra of the first.
    assert len(list((here / "adapter" / "points").glob("energy-profile@*.json"))) == 2


def test_the_smallest_adapter_that_retains_a_fraction_in_bfloat16(cli, here, pair):
    size = ("--method", "lora", "--energy", "0.5", "--dtype", "bfloat16")
    shared = ("--jobs", 1, "--device", "cpu", "--out", "adapter", "--format", "json", "--quiet")
    done = cli("extract", *pair, *size, *shared)
    assert 0.45 < json.loads(done.out)["error"] < 0.5 + 1e-4
    stored = load_file(here / "adapter" / "lora" / "adapter_model.safetensors")
    assert {one.dtype for one in stored.values()} == {torch.bfloat16}


def test_modules_are_stored_whole(cli, here, pair):
    done = cli("extract", *pair, "--r", "2", "--save-module", "norm", "--out", "adapter")
    assert done.code == 0
    folder = here / "adapter" / "loca"
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["modules_to_save"] == ["norm"]
    stored = load_file(folder / "adapter_model.safetensors")
    assert torch.equal(stored["base_model.model.norm.weight"], torch.ones(48))


def test_a_mixed_result_has_two_folders(cli, here, pair):
    done = cli("extract", *pair, "--method", "best", "--r", "2", "--out", "adapter", "--quiet")
    assert "LoRA and LoCA with " in done.out
    written = [one for one in ("lora", "loca") if (here / "adapter" / one).is_dir()]
    for one in written:
        assert f"adapter/{one}" in done.out
        assert (here / "adapter" / one / "adapter_config.json").is_file()
    (here / "adapter" / "lora").mkdir(exist_ok=True)
    (here / "adapter" / "lora" / "config.json").write_text("{}")
    done = cli("extract", *pair, "--method", "best", "--r", "2", "--out", "adapter")
    assert done.code == 1
    assert "adapter/lora holds config.json, which no extraction wrote" in done.err


def models(here):
    """Folders of a tiny transformer and a fine-tune of it."""
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
        vocab_size=23,
    )  # fmt: skip
    for seed, name in enumerate(("base", "tuned")):
        torch.manual_seed(seed)
        transformers.LlamaForCausalLM(config).save_pretrained(here / name)
    return "base", "tuned"


def test_an_adapter_is_checked_in_the_loaded_model(cli, here, monkeypatch):
    arguments = ("extract", *models(here), "--r", "2", "--check", "--out", "adapter")
    done = cli(*arguments, "--quiet")
    assert done.code == 0
    assert "error  loaded" in done.out
    assert "not checked" not in done.out
    document = json.loads(cli(*arguments, "--format", "json", "--quiet").out)
    for row in document["rows"]:
        assert row["loaded_error"] == pytest.approx(row["error"], abs=1e-5)
    # PEFT that puts the adapter elsewhere is found out.
    monkeypatch.setattr(peft.PeftModel, "from_pretrained", lambda model, folder: Unchanged(model))
    done = cli(*arguments, "--quiet")
    assert done.code == 1
    assert "8 matrices have another error once PEFT has loaded the adapter: " in done.err


class Unchanged:
    """An adapter that changes nothing."""

    def __init__(self, model):
        self.model = model

    def eval(self):
        return self

    def merge_and_unload(self):
        return self.model


def test_names_that_no_model_confirms_are_said(cli, pair):
    done = cli("extract", *pair, "--components", "100", "--quiet")
    said = "Names are those of the file; not checked against a model: no config.json names the"
    assert said in " ".join(done.out.split())
    done = cli("extract", *pair, "--components", "100", "--check")
    assert (done.code, done.out) == (2, "")
    assert "cannot be checked, because the model is not known (no config.json names the" in done.err
