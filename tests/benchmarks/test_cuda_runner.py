"""Checks whose processes raise, die, hang or lose the device, played by small scripts."""

import json
import os
import signal
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import pytest

from benchmarks.cuda import __main__ as command
from benchmarks.cuda import runner
from benchmarks.cuda.runner import CHECKS, Check, allowance, conduct

CHECK = Check("transforms", "Transforms", 10)
SAYS = """
import json, os, signal, sys
done = json.load(sys.stdin)
def say(**line):
    print(json.dumps(line), flush=True)
def start(key, limit=600.0):
    if key in done:
        return False
    say(starts=key, limit=limit)
    return True
def finish(key, **facts):
    say(row={"key": key, "final": True, **facts})
"""


@pytest.fixture
def run(tmp_path):
    def conducted(script, seconds=600.0):
        return conduct(
            CHECK, lambda _: [sys.executable, "-c", SAYS + script], seconds, tmp_path / "log"
        )

    return conducted


def test_rows_are_heard_as_they_come_and_completed(tmp_path):
    script = """
say(row={"key": "a", "peak_mib": 1.0})
finish("a", ms=2.0)
say(note="n")
say(note="n")
"""
    heard = []
    outcome = conduct(
        CHECK,
        lambda _: [sys.executable, "-c", SAYS + script],
        600.0,
        tmp_path / "log",
        lambda so_far: heard.append(json.loads(json.dumps(so_far.rows))),
    )
    assert heard[0] == {"a": {"key": "a", "peak_mib": 1.0}}
    assert outcome.rows == {"a": {"key": "a", "peak_mib": 1.0, "ms": 2.0, "final": True}}
    assert outcome.notes == ["n"]


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the process died of SIGSEGV"),
        ("os._exit(7)", "the process ended with exit code 7"),
        ("start('b', limit=0.0); signal.pause()", "no output for 0 s: stopped"),
    ],
)
def test_a_row_that_takes_its_process_with_it_is_a_result_and_the_rest_goes_on(run, end, said):
    script = f"""
if start("a"): finish("a")
if start("b"): {end}
if start("c"): finish("c")
"""
    outcome = run(script)
    assert outcome.done == ["a", "b", "c"]
    assert outcome.rows["b"]["error"] == said
    assert "error" not in outcome.rows["c"]


def test_what_a_row_had_before_its_process_died_is_kept(run):
    outcome = run("""
if start("a"):
    say(row={"key": "a", "s": 1.0})
    start("a", limit=0.0)
    signal.pause()
""")
    assert outcome.rows["a"] == {
        "key": "a", "s": 1.0, "error": "no output for 0 s: stopped", "final": True
    }  # fmt: skip


def test_a_lost_device_is_left_to_the_next_process(run):
    outcome = run("""
if start("a"):
    finish("a", error="CUDA error: an illegal memory access was encountered")
    sys.exit(3)
if start("b"): finish("b")
""")
    assert outcome.done == ["a", "b"]
    assert outcome.notes == []


def test_what_was_found_is_kept_when_the_time_is_over(tmp_path, monkeypatch):
    """The time is over when the row under way is first heard of."""
    script = """
if start("a"): finish("a")
start("b")
say(row={"key": "c", "peak_mib": 1.0})
signal.pause()
"""
    passed = [0.0]
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: passed[0]))

    def changed(outcome):
        if "c" in outcome.rows:
            passed[0] = 1e6

    outcome = conduct(
        CHECK, lambda _: [sys.executable, "-c", SAYS + script], 600.0, tmp_path / "log", changed
    )
    assert outcome.rows["a"]["final"]
    assert outcome.rows["b"] == {"key": "b", "error": "time limit reached", "final": False}
    assert outcome.rows["c"] == {"key": "c", "peak_mib": 1.0}
    assert outcome.notes == ["stopped after 1000000 s: time limit reached"]


def test_a_check_that_gets_nowhere_is_not_begun_again(run, tmp_path):
    outcome = run("print('Traceback', file=sys.stderr); sys.exit(1)")
    assert outcome.rows == {}
    assert outcome.notes == ["the process ended with exit code 1; see log"]
    assert "Traceback" in (tmp_path / "log").read_text()


