"""The paper's experiments on tiny random models and data of the hub's schema, by the command."""

import importlib
import json
import math

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner

from experiments.paper_scale import loading
from experiments.paper_scale.__main__ import main
from experiments.paper_scale.adaptation import SplitProjection, split_projections
from experiments.paper_scale.callbacks import Health
from experiments.paper_scale.e2e import bleu, perplexity
from experiments.paper_scale.metrics import matthews, pearson
from experiments.paper_scale.sources import families

from . import paper_scale_models as tiny

pytestmark = [
    pytest.mark.filterwarnings(
        r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning"
    ),
]


LORA_AND_LOCA = pytest.mark.parametrize(
    "method", [pytest.param("lora", marks=pytest.mark.deep), "loca"]
)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def call(*arguments, fails=False):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    if not fails and result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert (result.exit_code != 0) == fails, result.output
    return result.output


def rows(out):
    return [pd.read_parquet(path).iloc[0] for path in sorted(out.glob("*.parquet"))]


@pytest.fixture
def glue(tmp_path):
    data = tiny.write_json(
        tmp_path / "mrpc",
        train=tiny.sentences(12, ("sentence1", "sentence2"), 2),
        validation=tiny.sentences(6, ("sentence1", "sentence2"), 2, 1),
    )
    model = tiny.roberta(tmp_path / "roberta")
    return ("--model", model, "--data", data, "--batch-size", 4, "--out", tmp_path / "out")


