"""The commands: tables and figures, and errors of one line."""

import dataclasses
import importlib
import inspect
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
import torch
from click.testing import CliRunner

from experiments import everything
from experiments.finetuning.session import configurations, tasks_of
from experiments.finetuning.settings import task_names
from loca_theory.claims import load_ledger

COMMANDS = ("study", "complexity", "everything")


def invoke(name, *arguments):
    """Run a command; ``study NAME`` is two words."""
    name, *subcommand = name.split()
    command = importlib.import_module(f"experiments.{name}").main
    return CliRunner().invoke(command, [*subcommand, *(str(argument) for argument in arguments)])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name):
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert "--quick" in result.output
    assert "Example:" in result.output


MADE = sorted({(claim.command, claim.tables) for claim in load_ledger().claims if claim.tables})


@pytest.mark.parametrize(("command", "tables"), MADE, ids=str)
def test_a_claims_command_writes_its_tables_where_they_are_looked_for(command, tables):
    """To its last --out or, without one, below the folder that verify searches."""
    last = command.rpartition(" && ")[2].split()
    is_analysis = last[:2] == ["loca-theory", "analyze"]
    assert {table.startswith("analyze-") for table in tables} == {is_analysis}
    if "--out" not in last:
        assert not is_analysis
        is_package = find_spec(last[2]).submodule_search_locations is not None
        module = importlib.import_module(f"{last[2]}.__main__" if is_package else last[2])
        (option,) = (option for option in module.main.params if option.name == "out")
        assert Path(option.default).parts[0] == "loca-results"


@pytest.mark.parametrize(
    ("name", "arguments", "code", "error"),
    [
        ("comparison", ["--task", "nope"], 2, "unknown task 'nope'; choose from text, digits"),
        ("patterns", ["--task", "nope"], 2, "unknown task 'nope'; choose from text, digits"),
        ("comparison", ["--methods", "lorra"], 2, "unknown method 'lorra'; did you mean lora"),
        ("comparison", ["--methods", "adapters"], 2, "the method bottleneck adapters is not run:"),
        (
            "comparison",
            ["--task", "digits", "--methods", "adalora"],
            2,
            "adalora cannot be run on digits; choose another method or task",
        ),
        ("comparison", ["--full"], 2, "--quick and --full exclude each other"),
        ("comparison", ["--jobs", 0], 2, "--jobs must be a positive number, or -1 for one per"),
        ("comparison", ["--out", ""], 2, "Invalid value for '--out': the name of the folder is"),
        ("comparison", ["--seeds", 1], 2, "Invalid value for '--seeds': 1 is not in the range"),
        ("comparison", ["--device", "cuda"], 1, "no CUDA device is available to torch"),
        ("comparison", ["--r", 0], 2, "Invalid value for '--r': 0 is not in the range"),
        ("budgets", ["--methods", "lora"], 2, "budgets has methods and budgets of its own; "),
        ("many_tasks", ["--task", "digits"], 2, "many_tasks has tasks of its own; leave out"),
    ],
)
def test_errors_are_one_line(name, arguments, code, error, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = invoke(f"study {name}", "--quick", "--out", tmp_path, *arguments)
    assert result.exit_code == code
    assert re.fullmatch(rf"main: {re.escape(error)}[^\n]*\n", result.output)


def test_which_methods_and_tasks_are_run(session):
    """Methods for other tasks are left out; without a task there are all small ones."""
    names = ("lora", "adalora", "full")
    tasks = ("digits", "text")
    methods_run = {t: [run.method for run in configurations(session, t, names)] for t in tasks}
    assert methods_run == {"digits": ["lora", "full"], "text": list(names)}
    assert tasks_of(session, "text") == ["text"]
    assert tasks_of(session, None) == ["digits", "docstrings", "generation"]  # it is a quick one
    full_session = dataclasses.replace(session, quick=False)
    assert tasks_of(full_session, None) == [name for name in task_names() if name != "text"]


def test_everything_runs_one_command_after_the_other(session, monkeypatch):
    seen = []
    for name in {line.split()[0] for line in (*everything.MAIN, *everything.FURTHER)}:
        module = importlib.import_module(f"experiments.{name}")
        signature = inspect.signature(module.run_in)

        def record(*values, name=name, signature=signature):
            seen.append((name, signature.bind(*values)))

        monkeypatch.setattr(module, "run_in", record)
    everything.run_in(session)
    commands = [" ".join((name, *call.args[1:])) for name, call in seen]
    assert commands == [*everything.MAIN, *everything.FURTHER]
    assert all(call.args[0] is session for _, call in seen)


def test_a_missing_package_is_one_line(session, monkeypatch):
    # None in its place makes an import fail.
    monkeypatch.setitem(sys.modules, "peft", None)
    result = invoke("study comparison", "--quick", "--out", session.out, "--task", "digits")
    assert result.exit_code == 1
    assert "pip install 'loca-theory[adapters]'" in result.output


def test_a_quick_comparison_leaves_tables_of_real_ones_alone(session):
    real = session.out / "comparison-digits-lora-full.parquet"
    real.write_text("real")
    arguments = ("--quick", "--out", session.out, "--task", "digits", "-j", 1, "--device", "cpu")
    result = invoke("study comparison", *arguments, "--methods", "lora,full")
    assert result.exit_code == 0, result.output
    assert "differences are from LoRA" in result.output
    assert real.read_text() == "real"
    names = {path.name for path in (session.out / "quick").iterdir()}
    for table in ("", "-summary", "-curves"):
        assert f"comparison-digits-lora-full{table}.parquet" in names
    real.unlink()
    result = invoke("study comparison", *arguments, "--methods", "lora", "--r", 100)
    assert result.exit_code == 2
    assert "choose 1 to 64" in result.output


def test_complexity_keeps_the_rows_of_forms_that_are_gone(tmp_path, monkeypatch):
    rows = [
        {"rival": rival, "steps_per_s": 1.0, "of_lora": 1.0, "peak_mib": 1.0}
        for rival in ("LoRA", "LoCA", "LoCA sparse")
    ]
    stored_rivals = []
    monkeypatch.setattr("benchmarks.layer.measure", lambda *_: rows[: 2 if stored_rivals else 3])
    for _ in range(2):
        result = invoke("complexity", "--quick", "--out", tmp_path)
        assert result.exit_code == 0, result.output
        table = pd.read_parquet(tmp_path / "quick" / "complexity.parquet")
        stored_rivals.append(table["rival"].tolist())
    assert stored_rivals == [["LoRA", "LoCA", "LoCA sparse"]] * 2
