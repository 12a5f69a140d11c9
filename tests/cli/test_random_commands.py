"""Random command lines: the result, or one line of error; never a traceback or half a file.

Options come from the commands themselves, and values from their types, so that a new option is
tried as well. A line holds right values alone, and must succeed; or right values of options that
may exclude one another; or one wrong value.
"""

import csv
import io
import json
import os
import shlex
import shutil
import sys
from itertools import chain
from pathlib import Path

import click
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loca_theory import demo_pair
from loca_theory.cli.main import group
from loca_theory.cli.options import Folder
from loca_theory.cli.ranges import IntegerList, NumberList
from loca_theory.sweeps.files import TEMPORARY_SUFFIX

pytestmark = pytest.mark.filterwarnings("ignore")
COMMANDS = {
    name: group.get_command(click.Context(group), name)
    for name in group.list_commands(click.Context(group))
}
PAIR = [str(path) for path in demo_pair()]
FIGURES = str(Path(__file__).parents[2] / "figures")
SIMULATED = "--r 1 --draws 2 -j 1"
FAMILIES = ["ar1:0.3,blocks:2,spiked,scaled", "spiked:2,ar1,blocks,power-law"]
CORRELATED = f"{SIMULATED} --structures {FAMILIES[0]} --rho 0.2 --fraction 0.1 --exponent 1"
ANALYSED = "--r 1 -j 1"
EXTRACTED = "--include 1.attention -j 1"
SIZES = {"--r", "--components", "--energy", "--allocate"}
# An extraction has one size; no config.json says the model, so nothing can be checked.
UNFIT = SIZES | {"--check", "--inputs", "--requantise", "--demo"}
LIMITS = {"--floor", "--cap"}
STORED = f"--results '{FIGURES}' -j 1"
# Short runs that succeed: options, arguments, and the options that do not go with these.
BASES = {
    "simulate": [
        (f"--K 4 {SIMULATED}", [], {"--shape"}),
        (f"--shape 4x6 {SIMULATED}", [], {"--K"}),
    ],
    "correlate": [
        (f"--K 6 {CORRELATED}", [], {"--shape"}),
        (f"--shape 4x6 {CORRELATED}", [], {"--K"}),
    ],
    "toy": [("--problems 1 --steps 20 -j 1", [], set())],
    "analyze": [
        (ANALYSED, PAIR, {"--demo"}),
        (f"{ANALYSED} --out out", PAIR, {"--demo"}),
        (f"{ANALYSED} --demo", [], set()),
    ],
    "extract": [
        (
            f"{EXTRACTED} --components 2",
            PAIR,
            UNFIT - {"--components"} | LIMITS | {"--serve", "--method"},
        ),
        (f"{EXTRACTED} --r 1 --method lora", PAIR, UNFIT - {"--r"} | LIMITS),
        (f"{EXTRACTED} --allocate 2k", PAIR, UNFIT - {"--allocate"} | {"--serve"}),
        (f"{EXTRACTED} --energy 0.5", PAIR, UNFIT - {"--energy"} | {"--serve"}),
    ],
    "unmerge": [("--include 1.attention -j 1", PAIR, {"--demo"}), ("--demo -j 1", [], set())],
    "verify": [
        ("--quick -j 1", ["condition-u"], set()),
        ("--quick -j 1", ["parseval.unitary"], set()),
        ("--list", ["condition-u", "wishart."], set()),
    ],
    "methods": [("--r 2 --lr 1e-4", [], set()), ("--r 2", ["LoRA", "LoCA", "LoKr"], {"--lr"})],
    "figures": [(STORED, ["sim_2"], {"--results"}), (STORED, ["overview"], {"--results"})],
}
# Right values of the options whose type does not say them, all of them cheap.
RIGHT = {
    "--K": ["4", "6"],
    "--methods": ["LoRA", "D,S", "R,DoRA", "all"],
    "--structures": FAMILIES,
    "--draws": ["2", "3"],
    "--search": ["central", "swap,pursuit", "all"],
    "--interpretation": ["default", "sum", "sum+indices"],
    "--size": ["4", "4,6"],
    "--condition": ["gaussian", "1", "1,10"],
    "--steps": ["20", "30"],
    "--lr": ["0.02", "1"],
    "--location-lr": ["0.05", "1"],
    "--allocate": ["2k", "20000", "8KB"],
    "--energy": ["0.3", "0.5"],
    "--cap": ["5000", "6000"],
    "--include": ["q_proj", "attention"],
    "--bits": ["1", "0.25,2"],
    "--group": ["q_proj|v_proj", "layers.([0-9]+)"],
    "--exclude": ["k_proj", "^$"],
    "--save-module": ["embed", "norm"],
    "--device": ["auto", "cpu"],
    "--results": ["."],
    "--seed": ["0", "7", str(2**63 - 1)],
    "--r": ["1", "2"],
    "--shape": ["4x6", "6x4"],
    "--value-bits": ["8", "32"],
    "--method": ["loca", "lora", "best"],
    "--epsilon": ["0", "0.01"],
    "--max-size": ["20000", "1_000_000"],
    "--inputs": ["inputs.txt", "inputs.safetensors"],
    "--requantise": ["4", "8"],
    "--figsize": ["9x6", "12x8"],
}
BY_TYPE = {
    IntegerList: ["1", "1,2", "1..3", "1..3..2"],
    NumberList: ["0.1", "0,0.2", "0..0.4..0.2"],
    Folder: ["out", "out put"],
}
WRONG = [
    "",
    " ",
    "-1",
    "nan",
    "inf",
    "1e999",
    "9" * 30,
    "8..",
    "..8",
    "8..2",
    "1..9..0",
    "1,,2",
    "0x8",
    "ä",
    "a\nb",
    "\udcff",
    "--",
    "None",
    "[",
    "x" * 300,
    "no/such/folder",
    "hub:",
    "cuda:99",
    "%s",
    "csv.reader",
    "os:getcwd",
    "no_module:x",
    "0",
    "0.5",
    "1.5",
    "gaussian",
    "LoRA",
    "400B",
    "help",
]
# Not every value of the first goes with every value of the others.
APART = {
    "--methods": {"--sampler", "--engine"},
    "--method": LIMITS | {"--serve"},
    "--serve": {"--save-module"},
    "--allocate": {"--accounting"},
}
# These start processes, wait for a network or print help, and have tests of their own.
NEVER = {
    "--jobs",
    "--backend",
    "--scheduler",
    "--debug",
    "--deep",
    "--help",
    "--help-all",
    "--columns",
}


