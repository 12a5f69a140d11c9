"""The commands: tables and figures, and errors of one line."""

import dataclasses
import importlib
import re
import sys

import pytest
import torch
from click.testing import CliRunner

from experiments import everything, study
from experiments.finetuning.configurations import configurations, tasks_of
from experiments.finetuning.run_tables import read_runs
from experiments.finetuning.settings import task_names
from experiments.finetuning.verdicts.design_file import MANY_TASKS, read_design

COMMANDS = ("study", "prediction", "low_rank", "complexity", "everything")


def invoke(name, *arguments):
    """Run a command; ``study NAME`` is two words."""
    name, *more = name.split()
    command = importlib.import_module(f"experiments.{name}").main
    return CliRunner().invoke(command, [*more, *(str(one) for one in arguments)])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name):
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert "--quick" in result.output
    assert "Example:" in result.output


@pytest.mark.parametrize(
    ("name", "arguments", "code", "error"),
    [
        (
            "study comparison",
            ["--task", "nope"],
            2,
            "unknown task 'nope'; choose from text, digits",
        ),
        ("study budgets", ["--task", "nope"], 2, "unknown task 'nope'; choose from text, digits"),
        ("study patterns", ["--task", "nope"], 2, "unknown task 'nope'; choose from text, digits"),
        (
            "study comparison",
            ["--methods", "lora,lorra"],
            2,
            "unknown method 'lorra'; did you mean lora",
        ),
        (
            "study comparison",
            ["--methods", "adapters"],
            2,
            "bottleneck adapters are not run: PEFT has",
        ),
        (
            "study comparison",
            ["--task", "digits", "--methods", "adalora"],
            2,
            "adalora cannot be run on digits; choose another method or task",
        ),
        ("study comparison", ["--full"], 2, "--quick and --full exclude each other"),
        (
            "study comparison",
            ["--jobs", 0],
            2,
            "--jobs must be a positive number, or -1 for one per core, not 0",
        ),
        (
            "study comparison",
            ["--out", ""],
            2,
            "Invalid value for '--out': the name of the folder is",
        ),
        (
            "study comparison",
            ["--seeds", 1],
            2,
            "Invalid value for '--seeds': 1 is not in the range",
        ),
        (
            "study comparison",
            ["--methods", "lora", "--device", "cuda"],
            1,
            "no CUDA device is available to torch",
        ),
        ("study budgets", ["--methods", "lora"], 2, "budgets has methods and budgets of its own; "),
        ("study many_tasks", ["--task", "digits"], 2, "many_tasks has tasks of its own; leave out"),
        ("study comparison", ["--r", 0], 2, "Invalid value for '--r': 0 is not in the range"),
    ],
)
def test_errors_are_one_line(name, arguments, code, error, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = invoke(name, "--quick", "--out", tmp_path, *arguments)
    assert result.exit_code == code
    assert re.fullmatch(rf"main: {re.escape(error)}[^\n]*\n", result.output)


def test_a_budget_that_cannot_be_expressed_is_one_line(session):
    result = invoke(
        "study comparison",
        "--quick",
        "--out",
        session.out,
        "--task",
        "digits",
        "--methods",
        "lora",
        "--r",
        100,
        "-j",
        1,
        "--device",
        "cpu",
    )
    assert result.exit_code == 2
    assert "choose 1 to 64" in result.output


def test_methods_for_other_tasks_are_left_out_with_a_note(session):
    loud = dataclasses.replace(session, quiet=False)
    names = ("lora", "adalora", "full")
    kept = {task: [one.method for one in configurations(loud, task, names)]
            for task in ("digits", "text")}  # fmt: skip
    assert kept == {"digits": ["lora", "full"], "text": list(names)}


def test_without_a_task_there_are_all_small_ones(session):
    assert tasks_of(session, "text") == ["text"]
    assert tasks_of(session, None) == ["digits", "docstrings", "generation"]  # it is a quick one
    whole = dataclasses.replace(session, quick=False)
    assert tasks_of(whole, None) == [name for name in task_names() if name != "text"]


def test_everything_runs_commands_with_options_that_they_have(session):
    for line in (*everything.MAIN, *everything.FURTHER):
        name, *words = line.split()
        command = importlib.import_module(f"experiments.{name}").main
        assert command.make_context(name, [*words, *session.options()]).params["jobs"] == 1


def test_a_missing_package_is_one_line(session, monkeypatch):
    # None in its place makes an import fail.
    monkeypatch.setitem(sys.modules, "peft", None)
    result = invoke("study comparison", "--quick", "--out", session.out, "--task", "digits")
    assert result.exit_code == 1
    assert "pip install 'loca-theory[adapters]'" in result.output


def test_a_quick_comparison_leaves_tables_of_real_ones_alone(session):
    real = session.out / "comparison-digits-lora-full.parquet"
    real.write_text("real")
    arguments = (
        "--quick",
        "--out",
        session.out,
        "--task",
        "digits",
        "--methods",
        "lora,full",
        "-j",
        1,
        "--device",
        "cpu",
    )
    result = invoke("study comparison", *arguments)
    assert result.exit_code == 0, result.output
    assert "differences are from LoRA" in result.output
    assert real.read_text() == "real"
    names = {path.name for path in (session.out / "quick").iterdir()}
    for table in ("", "-summary", "-curves"):
        assert f"comparison-digits-lora-full{table}.parquet" in names
    real.unlink()


@pytest.mark.deep
def test_the_other_commands_run(session):
    """Each makes its tables and figures, of runs that the ones before have made."""
    given = ("--quick", "--out", session.out, "-j", 1, "--device", "cpu", "-q")
    figures = {
        "study ablation": None,
        "study budgets": "budget-digits",
        "study sensitivity": "parameter_sen-digits",
        "study patterns": "visualization_W-digits",
        "prediction": "prediction-digits",
    }
    for name, figure in figures.items():
        result = invoke(name, *given, "--task", "digits")
        assert result.exit_code == 0, (name, result.output)
        if figure:
            assert (session.out / "quick" / f"{figure}.pdf").stat().st_size > 1000


@pytest.mark.deep
def test_many_tasks_are_compared(session, monkeypatch):
    few = dataclasses.replace(read_design(MANY_TASKS), tasks=("small-digits-1", "small-digits-2"))
    monkeypatch.setattr(study, "read_design", lambda _: few)
    given = ("--quick", "--out", session.out, "-j", 1, "--device", "cpu", "-q")
    result = invoke("study many_tasks", *given)
    assert result.exit_code == 0, result.output
    runs = read_runs(session.out / "quick")
    runs = runs[runs["task"].isin(few.tasks)]
    assert set(runs["task"]) == set(few.tasks)
    assert set(runs["method"]) == {"loca", "loca-v1", "loca-reselect", "lora", "fourierft"}


def test_complexity_stores_its_table(tmp_path, monkeypatch):
    row = {"rival": "LoRA", "steps_per_s": 1.0, "of_lora": 1.0, "peak_mib": 1.0}
    monkeypatch.setattr("benchmarks.layer.measure", lambda *_: [row])
    result = invoke("complexity", "--quick", "--out", tmp_path)
    assert result.exit_code == 0, result.output
