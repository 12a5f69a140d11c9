"""The paper's experiments on tiny random models and data of the hub's schema, by the command."""

import json
import math
import sys
from types import SimpleNamespace

import datasets
import huggingface_hub.constants
import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from transformers import AutoModelForCausalLM, AutoTokenizer

from experiments.paper_scale.__main__ import main
from experiments.paper_scale.classification import measure
from experiments.paper_scale.run import StopWhenDiverged
from experiments.paper_scale.settings import families

from . import paper_scale_models as tiny

pytestmark = pytest.mark.filterwarnings(
    r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning"
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    for module in (datasets.config, huggingface_hub.constants):
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", True)
    monkeypatch.setitem(families()["e2e"].options, "max_new_tokens", 3)
    monkeypatch.setitem(families()["instruct"].options, "max_new_tokens", 2)
    monkeypatch.setitem(families()["diffusion"].options, "resolution", 16)


def call(*arguments, fails=False):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    if not fails and result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert (result.exit_code != 0) == fails, result.output
    return result.output


def rows(out):
    return [pd.read_parquet(path).iloc[0] for path in sorted(out.glob("*.parquet"))]


def flags(**options):
    """Options on the command line, from their names in Python."""
    return [part for name, x in options.items() for part in (f"--{name.replace('_', '-')}", x)]


@pytest.fixture
def glue(tmp_path):
    model, data = tiny.build("roberta", tmp_path / "roberta"), tiny.data("MRPC", tmp_path / "mrpc")
    folders = flags(model=model, data=data, out=tmp_path / "out")
    return ("glue", *flags(task="MRPC", seed=6, batch_size=4, max_steps=2), *folders)


SIXTHS = [pytest.approx(100 * k / 6) for k in range(7)]
SEVENTHS = [pytest.approx(100 * k / 7) for k in range(8)]
QUARTERS = [0, 25, 50, 75, 100]


@pytest.mark.parametrize(
    ("family", "task", "model", "data", "metric", "values"),
    [
        ("glue", "MRPC", "roberta", "MRPC", "accuracy", SIXTHS),
        ("glue", "MNLI", "roberta", "MNLI", "accuracy (matched and mismatched)", SEVENTHS),
        ("glue", "STS-B", "roberta", "STS-B", "Pearson correlation", None),
        ("e2e", "E2E", "gpt2", "e2e", "perplexity", None),
        ("instruct", "Alpaca", "llama", "instruct", "training loss", None),
        ("vit", "OxfordPets", "vit", "pets", "accuracy", QUARTERS),
        ("diffusion", "cartoons", "pix2pix", "cartoons", "loss", None),
    ],
)
def test_every_family_trains_records_and_repeats_nothing(
    tmp_path, family, task, model, data, metric, values
):
    questions = tmp_path / "question.jsonl"
    questions.write_text('{"question_id": 81, "turns": ["say a", "say b"]}\n')
    options, written = {
        "e2e": (("--texts", 1), "*/texts.jsonl"),
        "instruct": (("--questions", questions), "*/answers.jsonl"),
        "diffusion": (("--samples", 1), "*/0-*.png"),
    }.get(family, ((), None))
    model, data = tiny.build(model, tmp_path / model), tiny.data(data, tmp_path / "data")
    folders = flags(model=model, data=data, out=tmp_path / "out")
    settings = flags(task=task, components=10, seed=6, batch_size=2, max_steps=3)
    command = (family, *settings, *options, *folders)
    assert metric in call(*command)
    (row,) = rows(tmp_path / "out")
    assert (row["task"], row["method"], row["seed"], row["steps"]) == (task, "loca", 6, 3)
    assert row["metric"] == metric
    assert math.isfinite(row["value"]) if values is None else row["value"] in values
    if family != "diffusion":  # whose layers have several shapes
        assert row["trained"] == 2 * 10
    assert row["stored"] == 2 * row["trained"]
    assert row["head"] == (37 * 17 if task == "OxfordPets" else row["head"])
    assert not row["diverged"]
    assert ("BLEU" in json.loads(row["others"])) == (family == "e2e")
    assert bool(written) == bool(list((tmp_path / "out").glob(written or "*/*.jsonl")))
    (origin,) = (tmp_path / "out").glob("*.manifest.json")
    assert json.loads(origin.read_text())["libraries"]["transformers"]
    # Nothing that could run code is left.
    names = {path.name for path in (tmp_path / "out").rglob("*")}
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pth"))]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert "(stored)" in call(*command)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize(
    ("method", "options", "trained", "stored"),
    [
        ("linear-probing", ("--lr", "1e-3"), 0, 0),
        ("lora", ("--lr", "1e-3", "--r", 2), 2 * 2 * 32, 2 * 2 * 32),
        ("fourierft", ("--lr", "1e-3", "--components", 5), 2 * 5, 2 * 5),
        ("loca-v1", ("--components", 10), 20, 20),
        # Learned locations are charged, though fixed by the end.
        pytest.param(
            "loca", ("--components", 10, "--max-steps", 121), 20, 40, marks=pytest.mark.deep
        ),
    ],
)
def test_what_methods_train_and_store(glue, tmp_path, method, options, trained, stored):
    call(*glue, "--method", method, *options)
    (row,) = rows(tmp_path / "out")
    assert (row["trained"], row["stored"]) == (trained, stored)