def flag_of(option):
    """An option's longest name."""
    return max(option.opts, key=len)


def right_values(option):
    """Values that are right, from the option or from its type; a new type needs an entry."""
    if (name := flag_of(option)) in RIGHT:
        return RIGHT[name]
    if isinstance(option.type, click.Choice):
        return list(option.type.choices)
    if isinstance(option.type, click.types.IntParamType):
        return ["1", "2"]
    return BY_TYPE[type(option.type)]


@st.composite
def command_lines(draw, name, *, mixed=False, wrong=False):
    """Command lines of right values, of which some may exclude one another, or one is wrong."""
    base, arguments, unfit = draw(st.sampled_from(BASES[name]))
    options = [
        option
        for option in COMMANDS[name].params
        if isinstance(option, click.Option) and flag_of(option) not in NEVER
        if mixed or flag_of(option) not in unfit
    ]
    chosen = draw(st.lists(st.sampled_from(options), unique=True, min_size=wrong, max_size=4))
    if not mixed:
        without = set().union(*(APART.get(flag_of(option), set()) for option in chosen))
        chosen = [option for option in chosen if flag_of(option) not in without]
    words = [
        [flag_of(new), *([] if new.is_flag else [draw(st.sampled_from(right_values(new)))])]
        for new in chosen
    ]
    arguments = [[argument] for argument in arguments]
    if wrong:
        spoilt = draw(st.sampled_from([*words, *arguments]))
        spoilt[-1:] = [draw(st.sampled_from(WRONG))]
    # After "--", a name that begins with a hyphen is a name.
    end = ["--"] if draw(st.booleans()) else []
    return [name, *shlex.split(base), *chain(*words), *end, *chain(*arguments)]


def check_output(done, line):
    """Data alone on standard output, in the format that was asked for."""
    formats = [line[i + 1] for i, word in enumerate(line[:-1]) if word == "--format"]
    if done.code == 0 and formats:
        if formats[-1] == "json":
            json.loads(done.out)
        elif formats[-1] == "csv":
            assert len({len(row) for row in csv.reader(io.StringIO(done.out)) if row}) <= 1


def check_error(done):
    """One line says what is wrong, beside notes; a terminal may wrap it."""
    said = [line for line in done.err.splitlines() if not line.startswith("note: ")]
    if done.code in (1, 2):
        assert len(said) == 1, done.err
        assert said[0].startswith("loca-theory: "), done.err
        assert len(said[0].split()) > 3, done.err
    else:
        assert not said, done.err


def check_files(folder):
    """Only whole files."""
    for path in folder.rglob("*"):
        if path.is_dir():
            continue
        assert path.suffix != TEMPORARY_SUFFIX, path
        assert path.stat().st_size, path
        if path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        elif path.suffix == ".parquet":
            pq.read_table(path)


@pytest.fixture
def check(cli, cwd):
    """Run a command line in an empty folder, check what it left, and return its exit code."""

    def run(line):
        for path in cwd.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        stdout = os.dup(sys.stdout.fileno())
        done = cli(*line)
        # A command that a file system refuses drops its standard output, here that of all lines.
        os.dup2(stdout, sys.stdout.fileno())
        os.close(stdout)
        assert "Traceback" not in done.err
        check_error(done)
        check_output(done, line)
        check_files(cwd)
        return done.code

    return run


def explore(check, name, examples, **kind):
    """Run random command lines of one kind; those of right values must all succeed."""

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(line=command_lines(name, **kind))
    def one(line):
        code = check(line)
        assert kind or code == 0, line

    one()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_lines_to_vary_and_some_random_ones(check, name):
    for base, arguments, _ in BASES[name]:
        assert check([name, *shlex.split(base), *arguments]) == 0
    explore(check, name, 2)
    explore(check, name, 3, wrong=True)


@pytest.mark.deep
@pytest.mark.parametrize("name", COMMANDS)
def test_many_random_command_lines(check, name):
    explore(check, name, 125)  # 2,000 lines of eight commands in all
    explore(check, name, 65, mixed=True)
    explore(check, name, 60, wrong=True)