class TestGlue:
    @pytest.mark.parametrize(
        ("method", "options", "trained"),
        [("lora", ("--lr", "1e-3"), 2 * 8 * 32), ("loca", ("--components", 10), 2 * 10)],
    )
    def test_trains_records_and_repeats_nothing(self, glue, tmp_path, method, options, trained):
        command = ("glue", "--task", "MRPC", "--method", method, "--seed", 6, *options,
                   "--max-steps", 3, *glue)  # fmt: skip
        assert "accuracy" in call(*command)
        (row,) = rows(tmp_path / "out")
        assert (row["task"], row["method"], row["seed"], row["steps"]) == ("MRPC", method, 6, 3)
        assert row["metric"] == "accuracy"
        assert row["value"] in [pytest.approx(100 * k / 6) for k in range(7)]
        assert row["trained"] == trained
        assert row["stored"] == (2 if method == "loca" else 1) * trained
        assert not row["diverged"]
        (origin,) = (tmp_path / "out").glob("*.manifest.json")
        about = json.loads(origin.read_text())
        assert about["grid"]["settings"]["weight_decay"] == 1e-4
        assert about["libraries"]["transformers"]
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
        assert "(stored)" in call(*command)
        assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out").iterdir()} == before

    @pytest.mark.deep
    def test_learned_locations_are_charged_though_settled_by_the_end(self, glue, tmp_path):
        call("glue", "--task", "MRPC", "--method", "loca-v1", "--components", 10, "--seed", 6,
             "--max-steps", 1, *glue)  # fmt: skip
        call("glue", "--task", "MRPC", "--components", 10, "--seed", 6, "--max-steps", 121, *glue)
        kept = {row["method"]: row["stored"] for row in rows(tmp_path / "out")}
        assert kept == {"loca": 2 * 20, "loca-v1": 20}

    def test_adalora_keeps_what_is_left_after_pruning(self, glue, tmp_path):
        call("glue", "--task", "MRPC", "--method", "adalora", "--seed", 6, "--lr", "1e-3",
             "--r", 4, "--max-steps", 2, *glue)  # fmt: skip
        (row,) = rows(tmp_path / "out")
        assert row["stored"] == 2 * 33 * 4
        assert row["trained"] == 2 * 33 * 6

    def test_nothing_that_could_run_code_is_left(self, glue, tmp_path):
        for method, options in (("loca", ("--components", 5)), ("full", ("--lr", "1e-3"))):
            call("glue", "--task", "MRPC", "--method", method, "--seed", 6, "--max-steps", 1, *glue,
                 *options, "--out", tmp_path / method)  # fmt: skip
            names = {path.name for path in (tmp_path / method).rglob("*")}
            assert names & {"adapter_model.safetensors", "model.safetensors"}
            assert not [name for name in names if name.endswith((".bin", ".pt", ".pth"))]

    def test_progress_without_a_terminal(self, glue):
        output = call("glue", "--task", "MRPC", "--components", 5, "--seed", 6, "--max-steps", 11,
                      "--save-every", 5, *glue)  # fmt: skip
        told = [line for line in output.splitlines() if line.startswith("step ")]
        assert any(line.startswith("step 5 of 11") and "checkpoint" in line for line in told)
        last = told[-1]
        assert last.startswith("step 11 of 11, ")
        assert "training loss" in last
        assert "accuracy" in last
        assert "runtime" not in last

    def test_damaged_results_are_computed_again(self, glue, tmp_path):
        command = ("glue", "--task", "MRPC", "--components", 5, "--seed", 6, "--max-steps", 1,
                   *glue)  # fmt: skip
        call(*command)
        (table,) = (tmp_path / "out").glob("*.parquet")
        (origin,) = (tmp_path / "out").glob("*.manifest.json")
        whole = pd.read_parquet(table)
        damages = (
            lambda: whole.iloc[:0].to_parquet(table),
            lambda: table.write_bytes(table.read_bytes()[:50]),
            lambda: origin.write_text("{"),
        )
        for damage in damages:
            damage()
            output = call(*command)
            assert "damaged" in output
            assert "(stored)" not in output
            assert rows(tmp_path / "out")[0]["value"] == whole.iloc[0]["value"]

    def test_budget_of_a_rank(self, glue, tmp_path):
        call("glue", "--task", "MRPC", "--r", 1, "--seed", 6, "--max-steps", 2, *glue)
        assert rows(tmp_path / "out")[0]["trained"] == 2 * 32

    def test_all_of_the_papers_seeds(self, glue, tmp_path):
        call("glue", "--task", "MRPC", "--components", 5, "--max-steps", 1, *glue)
        assert sorted(row["seed"] for row in rows(tmp_path / "out")) == [6, 66, 666]

    @pytest.mark.parametrize(("method", "trained"), [("linear-probing", 0), ("fourierft", 2 * 5)])
    def test_other_methods(self, glue, tmp_path, method, trained):
        counted = ("--components", 5) if trained else ()
        call("glue", "--task", "MRPC", "--method", method, "--seed", 6, "--lr", "1e-3",
             "--max-steps", 2, *counted, *glue)  # fmt: skip
        (row,) = rows(tmp_path / "out")
        assert row["trained"] == trained
        assert row["value"] in [pytest.approx(100 * k / 6) for k in range(7)]

    def test_mnli_counts_both_parts(self, glue, tmp_path):
        columns = ("premise", "hypothesis")
        data = tiny.write_json(
            tmp_path / "mnli",
            train=tiny.sentences(9, columns, 3),
            validation_matched=tiny.sentences(3, columns, 3, 1),
            validation_mismatched=tiny.sentences(4, columns, 3, 2),
        )
        call("glue", "--task", "MNLI", "--components", 5, "--seed", 6, "--max-steps", 1, *glue,
             "--data", data)  # fmt: skip
        (row,) = rows(tmp_path / "out")
        assert row["metric"] == "accuracy (matched and mismatched)"
        assert row["value"] in [pytest.approx(100 * k / 7) for k in range(8)]

    def test_regression(self, glue, tmp_path):
        columns = ("sentence1", "sentence2")
        data = tiny.write_json(
            tmp_path / "stsb",
            train=tiny.sentences(8, columns, 1),
            validation=tiny.sentences(8, columns, 1, 1),
        )
        call("glue", "--task", "STS-B", "--components", 5, "--seed", 6, "--max-steps", 1, *glue,
             "--data", data)  # fmt: skip
        (row,) = rows(tmp_path / "out")
        assert row["metric"] == "Pearson correlation"
        assert -100 <= row["value"] <= 100

    def test_metrics_by_hand(self):
        predicted, labels = np.array([1, 1, 0, 0, 1]), np.array([1, 0, 0, 1, 1])
        tp, tn, fp, fn = 2, 1, 1, 1
        expected = (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
        assert matthews(predicted, labels) == pytest.approx(expected)
        assert matthews(np.ones(3), np.array([0, 1, 1])) == 0
        assert pearson(np.arange(4.0), 1 - np.arange(4.0)) == pytest.approx(-1)

    def test_diverged_is_recorded(self, glue, tmp_path):
        output = call("glue", "--task", "MRPC", "--method", "full", "--lr", "1e30", "--seed", 6,
                      "--max-steps", 4, *glue)  # fmt: skip
        assert "diverged" in output
        (row,) = rows(tmp_path / "out")
        assert row["diverged"]
        assert math.isnan(row["value"])

    def test_resumes_from_the_last_checkpoint(self, glue, tmp_path, monkeypatch):
        # The checkpoint is one step into the first phase of the locations, in mid-epoch: at the end
        # of an epoch the Trainer takes up another order of the data.
        command = ("glue", "--task", "MRPC", "--components", 10, "--seed", 6, "--max-steps", 14,
                   "--save-every", 11, *glue)  # fmt: skip
        call(*command, "--out", tmp_path / "whole")
        (whole,) = rows(tmp_path / "whole")
        seen = []

        def follow(self, args, state, control, **kwargs):
            seen.append(state.global_step)
            if seen == list(range(1, 14)):
                raise KeyboardInterrupt

        monkeypatch.setattr(Health, "on_step_end", follow, raising=False)
        call(*command, fails=True)
        assert not rows(tmp_path / "out")
        (folder,) = (path for path in (tmp_path / "out").iterdir() if path.is_dir())
        (folder / "checkpoint-13").mkdir()  # killed while it was written
        call(*command)
        assert seen == [*range(1, 14), 12, 13, 14]
        (row,) = rows(tmp_path / "out")
        assert row["resumed"]
        assert row["last"] == pytest.approx(whole["last"])
        ends = [json.loads(one["others"])["loss"] for one in (row, whole)]
        assert ends[0] == pytest.approx(ends[1])
        assert not list(folder.glob("checkpoint-*"))


class TestBadInput:
    def test_unknown_names(self, glue):
        assert "CoLA, MNLI, MRPC" in call("glue", "--task", "CoLa", *glue, fails=True)
        output = call("glue", "--task", "CoLA", "--method", "lorra", *glue, fails=True)
        assert "linear-probing" in output
        assert "base, large" in call("glue", "--task", "CoLA", "--model-size", "x", fails=True)

    def test_what_the_paper_does_not_state(self, glue):
        output = call("glue", "--task", "MRPC", "--method", "vera", *glue, fails=True)
        assert "--r" in output
        assert "--lr" in output
        output = call("diffusion", fails=True)
        assert "--components" in output

    def test_components_belong_to_some_methods(self, glue):
        command = ("glue", "--task", "MRPC", "--lr", "1e-3", "--components", 5, *glue)
        assert "no components" in call(*command, "--method", "lora", fails=True)
        assert "give one" in call(*command, "--r", 2, fails=True)

    @pytest.mark.parametrize("method", ["lora", "loca"])
    def test_more_than_a_layer_holds(self, glue, method):
        amount = ("--r", 17) if method == "lora" else ("--components", 257)
        output = call("glue", "--task", "MRPC", "--method", method, "--lr", "1e-3", "--seed", 6,
                      "--max-steps", 1, *amount, *glue, fails=True)  # fmt: skip
        error = [line for line in output.splitlines() if not line.startswith("note:")]
        assert len(error) == 1
        assert "256" in error[0] or "choose 1 to 16" in error[0]

    @pytest.mark.parametrize("seed", [-1, 2**32])
    def test_seeds_that_are_none(self, glue, seed):
        assert "range" in call("glue", "--task", "MRPC", *glue, "--seed", seed, fails=True)

    @pytest.mark.parametrize("rate", ["nan", "inf", "0"])
    def test_rates_that_are_none(self, glue, rate):
        assert "--lr" in call("glue", "--task", "MRPC", *glue, "--lr", rate, fails=True)

    @pytest.mark.parametrize("address", ["http://bad host", "http://[", "https://a:b"])
    def test_no_address_of_a_hub(self, monkeypatch, address):
        monkeypatch.delenv("HF_HUB_OFFLINE")
        monkeypatch.setenv("HF_ENDPOINT", address)
        assert not loading.hub_answers()

    def test_missing_extra(self, glue, monkeypatch):
        def missing(name, _imported=importlib.import_module):
            if name == "datasets":
                raise ImportError(name=name)
            return _imported(name)

        monkeypatch.setattr(loading.importlib, "import_module", missing)
        output = call("glue", "--task", "MRPC", *glue, fails=True)
        assert "pip install 'loca-theory[paper-scale]'" in output

    @pytest.mark.parametrize("option", ["--model", "--data"])
    def test_hub_out_of_reach(self, glue, option, monkeypatch, tmp_path):
        monkeypatch.delenv("HF_HUB_OFFLINE")
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        tried = []

        def refuse(request, timeout):
            tried.append(request.full_url)
            raise OSError

        monkeypatch.setattr(loading.urllib.request, "urlopen", refuse)
        given = dict(zip(glue[::2], glue[1::2], strict=True))
        del given[option]
        rest = [one for pair in given.items() for one in pair]
        output = call("glue", "--task", "MRPC", *rest, fails=True)
        assert len(tried) == 1
        assert len(output.strip().splitlines()) == 1
        assert "out of reach" in output
        assert option in output

    def test_local_data_of_another_schema(self, glue, tmp_path):
        def failing(data):
            return call("glue", "--task", "MRPC", *glue, "--data", data, fails=True)

        assert "nowhere is not a folder" in failing("./nowhere")
        empty = tmp_path / "empty"
        empty.mkdir()
        assert "train.json" in failing(empty)
        other = tiny.write_json(tmp_path / "other", train=[{"text": "a", "label": 0}],
                                validation=[{"text": "a", "label": 0}])  # fmt: skip
        assert "sentence1" in failing(other)
        columns = ("sentence1", "sentence2")
        hidden = [{**row, "label": -1} for row in tiny.sentences(4, columns, 2)]
        test = tiny.write_json(tmp_path / "test", train=hidden, validation=hidden)
        assert "labels from 0 to 1" in failing(test)
        broken = tmp_path / "broken"
        broken.mkdir()
        (broken / "train.json").write_text("{")
        (broken / "validation.json").write_text("{")
        output = failing(broken)
        assert "cannot be read" in output
        assert "JSON" in output
        assert len(output.strip().splitlines()) == 1

    def test_weights_that_could_run_code_are_refused(self, glue, tmp_path):
        model = tmp_path / "roberta"
        torch.save({}, model / "pytorch_model.bin")
        (model / "model.safetensors").unlink()
        assert "safetensors" in call("glue", "--task", "MRPC", *glue, fails=True)

    def test_code_beside_the_weights_is_not_run(self, glue, tmp_path):
        model, trace = tmp_path / "roberta", tmp_path / "trace"
        (model / "own.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
        config = json.loads((model / "config.json").read_text())
        config |= {
            "model_type": "own",
            "auto_map": {
                "AutoConfig": "own.Config",
                "AutoModelForSequenceClassification": "own.Model",
            },
        }
        (model / "config.json").write_text(json.dumps(config))
        assert "cannot be read" in call("glue", "--task", "MRPC", *glue, fails=True)
        assert not trace.exists()


class TestE2E:
    @pytest.fixture
    def paths(self, tmp_path):
        rows = [
            {"meaning_representation": f"name[{m}]", "human_reference": f"{m} is {w}"}
            for m in ("ab", "cd") for w in ("good", "bad")
        ]  # fmt: skip
        data = tiny.write_json(tmp_path / "e2e", train=rows, test=rows)
        model = tiny.gpt2(tmp_path / "gpt2")
        return ("--model", model, "--data", data, "--batch-size", 2, "--out", tmp_path / "out")

    @pytest.mark.parametrize(
        ("method", "options"),
        [
            pytest.param("lora", ("--lr", "1e-3", "--r", 2), marks=pytest.mark.deep),
            ("loca", ("--components", 10)),
        ],
    )
    def test_trains_and_writes_texts(self, paths, tmp_path, monkeypatch, method, options):
        monkeypatch.setitem(families()["e2e"].options, "max_new_tokens", 3)
        call("e2e", "--method", method, *options, "--max-steps", 2, "--texts", 1, *paths)
        (row,) = rows(tmp_path / "out")
        assert row["metric"] == "perplexity"
        assert row["value"] == pytest.approx(math.exp(json.loads(row["others"])["loss"]))
        assert row["trained"] == (2 * 2 * 32 if method == "lora" else 2 * 10)
        (texts,) = (tmp_path / "out").glob("*/texts.jsonl")
        written = [json.loads(line) for line in texts.read_text().splitlines()]
        assert [one["references"] for one in written] == [["ab is good", "ab is bad"]]

    def test_loss_is_reported_without_smoothing(self, paths, tmp_path):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        call("e2e", "--components", 10, "--lr", "1e-9", "--batch-size", 4, "--max-steps", 1,
             "--texts", 0, *paths[:4], "--out", tmp_path / "out")  # fmt: skip
        (row,) = rows(tmp_path / "out")
        model = AutoModelForCausalLM.from_pretrained(paths[1]).eval()
        tokenizer = AutoTokenizer.from_pretrained(paths[1])
        losses, count = 0.0, 0
        for m in ("ab", "cd"):
            for w in ("good", "bad"):
                given = tokenizer(f"name[{m}] ||")["input_ids"]
                ids = given + tokenizer(f" {m} is {w}")["input_ids"] + [tokenizer.eos_token_id]
                with torch.no_grad():
                    logits = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
                wanted = range(len(given), len(ids))
                losses -= sum(float(logits[i - 1, ids[i]]) for i in wanted)
                count += len(wanted)
        assert json.loads(row["others"])["loss"] == pytest.approx(losses / count, rel=1e-5)
        assert json.loads(row["others"])["training loss"] != pytest.approx(losses / count, rel=1e-5)

    def test_split_model_is_the_fused_one(self, paths):
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(paths[1]).eval()
        ids = torch.randint(0, 20, (2, 7))
        with torch.no_grad():
            before, after = (
                change(model)(ids).logits for change in (lambda m: m, split_projections)
            )
        assert torch.allclose(before, after, atol=1e-6)

    def test_split_projection_is_the_fused_one(self):
        from transformers.pytorch_utils import Conv1D

        fused = Conv1D(12, 4)
        torch.nn.init.normal_(fused.bias)
        states = torch.randn(2, 3, 4)
        assert torch.allclose(SplitProjection(fused)(states), fused(states), atol=1e-6)

    def test_metrics(self):
        assert perplexity({"loss": 0.0}) == 1
        assert perplexity({"loss": 1e4}) == math.inf
        text = "the mill is a cheap location to eat"
        assert bleu([text], [[text, "another one"]])["BLEU"] == pytest.approx(100)


class TestInstruct:
    @LORA_AND_LOCA
    def test_trains_and_answers(self, tmp_path, monkeypatch, method):
        monkeypatch.setitem(families()["instruct"].options, "max_new_tokens", 2)
        data = tiny.write_json(tmp_path / "alpaca", train=[
            {"instruction": "say a", "input": given, "output": "a", "text": ""}
            for given in ("", "b", "c")
        ])  # fmt: skip
        questions = tmp_path / "question.jsonl"
        questions.write_text('{"question_id": 81, "turns": ["say a", "say b"]}\n')
        budget = ("--components", 10) if method == "loca" else ("--r", 2)
        command = ("instruct", "--method", method, *budget, "--batch-size", 1, "--max-steps", 2,
                   "--model", tiny.llama(tmp_path / "llama"), "--data", data,
                   "--questions", questions, "--out", tmp_path / "out")  # fmt: skip
        call(*command)
        (row,) = rows(tmp_path / "out")
        assert row["metric"] == "training loss"
        assert math.isfinite(row["value"])
        (answers,) = (tmp_path / "out").glob("*/answers.jsonl")
        (answer,) = map(json.loads, answers.read_text().splitlines())
        assert answer["question_id"] == 81
        assert len(answer["choices"][0]["turns"]) == 2
        assert "(stored)" in call(*command)
        questions.write_text("nonsense\n")
        assert "question_id" in call(*command, "--max-steps", 1, fails=True)


class TestVit:
    @pytest.fixture
    def model(self, tmp_path):
        return tiny.vit(tmp_path / "vit")

    @pytest.fixture
    def folders(self, tmp_path):
        for part in ("train", "test"):
            for k, name in enumerate(("cat", "dog")):
                (tmp_path / "pets" / part / name).mkdir(parents=True)
                for i in range(2):
                    tiny.picture(10 * k + i).save(tmp_path / "pets" / part / name / f"{i}.png")
        return tmp_path / "pets"

    @LORA_AND_LOCA
    def test_folders_of_images(self, model, folders, tmp_path, method):
        budget = ("--components", 10) if method == "loca" else ()
        call("vit", "--task", "OxfordPets", "--method", method, *budget, "--seed", 2020,
             "--model", model, "--data", folders, "--batch-size", 2, "--max-steps", 3,
             "--out", tmp_path / "out")  # fmt: skip
        (row,) = rows(tmp_path / "out")
        assert row["metric"] == "accuracy"
        assert row["value"] in (0, 25, 50, 75, 100)
        assert row["trained"] == (2 * 16 * 32 if method == "lora" else 2 * 10)
        assert row["head"] == 37 * 17

    def test_parquet_as_the_hub_has_it(self, model, tmp_path):
        data = tmp_path / "cifar"
        data.mkdir()
        features = datasets.Features(
            img=datasets.Image(), fine_label=datasets.ClassLabel(num_classes=100)
        )
        pictures = {"img": [tiny.picture(i) for i in range(4)], "fine_label": [0, 1, 2, 99]}
        for part in ("train", "test"):
            part_data = datasets.Dataset.from_dict(pictures, features=features)
            part_data.to_parquet(data / f"{part}-00000-of-00001.parquet")
        call("vit", "--task", "CIFAR100", "--components", 10, "--seed", 2020, "--model", model,
             "--data", data, "--max-steps", 1, "--out", tmp_path / "out")  # fmt: skip
        assert rows(tmp_path / "out")[0]["head"] == 100 * 17


class TestDiffusion:
    @LORA_AND_LOCA
    def test_trains_and_edits(self, tmp_path, method):
        data = tmp_path / "cartoons"
        data.mkdir()
        datasets.Dataset.from_dict(
            {
                "original_image": [tiny.picture(i) for i in range(4)],
                "edit_prompt": ["make it a cartoon"] * 4,
                "cartoonized_image": [tiny.picture(i + 9) for i in range(4)],
            },
            features=datasets.Features(
                original_image=datasets.Image(),
                edit_prompt=datasets.Value("string"),
                cartoonized_image=datasets.Image(),
            ),
        ).to_parquet(data / "train.parquet")
        budget = ("--components", 10) if method == "loca" else ("--r", 2, "--lr", "1e-3")
        command = ("diffusion", "--method", method, *budget, "--model",
                   tiny.pix2pix(tmp_path / "sd"), "--data", data, "--resolution", 16,
                   "--samples", 1, "--max-steps", 2, "--out", tmp_path / "out")  # fmt: skip
        call(*command)
        (row,) = rows(tmp_path / "out")
        assert row["metric"] == "loss"
        assert 0 < row["value"] < 100
        assert len(list((tmp_path / "out").glob("*/0-*.png"))) == 2
        assert "(stored)" in call(*command)


def test_list_names_everything():
    output = call("list")
    for name in ("roberta-base", "STS-B", "gpt2-medium", "Alpaca", "RESISC45", "cartoons",
                 "no gradient clip", "GPT-4 as the judge", "6, 66, 666", "not run"):  # fmt: skip
        assert name in output


@pytest.mark.parametrize("command", ["glue", "e2e", "instruct", "vit", "diffusion", "list"])
def test_help_has_an_example(command):
    assert "Example: python -m experiments.paper_scale" in call(command, "--help")