def test_what_is_no_line_goes_to_the_log(run, tmp_path):
    outcome = run("print('Loading weights'); print('3'); finish('a')")
    assert outcome.done == ["a"]
    assert (tmp_path / "log").read_text() == "Loading weights\n3\n"


def test_a_check_has_what_those_after_it_do_not_take_and_no_less_than_it_takes():
    first, *after = CHECKS
    needed = sum(check.seconds for check in after)
    assert allowance(first, 1000.0, after) == 1000.0 - needed
    assert allowance(first, needed, after) == first.seconds
    assert allowance(first, 7.0, after) == 7.0


# --- the whole ---

MACHINE = {
    "key": "device", "final": True, "card": "A card", "driver": "580.1", "cuda": "13.0",
    "python": "3.12.3", "libraries": {"torch": "2.11.0", "cupy": None},
    "missing": {"cupy": "CuPy's DCT beside dct2", "pytest": "the tests"},
    "environment": {
        "date": "2026-01-31", "commit": "0123456789ab", "cpu": "A | processor",
        "cpu_cores": {"logical": 16, "physical": None}, "packages": {"loca-theory": "1.2.3"},
    },
}  # fmt: skip


@pytest.fixture
def whole(monkeypatch, tmp_path, capsys):
    """Run the command with scripts for checks."""

    def run(scripts, *arguments):
        def command_of(check, out, *, rehearse):
            script = scripts.get(check.name, "")
            return lambda _: [sys.executable, "-c", SAYS + script]

        monkeypatch.setattr(command, "command_of", command_of)
        code = command.main(["--out", str(tmp_path / "out"), *arguments])
        return code, capsys.readouterr(), tmp_path / "out"

    return run


def test_the_table_names_the_card_what_is_missing_what_failed_and_the_targets(whole):
    scripts = {
        "device": f"say(row={MACHINE})",
        "transforms": """
verdict = {"target": "time over rfft2's at most 2", "found": 2.5, "reached": False}
finish("dct2 | ours", load="dct2", rival="ours", ms=1.5, verdicts=[verdict])
finish("dct2 | CuPy", load="dct2", rival="CuPy", error="out of memory: it needed 2.00 GiB more")
""",
        "layers": "sys.exit(1)",
    }
    code, said, out = whole(scripts)
    assert code == 1
    assert said.err.startswith("no results from: One layer, forward and backward; Training")
    table = (out / "cuda.md").read_text()
    assert table in said.out
    assert table.startswith("# A card\n")
    for line in (
        "- date 2026-01-31",
        "- loca-theory 1.2.3",
        "- commit 0123456789ab",
        "- minutes given 9",
        "- processor A \\| processor",
        "- logical cores 16",
        "- driver 580.1",
        "- torch 2.11.0",
        "- cupy is missing; not run: CuPy's DCT beside dct2",
        "## Targets: 0 of 1 reached",
        "| dct2, ours | time over rfft2's at most 2 | 2.5 | **not reached** |",
        "| CuPy |  | out of memory: it needed 2.00 GiB more |",
        "- the process ended with exit code 1; see layers.log",
        "- Tests marked `cuda`: pytest missing",
    ):
        assert line in table.splitlines(), line
    stored = json.loads((out / "transforms.json").read_text())
    assert stored["machine"]["card"] == "A card"
    assert [row["key"] for row in stored["rows"]] == ["dct2 | ours", "dct2 | CuPy"]


ALL_FIND = {
    "device": f"say(row={MACHINE})",
    **{check.name: f"print('heard', file=sys.stderr); finish({check.name!r})" for check in CHECKS},
}


