"""The run on a card: parts that hang, die or fail, refusals, and a whole rehearsal on the CPU."""

import json
import re
import sys

import pytest
import torch
from click.testing import CliRunner

from benchmarks import _page, _record, cuda, layer
from benchmarks._measure import compare
from benchmarks._rivals import LayerCase


def python(script):
    return [sys.executable, "-c", script]


def raising(error):
    def call(*_, **__):
        raise error

    return call


# --- a part ---


@pytest.mark.parametrize(
    ("script", "seconds", "ending"),
    [
        ("print('fine')", 600, None),
        ("import sys; print('why'); sys.exit(7)", 600, "ended with exit code 7: why"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 600, "died of SIGKILL"),
        ("import signal; signal.pause()", 0, "stopped after 0 s"),
    ],
)
def test_a_part_is_ended_and_its_ending_said(tmp_path, script, seconds, ending):
    assert cuda.run(python(script), seconds, tmp_path / "log") == ending


# --- the whole run, with scripts for parts ---


@pytest.fixture
def run_parts(monkeypatch, tmp_path):
    """Run the command with scripts for the parts."""

    def run(scripts, *arguments):
        def command_of(part, out, *, rehearse):
            return python(f"out = {str(out)!r}\n" + scripts.get(part.name, ""))

        monkeypatch.setattr(cuda, "command_of", command_of)
        result = CliRunner().invoke(cuda.main, ["--out", str(tmp_path / "out"), *arguments])
        return result, tmp_path / "out"

    return run


@pytest.fixture
def card(monkeypatch):
    machine = {"card": "A card", "compute capability": "9.0", "cpu": "a processor " * 30}
    machine["packages"] = {"torch": "2.11.0"}
    monkeypatch.setattr(cuda, "_CARD", f"print({json.dumps(json.dumps(machine))})")


STORES = """
import json, pathlib
rows = [
    {"load": "dct2 1x4096x4096 float32", "rival": "dct2/idct2 (auto)", "times_floor": 2.5,
     "ms": 0.75, "bound_ms": 0.25, "bound_by": "bytes"},
    {"load": "dct2 24x768x768 float32", "rival": "dct2/idct2 (auto)", "times_floor": 2.5},
    {"load": "dct2 24x768x768 float32", "rival": "CuPy", "times_floor": 9.0},
    {"load": "dct2 24x768x768 float32", "rival": "torch-dct", "error": "out of memory"},
]
content = json.dumps({"dense": {"rows": rows}})
pathlib.Path(out, "transforms.json").write_text(content)
"""


def test_the_table_says_targets_errors_and_endings(run_parts, card):
    scripts = {
        "tests": "print('tests/a.py::test_b[x y] PASSED [ 50%]\\ntests/a.py::test_c FAILED')",
        "transforms": STORES,
        "layers": "import sys; sys.exit('no peft')",
    }
    result, out = run_parts(scripts)
    assert result.exit_code == 1
    assert result.stderr == "Error: layers ended with exit code 1: no peft\n"
    lines = (out / "cuda.md").read_text().splitlines()
    for line in (
        "# A card",
        "- torch: 2.11.0",
        "## Targets: 1 of 2 reached",
        (
            "| dct2 1x4096x4096 float32, dct2/idct2 (auto) | times_floor ≤ 2 | 2.5 "
            "| **not reached** | 0.75 ms; its bytes alone 0.25 |"
        ),
        "| dct2 24x768x768 float32, dct2/idct2 (auto) | times_floor ≤ 3 | 2.5 | reached |  |",
        "- tests/a.py::test_c FAILED",
        "- tests: 1 passed, 1 failed",
        "- transforms: 4 rows, 1 of them errors",
        "  - dct2 24x768x768 float32, torch-dct: out of memory",
        "- layers: 0 rows, 0 of them errors; ended with exit code 1: no peft",
        "- devices: 0 rows, 0 of them errors",
    ):
        assert line in lines, line


def test_a_part_without_time_is_named(run_parts, card):
    result, out = run_parts({}, "--minutes", "0.1")
    assert result.exit_code == 1
    assert re.search(
        r"- devices: 0 rows, 0 of them errors; not run: \d s", (out / "cuda.md").read_text()
    )


def test_an_interruption_keeps_what_there_is(run_parts, card, monkeypatch):
    def interrupted(*_, **__):
        yield "tests", None
        raise KeyboardInterrupt

    monkeypatch.setattr(cuda, "run_parts", interrupted)
    result, out = run_parts({})
    assert result.exit_code == 130
    assert "interrupted; the results so far are in" in result.stderr
    assert (out / "cuda.md").exists()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ('print(\'{"refused": "no CUDA: why"}\')', "no CUDA: why"),
        ("import os; os._exit(1)", "the card's process ended with exit code 1: no output"),
    ],
)
def test_a_card_that_cannot_be_used_is_one_line(run_parts, monkeypatch, script, reason):
    monkeypatch.setattr(cuda, "_CARD", script)
    result, out = run_parts({})
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"Error: nothing was measured: {reason}\n"
    assert not (out / "cuda.md").exists()


# --- the benchmarks ---


def test_a_rival_that_fails_costs_only_its_own_row():
    builds = {
        "a": lambda: (lambda: None, {"trained": 3}),
        "b": raising(torch.OutOfMemoryError("CUDA out of memory. 20 GiB\nmore")),
        "c": lambda: (raising(ValueError("wrong")), {}),
    }
    rows, times = compare(builds, device="cpu", rounds=2, tiny=True)
    assert list(times) == ["a"]
    assert rows["a"]["trained"] == 3
    assert rows["a"]["ms"] >= 0
    assert rows["b"]["error"] == "OutOfMemoryError: CUDA out of memory. 20 GiB"
    assert rows["c"]["error"] == "ValueError: wrong"


def test_results_are_stored_after_every_comparison(tmp_path):
    out = tmp_path / "out.json"
    out.write_text('{"other": {"rows": []}, "part": {"rows": [1]}}')
    record = _record.Record(out, ())
    record.add("part", "a", lambda: [{"ms": 1.23456}], load="a")
    record.add("part", "b", raising(ValueError("wrong")), load="b")
    stored = json.loads(out.read_text())
    assert set(stored) == {"other", "part"}
    assert stored["part"]["rows"] == [
        {"load": "a", "ms": 1.235},
        {"load": "b", "error": "ValueError: wrong"},
    ]


def test_rivals_have_as_many_parameters_as_they_can():
    names = ("LoRA", "C3A", "SHiRA", "LoCA")
    builds = layer._builds(LayerCase(768, 1000, 1, 8), names, "cpu")
    # C3A has pq/b with b a divisor of 768; SHiRA as many as a LoRA of a whole rank.
    counts = {name: build()[1]["trained"] for name, build in builds.items()}
    assert counts == {"LoRA": 2 * 768 * 8, "C3A": 768, "SHiRA": 1536, "LoCA": 1000}


@pytest.mark.deep
def test_the_rehearsal_runs_every_part(tmp_path):
    result = CliRunner().invoke(
        cuda.main, ["--out", str(tmp_path), "--rehearse", "--minutes", "99"]
    )
    assert result.exit_code == 0, result.output
    for part in cuda.PARTS:
        assert (tmp_path / f"{part.name}.log").exists()
        rows = _page.read_rows(tmp_path, part.name)
        assert bool(rows) == bool(part.arguments), part
        assert not [row for row in rows if "error" in row], part
