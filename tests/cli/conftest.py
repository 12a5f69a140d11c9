"""Running the command: inside this process for speed, in one of its own where that matters."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import save_file

from loca_theory.cli import main

# The installed script, whatever the folder it is installed in.
SCRIPT = "import sys; sys.argv[0] = 'loca-theory'; from loca_theory.cli import main; main()"


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def cwd(tmp_path, monkeypatch):
    """The folder where the user stands."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def cli(cwd, monkeypatch, capfd):
    """Run ``loca-theory ARGUMENTS`` through its entry point."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["/usr/bin/loca-theory", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit, match=r"^(0|1|2|3|4|130)$") as ended:
            main()
        out, err = capfd.readouterr()
        return Outcome(ended.value.code, out, err)

    return run


@pytest.fixture
def command():
    """The command as a list for a process of its own, without arguments."""
    return [sys.executable, "-c", SCRIPT]


@pytest.fixture
def process(cwd, command):
    """Run ``loca-theory ARGUMENTS`` in a process of its own."""

    def run(*arguments, **environment):
        done = subprocess.run(
            [*command, *map(str, arguments)],
            capture_output=True,
            encoding="utf-8",
            check=False,
            env={**os.environ, **environment},
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def write_pair(cwd):
    """Write a base and its fine-tune: matrices that change by a spike and noise, and a vector."""

    def write(names, shape=(48, 40), vector="norm.weight", damaged=None):
        source = torch.Generator().manual_seed(0)
        base = {name: torch.randn(shape, generator=source) for name in names}
        u, v = (torch.randn(size, generator=source) for size in shape)
        tuned = {
            name: weight + 0.01 * torch.outer(u, v) + 0.002 * torch.randn(shape, generator=source)
            for name, weight in base.items()
        }
        if damaged:
            tuned[damaged][0, 0] = torch.nan
        for name, content in (("base", base), ("tuned", tuned)):
            save_file(content | {vector: torch.ones(48)}, cwd / f"{name}.safetensors")
        return "base.safetensors", "tuned.safetensors"

    return write


OWN = """
from loca_theory.dependence import Structure
from loca_theory.expressivity import Method

class Own(Method):
    name, title = "own", "a tenth of the matrix"
    def approximate(self, matrix, budget, rng=None):
        return 0.1 * matrix

class OwnStructure(Structure):
    name, parameter = "own-structure", "rho"
    title = "a column that all columns have a part of"
    def bounds(self, p, q):
        return 0, 1
    def family(self, p, q, rng):
        z = rng.standard_normal((p, q))
        return lambda rho: z + rho * z[:, :1]
"""


@pytest.fixture
def own_module(cwd, monkeypatch):
    """A module in the current folder, where nothing but the command looks for it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (cwd / "own_of_this_folder.py").write_text(OWN)
    yield "own_of_this_folder:Own"
    sys.modules.pop("own_of_this_folder", None)


# Runs ``loca-theory ARGUMENTS --out FOLDER`` for each pair [N, FOLDER], in a process forked from
# one that has imported what takes long. The N-th time that the command is about to make, rename or
# open for writing a file in a folder of that name, its process group is killed; N = 0 spares it.
KILLED = """
import json, os, signal, sys
from loca_theory.cli import main
from loca_theory.cli.commands import simulate, verify
import matplotlib.backends.backend_agg, matplotlib.backends.backend_pdf, pandas
import loca_theory.plotting.results.simulation, loca_theory.plotting.pictures

outcomes = []
pairs, *arguments = sys.argv[1:]
for number, folder in json.loads(pairs):
    if not (child := os.fork()):
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        seen = 0

        def count(event, given):
            global seen
            changes = event in ("os.mkdir", "os.rename") or (event == "open" and given[1] != "r")
            if changes and folder in str(given[0]):
                seen += 1
                if seen == number:
                    os.killpg(0, signal.SIGKILL)

        sys.addaudithook(count)
        sys.argv = ["loca-theory", *arguments, "--out", folder]
        main()
    _, status = os.waitpid(child, 0)
    points = os.path.join(folder, "points")
    kept = sorted(os.listdir(points)) if os.path.isdir(points) else []
    outcomes.append((os.waitstatus_to_exitcode(status), kept))
print(json.dumps(outcomes))
"""


@pytest.fixture
def killed(cwd):
    """Run ``loca-theory ARGUMENTS --out FOLDER`` and kill it at the N-th change of a file there.

    A change of a file is an event; a time would be another one on each machine. Found are exit
    codes, negative for a signal; the finished points that each run left; what they said.
    """

    def run(pairs, *arguments):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, json.dumps(pairs), *map(str, arguments)],
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert done.returncode == 0, done.stderr
        codes, left = zip(*json.loads(done.stdout), strict=True)
        points = [{name for name in names if name.endswith(".json")} for names in left]
        return SimpleNamespace(codes=list(codes), points=points, err=done.stderr)

    return run
