"""``loca-theory analyze`` and ``extract``: what they print, write and leave out."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from loca_theory.checkpoints import Extraction
from loca_theory.transforms import idct2
from tests.checkpoints import zoo


@pytest.fixture
def pair(write_pair):
    kinds = ("q_proj", "v_proj")
    return write_pair([f"layers.{i}.{kind}.weight" for i in range(2) for kind in kinds])


def change(file, edit):
    content = load_file(file)
    edit(content)
    save_file(content, file)


# --- analyze ---


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        (
            ("base.safetensors", "tuned.safetensors", "--config"),
            [
                "Fraction of ‖ΔW‖² ",
                "rank 90%",
                "together, r = 2",
                "LoraConfig(\n    r=2,",
                "do not choose by reconstruction what you will train",
                "Left out: 1",
            ],
        ),
        (
            ("--demo", "--include", "0.*q_proj", "--full", "--config"),
            [
                "0.001, is not rejected at the level 5% (",
                "target_modules=['layers.0.attention.q_proj']",
            ],
        ),
        (
            ("base.safetensors", "tuned.safetensors", "--allocate", "20kB"),
            ["rank  coefficients", "if 20,000 bytes are split for all"],
        ),
        (
            ("base.safetensors", "base.safetensors"),
            [
                "The base and the fine-tune are identical",
                "analysed; left out: 4 tensors (unch",
                "unchanged",
            ],
        ),
        (
            ("base.safetensors", "tuned.safetensors", "--max-size", 2500, "--include", "wide|0.q"),
            ["larger than --max-size 2500: wide"],
        ),
    ],
    ids=["pair", "demonstration", "split", "identical", "large"],
)
def test_people_get_a_table_a_verdict_and_a_configuration(cli, cwd, pair, words, texts):
    if "--max-size" in words:
        for name in pair:
            change(cwd / name, lambda content: content.update({"wide.weight": torch.ones(60, 60)}))
    done = cli("analyze", *words, "--r", 2, "--quiet")
    assert (done.code, done.err) == (0, "")
    shown = " ".join(done.out.split())
    assert all(" ".join(text.split()) in shown for text in texts)


def test_the_short_table_has_four_forms_and_the_full_one_every_statistic(cli, cwd, pair):
    arguments = ("analyze", *pair, "--r", 2, "--quiet")
    short, full = cli(*arguments).out, cli(*arguments, "--full").out
    heading = ["matrix", "shape", "rank", "90%", "LoRA", "LoCA", "entries", "FourierFT"]
    assert [line.split() for line in short.splitlines() if line.startswith("matrix")] == [heading]
    only_full = (
        "spikes: Number of",
        "p (paper)",
        "‖ΔW‖/‖W₀‖",
        "LoRA shuffled",
        "Fourier pairs",
        "kind ",
        "Budget: r(p + q) numbers",
        "Normality of the entries",
    )
    assert all((text in full, text in short) == (True, False) for text in only_full)
    first, middle = (
        line.split() for line in full.splitlines() if re.match(r"[01]\.q_proj .*48x40", line)
    )
    assert len(middle) == len(first) + 1, "the entries of one matrix per kind are shuffled"
    document = json.loads(cli(*arguments, "--format", "json").out)
    keys = {"rows", "allocation", "comparisons", "bits", "skipped", "summary", "manifest"}
    assert set(document) == keys
    reason = "not a matrix: 1 dimensions"
    assert document["skipped"] == [{"name": "norm.weight", "tuned": "tuned", "reason": reason}]
    row = document["rows"][0]
    errors = {error["method"]: f"{1 - error['error']:.1%}" for error in row["errors"]}
    (cells,) = (line.split() for line in short.splitlines() if line.startswith("layers.0.q_proj"))
    keys = ("LoRA", "LoCA", "entries", "FourierFT")
    forms = [errors[key] for key in keys]
    assert cells == ["layers.0.q_proj", "48x40", str(row["rank_90"]), *forms]
    # What FourierFT retains of independent entries, which the others are compared with, too.
    expected = {error["method"]: error["iid_error"] for error in row["errors"]}
    (line,) = (line for line in short.splitlines() if line.startswith("independent, r = 2"))
    assert line.split()[4:] == [f"{1 - expected[key]:.1%}" for key in keys]
    assert "config = " not in short + full


def test_coders_are_compared_in_a_small_table(cli, cwd, pair):
    shown = cli("analyze", *pair, "--r", 2, "--bits", "0.5,1", "--quiet").out
    (heading,) = (line for line in shown.splitlines() if line.startswith("coder"))
    assert re.split("  +", heading.strip()) == [
        "coder",
        "0.5 bits",
        "0.5 bits, DCT",
        "1 bit",
        "1 bit, DCT",
    ]
    (line,) = (line for line in shown.splitlines() if line.startswith("BitDelta  "))
    assert line.split()[1:3] == ["–", "–"], "it has no half a bit"


def test_several_fine_tunes_have_a_line_each(cli, cwd, pair):
    shutil.copy(cwd / pair[1], cwd / "other.safetensors")
    shown = cli("analyze", *pair, "other.safetensors", "--r", 2, "--quiet").out
    (heading,) = (line for line in shown.splitlines() if line.startswith("fine-tune "))
    assert {"matrices", "LoRA", "LoCA", "entries", "FourierFT"} <= set(heading.split())
    assert [line.split()[0] for line in shown.splitlines() if line.startswith(("tuned ", "other "))]
    assert "of 2 fine-tunes" in " ".join(shown.split())
    assert "config = " not in shown


def test_unrelated_checkpoints_are_said_to_be_in_the_verdict(cli, cwd, pair):
    other = {name: torch.randn(row.shape) for name, row in load_file(cwd / pair[0]).items()}
    save_file(other, cwd / "other.safetensors")
    arguments = ("analyze", pair[0], "other.safetensors", "--r", "2", "--quiet")
    text = "The weights of the base and of the fine-tune are unrelated (median cosine"
    shown = " ".join(cli(*arguments).out.split())
    assert shown.index(text) < shown.index("Fraction of")
    document = json.loads(cli(*arguments, "--format", "json").out)
    assert document["summary"]["warnings"][0].startswith(text)
    done = cli(*arguments, "--format", "csv")
    assert done.err.startswith(f"note: {text}")
    assert "weights_cosine" in done.out.splitlines()[0].split(",")


def test_all_methods_are_those_that_approximate_a_matrix(cli, pair):
    done = cli("analyze", *pair, "--r", "2", "--methods", "all", "--format", "json", "--quiet")
    assert (done.code, done.err) == (0, "")
    methods = set(json.loads(done.out)["manifest"]["grid"]["methods"])
    assert {"LoRA", "LoCA", "entries", "DoRA", "LoKr", "C3A"} <= methods
    assert not {"printed line", "upper bound", "lower bound", "rate-distortion"} & methods, (
        "only formulas"
    )


def test_methods_that_are_off_the_budget_are_said(cli, pair):
    """DoRA has q = 40 magnitudes beside the 2·(48 + 40) numbers of LoRA."""
    done = cli("analyze", *pair, "--r", "2", "--methods", "DoRA", "--quiet")
    assert "Methods that spend another budget: DoRA 123% of it." in " ".join(done.out.split())
    assert "another budget" not in cli("analyze", *pair, "--r", "2", "--quiet").out


@pytest.mark.parametrize("command", [("analyze", "--r", 2), ("extract", "--components", 100)])
def test_damage_is_exit_code_4_with_the_rest_done(cli, cwd, pair, command):
    damaged = "layers.1.q_proj.weight"
    change(cwd / pair[1], lambda content: content[damaged][0].fill_(float("inf")))
    done = cli(command[0], *pair, *command[1:], "--format", "json", "--quiet")
    assert done.code == 4
    assert done.err == (
        f"note: left out because they are damaged: 1, the first: {damaged}: not finite: 40 of 1920 "
        "entries are NaN or infinite\n"
    )
    document = json.loads(done.out)
    assert len(document["rows"]) == 3
    assert [matrix["name"] for matrix in document["skipped"]] == ["norm.weight", damaged]


# --- extract ---


def test_the_result_says_where_the_adapter_is(cli, pair):
    command = ("extract", *pair, "--components", 100, "--out", "adapter")
    shown = cli(*command, "--quiet").out
    assert "layers.0.q_proj" in shown
    pattern = r"LoCA with 400 learned numbers: (.*)% of the energy of 4 increments is retained\.\n"
    sentence = re.search(pattern, shown)
    assert "\nAnother form may suit the change better: loca-theory analyze compares them." in shown
    size = Path("adapter/loca/adapter_model.safetensors").stat().st_size
    assert f"The adapter is in adapter/loca.\nSize on disk: {size / 1000:.1f} kB.\n" in shown
    said = "Names are those of the file; not checked against a model: no config.json names the"
    assert said in " ".join(shown.split())
    done = cli(*command, "--quiet", "--format", "json")
    files = (
        "loca/adapter_model.safetensors",
        "loca/README.md",
        "loca/adapter_config.json",
        "extract.parquet",
        "extract.manifest.json",
    )
    document = json.loads(done.out)
    assert document["files"] == [f"adapter/{name}" for name in files]
    assert float(sentence[1]) == pytest.approx(100 * (1 - document["error"]), abs=0.05)
    lines = cli(*command, "--format", "csv", "--quiet").out.splitlines()
    assert lines[0] == (
        "name,shape,method,r,components,numbers,error,gap,energy,uniform_error,uniform_size,"
        "equal_error,least_error,loaded_error,surviving_energy,format,steps,distance,"
        "nearest_error,nearest_distance,held_out,identical,identical_half,identical_safe,"
        "identical_half_safe"
    )
    assert lines[1].startswith("layers.0.q_proj.weight,48x40,loca,,100,100,")


def test_the_demo_needs_no_size_and_says_why_it_has_another_matrix_than_that_of_analyze(cli):
    done = cli("extract", "--demo", "--method", "lora")
    assert done.err.startswith("note: without a size, --demo takes --r 8\n")
    assert "of 9 increments is retained.\nanalyze leaves out 1 of them, because a side" in done.out
    done = cli("extract", "--demo", "--components", 9)
    assert "demo takes" not in done.err
    assert "Fitting to the rounding did not help; the plain fit is kept.\n" in done.out


def test_a_total_is_split_and_compared_with_uniform_sizes(cli, cwd, pair):
    arguments = ("extract", *pair, "--method", "lora", "--allocate", "4kB", "--out", "adapter")
    for _ in range(2):  # the second run finds the spectra of the first
        done = cli(*arguments, "--quiet")
        assert done.code == 0
        assert "Uniform sizes retain " in done.out
        assert " of the energy, a split of what they cost " in done.out
        assert len(list((cwd / "adapter" / "points").glob("energy-profile@*.json"))) == 4


def test_each_form_that_wins_somewhere_has_a_folder(cli, cwd, pair):
    command = ("extract", *pair, "--method", "best", "--r", "2", "--quiet", "--out")
    done = cli(*command, "one")
    assert "LoRA with " in done.out
    assert "components" not in done.out
    assert [path.name for path in (cwd / "one").glob("lo*")] == ["lora"]
    sparse = torch.zeros(48, 40)
    sparse.view(-1)[::6] = torch.randn(320, generator=torch.Generator().manual_seed(1))
    name = "layers.0.q_proj.weight"
    before = load_file(cwd / pair[0])[name]
    change(cwd / pair[1], lambda row: row.update({name: before + idct2(sparse)}))
    done = cli(*command, "two")
    assert "LoRA and LoCA with " in done.out
    assert "Another form" not in done.out
    where = r"The adapters are in two/lora and two/loca\.\nSize on disk: .* kB and .* kB\.\n"
    assert re.search(where, done.out)
    for form in ("lora", "loca"):
        assert (cwd / "two" / form / "adapter_config.json").is_file()


def test_an_adapter_is_checked_in_the_loaded_model(cli, cwd, monkeypatch):
    zoo.pair("Llama", cwd)
    arguments = ("extract", "base", "tuned", "--r", "2", "--check", "--out", "adapter", "--quiet")
    done = cli(*arguments)
    assert done.code == 0
    assert "retained  retained in PEFT" in done.out
    assert "not checked" not in done.out
    for row in json.loads(cli(*arguments, "--format", "json").out)["rows"]:
        assert row["loaded_error"] == pytest.approx(row["error"], abs=1e-5)
    monkeypatch.setattr(Extraction, "disagreements", property(lambda _: 8 * ["a"]))
    done = cli(*arguments)
    assert done.code == 1
    assert "8 matrices have another error once PEFT has loaded the adapter: " in done.err


def test_each_of_several_fine_tunes_gets_an_adapter(cli, pair, cwd):
    base, tuned = pair
    for name in ("one", "two"):
        (cwd / name).mkdir()
        (cwd / name / "model.safetensors").write_bytes((cwd / tuned).read_bytes())
    options = ("--method", "lora", "--r", "2", "--quiet")
    done = cli("extract", base, cwd / "one", cwd / "two", *options, "--format", "json")
    document = json.loads(done.out)
    assert [*document["extractions"]] == ["one", "two"]
    single = json.loads(cli("extract", base, tuned, *options, "--out", "x", "--format", "json").out)
    assert document["rows"] == [
        {"tuned": name, **row} for name in ("one", "two") for row in single["rows"]
    ]
    for name in ("one", "two"):
        assert (cwd / "loca-results" / name / "lora" / "adapter_model.safetensors").is_file()


def test_what_the_fine_tune_changed_and_the_adapter_lacks_is_said(cli, cwd):
    weights = {
        "fc.weight": torch.eye(20),
        "norm.weight": torch.ones(20),
        "same.weight": torch.ones(9),
        "position": torch.ones(9, 20),
    }
    head = {"head.weight": torch.ones(3, 20), "head.bias": torch.ones(3)}
    save_file(weights, cwd / "base")
    changed = {"fc.weight": 2 * torch.eye(20), "norm.weight": torch.zeros(20)}
    changed["position"] = torch.zeros(9, 20)  # a parameter of the model itself
    save_file({**weights, **changed, **head}, cwd / "tuned")
    (cwd / "base").rename(cwd / "base.safetensors")
    (cwd / "tuned").rename(cwd / "tuned.safetensors")
    command = ("extract", "base.safetensors", "tuned.safetensors", "--r", "1", "--method", "lora")
    said = " ".join(cli(*command, "--out", "a").out.split())
    assert (
        "Not in the adapter, though the fine-tune changed them: position, head, norm. With" in said
    )
    assert "--save-module head stores one whole" in said
    said = " ".join(cli(*command, "--save-module", "head|norm", "--out", "b").out.split())
    assert "changed them: position. Without them a loaded model answers otherwise. " in said
