"""Random command lines: an exit code and one line, never a traceback or half a file.

Options and their choices come from the commands themselves, so that a new option is tried as well.
Values are small enough for a second each, or wrong.
"""

import csv
import io
import json
import shutil

import click
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loca_theory import demo_pair
from loca_theory.cli.main import group
from loca_theory.sweeps.files import TEMPORARY_SUFFIX

COMMANDS = {
    name: group.get_command(click.Context(group), name)
    for name in group.list_commands(click.Context(group))
}
# Values that are right for some option, and cheap for all.
SMALL = [
    "0", "1", "2", "3", "4", "2..4", "1,2", "8x6", "0.5", "0..0.4..0.2", "1k", "400B", "gaussian",
    "R", "D", "R,S", "central", "reselect", "spiked", "ar1", "same-draw", "cpu", "out", "q_proj",
]  # fmt: skip
WRONG = [
    "", " ", "-1", "nan", "inf", "1e999", "9" * 30, "8..", "..8", "8..2", "1..9..0", "1,,2", "0x8",
    "ä", "a\nb", "\udcff", "--", "None", "[", "x" * 300, "no/such/folder", "hub:", "cuda:99", "%s",
    "csv.reader", "os:getcwd", "no_module:x",
]  # fmt: skip
# What makes a run short; of an option that is given twice, the later value counts.
CHEAP = {
    "simulate": ["--K", "4", "--r", "1", "--draws", "2"],
    "correlate": ["--K", "6", "--r", "1", "--draws", "2", "--null-draws", "20", "--rho", "0,0.2"],
    "toy": ["--problems", "1", "--steps", "2"],
    "analyze": ["--r", "1"],
    "extract": ["--include", "1.attention.q_proj", "--components", "2"],
    "verify": ["--quick"],
    "methods": [],
    "figures": [],
}
# Arguments instead of options. Whole ledgers and all figures take minutes, so one is always named.
NAMED = {
    "analyze": [str(path) for path in demo_pair()],
    "extract": [str(path) for path in demo_pair()],
    "verify": ["condition-u", "parseval.unitary", "wishart.constant"],
    "methods": ["R", "D", "LoKr"],
    "figures": ["sim_2", "overview", "budget"],
}
# These start processes or wait for a network, and have tests of their own.
NEVER = {"--jobs", "--backend", "--scheduler", "--debug", "--deep", "--help"}


def values(option):
    """Values of an option: its choices or small values, and now and then a wrong one."""
    right = list(option.type.choices) if isinstance(option.type, click.Choice) else SMALL
    return st.sampled_from(right) | st.sampled_from(right) | st.sampled_from(WRONG)


def written(option):
    """An option as it is typed."""
    name = st.just(max(option.opts, key=len))
    return st.tuples(name) if option.is_flag else st.tuples(name, values(option))


@st.composite
def command_lines(draw):
    name = draw(st.sampled_from(list(COMMANDS)))
    options = [
        one
        for one in COMMANDS[name].params
        if isinstance(one, click.Option) and max(one.opts, key=len) not in NEVER
    ]
    chosen = draw(st.lists(st.sampled_from(options).flatmap(written), max_size=5))
    named = []
    if name in NAMED:
        positions = st.sampled_from([*NAMED[name], *NAMED[name], *WRONG])
        named = draw(st.lists(positions, min_size=1, max_size=3))
    words = [*CHEAP[name], *(word for one in chosen for word in one)]
    # After "--", a name that begins with a hyphen is a name.
    return [name, *words, *(["--"] if draw(st.booleans()) else []), *named]


def check_output(done, line):
    """Data alone on standard output, in the format that was asked for."""
    formats = [line[i + 1] for i, word in enumerate(line[:-1]) if word == "--format"]
    if done.code == 0 and formats and "--list" not in line:
        if formats[-1] == "json":
            json.loads(done.out)
        elif formats[-1] == "csv":
            assert len({len(row) for row in csv.reader(io.StringIO(done.out)) if row}) <= 1


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


def check(cli, here, line):
    done = cli(*line)
    assert "Traceback" not in done.err
    if done.code in (1, 2):
        assert done.err.strip()
    check_output(done, line)
    check_files(here)
    for path in here.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


reruns = {
    "deadline": None,
    "derandomize": True,
    # The folder is emptied after each command line.
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}
ignores_warnings = pytest.mark.filterwarnings("ignore")


@ignores_warnings
@settings(max_examples=20, **reruns)
@given(line=command_lines())
def test_some_random_command_lines(cli, here, line):
    check(cli, here, line)


@pytest.mark.deep
@ignores_warnings
@settings(max_examples=2000, **{**reruns, "derandomize": False})
@given(line=command_lines())
def test_many_random_command_lines(cli, here, line):
    check(cli, here, line)