def test_all_of_the_papers_seeds(glue, tmp_path):
    output = call(*glue[:3], *glue[5:], "--components", 5)
    assert sorted(row["seed"] for row in rows(tmp_path / "out")) == [6, 66, 666]
    assert "'eval_accuracy'" in output  # the Trainer's progress


def test_diverged_is_recorded_and_ends_the_run(glue, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.paper_scale.run._LOGGED_EVERY", 2)
    assert "diverged" in call(*glue, "--method", "full", "--lr", "1e30", "--max-steps", 9)
    (row,) = rows(tmp_path / "out")
    assert row["diverged"]
    assert row["steps"] < 9
    assert math.isnan(row["value"])


def test_resumes_from_the_last_checkpoint(glue, tmp_path, monkeypatch):
    # The checkpoint is one step into the first phase of the locations, in mid-epoch: at the end
    # of an epoch the Trainer takes up another order of the data.
    command = (*glue, "--components", 10, "--max-steps", 14, "--save-every", 11)
    call(*command, "--out", tmp_path / "whole")
    (uninterrupted,) = rows(tmp_path / "whole")
    seen = []

    def follow(self, args, state, control, **kwargs):
        seen.append(state.global_step)
        if seen == list(range(1, 14)):
            raise KeyboardInterrupt

    monkeypatch.setattr(StopWhenDiverged, "on_step_end", follow, raising=False)
    call(*command, fails=True)
    assert not rows(tmp_path / "out")
    (folder,) = (path for path in (tmp_path / "out").iterdir() if path.is_dir())
    (folder / "checkpoint-13").mkdir()  # killed while it was written
    call(*command)
    assert seen == [*range(1, 14), 12, 13, 14]
    (row,) = rows(tmp_path / "out")
    assert row["resumed"]
    assert row["last"] == pytest.approx(uninterrupted["last"])
    ends = [json.loads(run["others"])["loss"] for run in (row, uninterrupted)]
    assert ends[0] == pytest.approx(ends[1])
    assert not list(folder.glob("checkpoint-*"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("glue", "--task", "CoLa"), ["CoLA, MNLI, MRPC"]),
        (("glue", "--method", "lorra"), ["linear-probing"]),
        (("glue", "--model-size", "x"), ["base, large"]),
        (("glue", "--seed", "-1"), ["range"]),
        (("glue", "--lr", "nan"), ["--lr"]),
        (("glue", "--lr", "0"), ["--lr"]),
        (("diffusion",), ["--components"]),
        (("e2e",), ["cannot be read", "--data"]),
        (("instruct", "--components", 5, "--questions", __file__), ["cannot be read"]),
    ],
)
def test_bad_input_is_one_line(arguments, words):
    output = call(*arguments, fails=True)
    said = [line for line in output.splitlines() if line and not line.startswith(("Usage", "Try"))]
    assert len(said) == 1
    assert all(word in output for word in words)