def test_logs_and_traces_are_put_into_one_file(whole, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "transforms.log").write_text("of a run that measured nothing")
    (tmp_path / "out" / "mine.log").touch()
    trace = f"open({str(tmp_path / 'out' / 'trace-a.json')!r}, 'w').write('[]')"
    code, said, out = whole(ALL_FIND | {"layers": f"{trace}; {ALL_FIND['layers']}"})
    assert (code, said.err) == (0, "")
    ran = [check.name for check in CHECKS if "pytest" not in check.needs]
    names = {path.name for path in out.iterdir()}
    assert names == {"cuda.md", "details.zip", "mine.log", *(f"{name}.json" for name in ran)}
    with zipfile.ZipFile(out / "details.zip") as archive:
        assert set(archive.namelist()) == {"trace-a.json", *(f"{name}.log" for name in ran)}
        assert archive.read("transforms.log") == b"heard\n"


def test_what_was_measured_is_not_overwritten(whole):
    whole(ALL_FIND)
    code, said, out = whole({})
    assert code == 1
    assert said.err == f"{out} holds the results of an earlier run; name another folder\n"
    assert (out / "transforms.json").exists()


def test_results_go_into_a_folder(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert command.main(["--out", str(tmp_path / "file")]) == 1
    assert "--out must be a folder, and" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_end_of_the_terminal_keeps_what_there_is(whole, monkeypatch, number):
    # Whoever runs the tests under nohup has one of them ignored.
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {n: signal.signal(n, signal.SIG_DFL) for n in numbers}
    monkeypatch.setattr(command, "write_json", lambda *_: os.kill(os.getpid(), number))
    try:
        code, said, out = whole(ALL_FIND)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert code == 130
    assert "interrupted; the results so far are in" in said.err
    assert (out / "details.zip").exists()


def test_a_rehearsal_judges_nothing(whole):
    found = "finish('a', verdicts=[{'target': 't', 'found': 1.0, 'reached': False}])"
    scripts = ALL_FIND | {"device": f"say(row={MACHINE | {'rehearsal': True}})"}
    _, said, _ = whole(scripts | {"layers": found})
    assert "Targets" not in said.out


def test_a_missing_torch_is_named():
    script = "import runpy, sys; sys.modules['torch'] = None; "
    script += "runpy.run_module('benchmarks.cuda', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=runner.ROOT, check=False
    )
    said = "nothing was measured: torch is missing, but the package needs it\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_without_a_card_one_line_says_so(whole):
    code, said, out = whole(
        {"device": "say(row={'key': 'device', 'final': True, 'refused': 'no CUDA: why'})"}
    )
    assert (code, said.out, said.err) == (1, "", "nothing was measured: no CUDA: why\n")
    assert not (out / "cuda.md").exists()


def test_a_card_that_does_not_answer_is_one_line_too(whole):
    code, said, _ = whole({"device": "start('device'); os._exit(1)"})
    assert code == 1
    assert said.err == "nothing was measured: the process ended with exit code 1\n"


def test_a_check_for_which_there_is_no_time_is_left_out_and_named(whole):
    code, _, out = whole({"device": f"say(row={MACHINE})"}, "--minutes", "0.2")
    assert code == 0
    table = (out / "cuda.md").read_text()
    assert "- Cosine transforms: no time: " in table


def test_an_interruption_stops_the_process_and_keeps_what_there_is(whole, monkeypatch):
    monkeypatch.setattr(command, "write_json", _interrupted)
    code, said, _ = whole({"device": f"say(row={MACHINE})", "transforms": "finish('a')"})
    assert code == 130
    assert "interrupted; the results so far are in" in said.err


def _interrupted(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("minutes", ["-1", "nan", "inf", "2000"])
def test_the_minutes_are_a_number_of_minutes(minutes, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main(["--out", str(tmp_path), "--minutes", minutes])
    assert "--minutes must be from 0 to 1440" in capsys.readouterr().err


@pytest.mark.deep
def test_the_rehearsal_runs_every_check(tmp_path, capsys):
    assert command.main(["--out", str(tmp_path), "--rehearse"]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"cuda.md", "details.zip", *(f"{check.name}.json" for check in CHECKS)}
    with zipfile.ZipFile(tmp_path / "details.zip") as archive:
        assert {"trace-dct2.json", "trace-layer-16-float32.json"} <= set(archive.namelist())
    for check in CHECKS:
        stored = json.loads((tmp_path / f"{check.name}.json").read_text())
        assert stored["rows"], check
        assert not [row for row in stored["rows"] if "error" in row], check
