"""The entry point: exit codes, and one line for everything that can be expected to fail."""

import errno
import os
import re
import subprocess
from importlib.metadata import entry_points

import click
import pytest

import loca_theory
from loca_theory import InvalidArgumentError, LocaTheoryError, ResourceError
from loca_theory.cli import main
from loca_theory.cli.command import Command
from loca_theory.cli.main import group
from loca_theory.cli.options import Folder
from loca_theory.sweeps.runner import SweepInterruptedError

ANSWER = ("simulate", "--K", 16, "--r", 1, "--engine", "exact")
COMMANDS = group.list_commands(click.Context(group))


def test_the_installed_script_is_this_one():
    (script,) = entry_points(group="console_scripts", name="loca-theory")
    assert script.load() is main


def test_a_shell_completes_commands(cli, monkeypatch):
    """What bash tells of the line "loca-theory sim": all words, and which is completed."""
    monkeypatch.setenv("COMP_WORDS", "loca-theory sim")
    monkeypatch.setenv("COMP_CWORD", "1")
    monkeypatch.setenv("_LOCA_THEORY_COMPLETE", "bash_complete")
    done = cli()
    assert (done.code, done.err) == (0, "")
    assert "simulate" in done.out
    assert "correlate" not in done.out


def test_version_and_help(cli):
    """Without a command, help is a usage error."""
    assert cli("--version") == (0, f"loca-theory, version {loca_theory.__version__}\n", "")
    code, shown, err = cli("--help")
    assert (code, err) == (0, "")
    assert (0, shown, "") == cli("-h")
    assert cli() == (2, "", shown)
    assert re.search(r"^    loca-theory simulate --K 768 --r 8\.\.32$", shown, re.MULTILINE)
    for name in COMMANDS:
        assert re.search(rf"^  {name}  +\S", shown, re.MULTILINE)


@pytest.fixture
def failing(cli, monkeypatch):
    """Run a command that fails in a given way."""

    def run(error, *options):
        def fail(*_, **__):
            raise error

        monkeypatch.setattr("loca_theory.expressivity.simulation.Simulation.run", fail)
        return cli(*ANSWER, *options)

    return run


FAILURES = {
    "a bad value": (InvalidArgumentError("r is odd"), 2, "r is odd"),
    "a lack": (ResourceError("no memory"), 1, "no memory"),
    "another of the package": (LocaTheoryError("odd"), 1, "odd"),
    "several lines": (ResourceError("first\n  second\nthird"), 1, "first second third"),
    "a sweep interrupted": (SweepInterruptedError("3 of 8 points"), 130, "3 of 8 points"),
    "Ctrl-C": (KeyboardInterrupt(), 130, "interrupted"),
    "no memory": (
        MemoryError("74 GiB"),
        1,
        "the memory does not suffice: 74 GiB; choose a smaller matrix or fewer of them",
    ),
    "an aborted prompt": (click.Abort(), 130, "interrupted"),
    "the system": (
        OSError(errno.ENOSPC, "No space left on device"),
        1,
        "[Errno 28] No space left on device",
    ),
}


@pytest.mark.parametrize(("error", "code", "message"), FAILURES.values(), ids=FAILURES.keys())
def test_an_expected_failure_is_one_line_and_debug_adds_the_traceback(
    failing, error, code, message
):
    line = f"loca-theory: {message}\n"
    assert failing(error) == (code, "", line)
    done = failing(error, "--debug")
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("Traceback (most recent call last):")
    assert type(error).__name__ in done.err
    assert done.err.endswith(f"\n{line}")


@click.command(cls=Command)
@click.option("--sampler")
@click.option("--out", type=Folder())
def alone(sampler, out):
    raise InvalidArgumentError(sampler)


def test_an_argument_of_the_library_is_a_flag_of_the_command(capsys):
    with pytest.raises(SystemExit, match=r"^2$"):
        alone.main(["--sampler", 'use sampler="dense", size=3, folder="..."'], "program")
    assert capsys.readouterr().err == "program: use --sampler dense, size=3, --out PATH\n"


def test_a_mistake_of_the_program_is_not_dressed_up(failing):
    with pytest.raises(ZeroDivisionError, match="a bug"):
        failing(ZeroDivisionError("a bug"))


def reader_gone(cwd):
    """As a pager that was left."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def read_only(cwd):
    """As a full disk refuses; here the file is open for reading alone."""
    (cwd / "out.txt").touch()
    return os.open(cwd / "out.txt", os.O_RDONLY)


@pytest.mark.parametrize("output_format", ["table", "json"])  # in parts, and at the end
@pytest.mark.parametrize(
    ("open_stdout", "said"),
    [
        (reader_gone, ""),
        (read_only, f"loca-theory: [Errno {errno.EBADF}] {os.strerror(errno.EBADF)}\n"),
    ],
)
def test_a_stdout_that_takes_nothing_is_one_line_or_less(
    cwd, command, open_stdout, said, output_format
):
    stdout = open_stdout(cwd)
    try:
        done = subprocess.run(
            [*command, *map(str, ANSWER), "--format", output_format],
            stdout=stdout,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            check=False,
        )
    finally:
        os.close(stdout)
    assert (done.returncode, done.stderr) == (1, said)


def test_an_output_that_knows_no_mathematical_signs_gets_question_marks(process):
    done = process(*ANSWER, PYTHONIOENCODING="ascii")
    assert (done.code, done.err) == (0, "")
    assert "\n16 ? 16\n" in done.out


def test_a_note_is_one_line_whatever_it_names(cli):
    done = cli("methods", "LoRA", "--out", "a\nb")
    said = "note: results are in a b: methods.parquet, methods.manifest.json\n"
    assert (done.code, done.err) == (0, said)