def test_data_and_models_that_do_not_fit(glue, tmp_path):
    def failing(**parts):
        data = tiny.write(tmp_path / "-".join(parts), **parts)
        return call(*glue, "--data", data, fails=True)

    assert "./nowhere cannot be read" in call(*glue, "--model", "./nowhere", fails=True)
    assert 'Unknown split "validation"' in failing(train=tiny.sentences(4))
    other = tiny.sentences(4, ("text",))
    assert "sentence1" in failing(train=other, validation=other)
    hidden = [{**row, "label": -1} for row in tiny.sentences(4)]
    assert "labels from 0 to 1" in failing(validation=hidden, train=hidden)


def test_a_missing_extra_is_named(glue, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "experiments.paper_scale.run")
    output = call(*glue, fails=True)
    assert "transformers is not installed: pip install 'loca-theory[paper-scale]'" in output


def test_weights_that_could_run_code_are_refused(glue, tmp_path):
    model = tmp_path / "roberta"
    torch.save({}, model / "pytorch_model.bin")
    (model / "model.safetensors").unlink()
    assert "safetensors" in call(*glue, fails=True)


def test_code_beside_the_weights_is_not_run(glue, tmp_path):
    model, trace = tmp_path / "roberta", tmp_path / "trace"
    (model / "own.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
    names = {"AutoConfig": "own.Config", "AutoModelForSequenceClassification": "own.Model"}
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(
        json.dumps({**config, "model_type": "own", "auto_map": names})
    )
    assert "cannot be read" in call(*glue, fails=True)
    assert not trace.exists()


def test_loss_is_reported_without_smoothing_and_of_answers_alone(tmp_path):
    folder = tiny.build("gpt2", tmp_path / "gpt2")
    folders = flags(model=folder, data=tiny.data("e2e", tmp_path / "d"), out=tmp_path / "out")
    call("e2e", *flags(components=10, lr="1e-9", batch_size=4, max_steps=1, texts=0), *folders)
    (row,) = rows(tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    losses = []
    for m in ("ab", "cd"):
        for w in ("good", "bad"):
            prompt = tokenizer(f"name[{m}] ||")["input_ids"]
            ids = prompt + tokenizer(f" {m} is {w}")["input_ids"] + [tokenizer.eos_token_id]
            with torch.no_grad():
                logits = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
            losses += [-float(logits[i - 1, ids[i]]) for i in range(len(prompt), len(ids))]
    losses_reported = json.loads(row["others"])
    assert losses_reported["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert losses_reported["training loss"] != pytest.approx(np.mean(losses), rel=1e-5)
    assert row["value"] == pytest.approx(math.exp(losses_reported["loss"]))


def test_metrics_by_hand():
    right = SimpleNamespace(predictions=np.eye(2)[[1, 1, 0, 0]], label_ids=np.array([1, 1, 0, 0]))
    assert measure("Matthews correlation")(right) == {"Matthews correlation": pytest.approx(100)}
    numbers = SimpleNamespace(predictions=np.arange(4.0)[:, None], label_ids=1 - np.arange(4.0))
    assert measure("Pearson correlation")(numbers) == {"Pearson correlation": pytest.approx(-100)}


def test_list_names_everything():
    output = call("list")
    names = ("roberta-base", "STS-B", "gpt2-medium", "Alpaca", "RESISC45", "cartoons")
    seeds = ("6, 66, 666", "2020, 2021", "seeds: 0\n")
    notes = ("GPT-4 as the judge", "not run", "loca, MRPC base: batch_size 32")
    for text in (*names, *seeds, *notes):
        assert text in output
    # The paper has all settings of LoCA but the components for cartoons.
    lines = [line for line in output.splitlines() if line.startswith("  loca, ")]
    assert len([line for line in lines if "alternating_steps" in line]) == len(lines) - 1
