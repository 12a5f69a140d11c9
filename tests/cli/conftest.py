"""Running the command: inside this process for speed, in one of its own where that matters."""

import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from loca_theory.cli import main

# The installed script, whatever the folder it is installed in.
SCRIPT = "import sys; sys.argv[0] = 'loca-theory'; from loca_theory.cli import main; main()"


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The folder where the user stands."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def cli(here, monkeypatch, capfd):
    """Run ``loca-theory ARGUMENTS`` through its entry point."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["/usr/bin/loca-theory", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit, match=r".*") as ended:
            main()
        out, err = capfd.readouterr()
        return Outcome(ended.value.code, out, err)

    return run


@pytest.fixture
def command():
    """The command as a list for a process of its own, without arguments."""
    return [sys.executable, "-c", SCRIPT]


@pytest.fixture
def process(here, command):
    """Run ``loca-theory ARGUMENTS`` in a process of its own."""

    def run(*arguments, **environment):
        done = subprocess.run(
            [*command, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, **environment},
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run
