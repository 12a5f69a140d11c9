"""Options are those of the Python functions, and a command's help offers what the packages have."""

import inspect
import pkgutil
import re
import shlex
import subprocess
from importlib import import_module

import click
import pytest

from loca_theory.cli.commands import correlate
from loca_theory.cli.main import group
from loca_theory.cli.signature import option_settings
from loca_theory.convergence.interpretations import INTERPRETATIONS
from loca_theory.dependence.design import Protocol
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.expressivity import METHODS, Accounting
from loca_theory.expressivity.methods.engine import Engine
from loca_theory.expressivity.methods.names import DEFAULT_NAMES, NAMES
from loca_theory.expressivity.methods.registry import DEFAULT_METHODS
from loca_theory.expressivity.monte_carlo import Sampler

COMMANDS = group.list_commands(click.Context(group))
# Defaults that the command line changes.
OTHERWISE = {
    "correlate": {"ranks": (8, 16, 24, 32)},
    "verify": {"tier": "default"},
}
LARGE = {"matplotlib", "pandas", "pyarrow", "torch"}
# Commands, what they do not import, and their exit code.
IMPORTS = [
    *((f"{name} --help", LARGE | {"joblib", "numpy", "scipy"}, 0) for name in COMMANDS),
    ("simulate --K 16 --r 1 --draws 2", LARGE, 0),  # exact values and reduced draws
    ("verify --list --quiet", LARGE, 0),
    ("analyze nowhere .", LARGE, 2),
    ("extract . nowhere --r 2", LARGE, 2),
    ("extract . . --r 2 --check --inputs nowhere", LARGE, 2),
]


def command_of(name):
    return group.get_command(click.Context(group), name)


def option(command, name):
    return next(option for option in command_of(command).params if option.name == name)


@pytest.mark.parametrize(
    ("offered", "available"),
    [
        (option("simulate", "engine").type.choices, [*Engine, "all"]),
        (option("simulate", "sampler").type.choices, Sampler),
        (option("simulate", "accounting").type.choices, Accounting),
        (correlate._PROTOCOLS, Protocol),
        (correlate._STRUCTURES.split(","), STRUCTURES),
        (re.findall(r"([\w-]+) \(", option("toy", "interpretations").help), INTERPRETATIONS),
        (NAMES, METHODS),
        (DEFAULT_NAMES, [method.name for method in DEFAULT_METHODS]),
    ],
)
def test_every_choice_is_offered(offered, available):
    assert tuple(offered) == tuple(available)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_default_of_the_command_line_is_that_of_the_function(name):
    source = inspect.getsource(import_module(f"loca_theory.cli.commands.{name}"))
    named = re.search(r'@command_of\(\s*"([\w.]+:\w+)"', source)[1]
    real = inspect.signature(pkgutil.resolve_name(f"loca_theory.{named}")).parameters
    read = option_settings(named)
    named_alone = [taken for taken in real.values() if taken.kind is not taken.VAR_POSITIONAL]
    assert list(read) == [taken.name for taken in named_alone]
    assert all(settings["help"] for settings in read.values())
    command = command_of(name)
    defaults = command.make_context(name, [], resilient_parsing=True).params
    for option in command.params:
        if not isinstance(option, click.Option) or option.name not in real:
            continue
        default = defaults[option.name]
        expected = OTHERWISE.get(name, {}).get(option.name, real[option.name].default)
        if default in (None, (), False) or expected in (None, ()):
            is_empty = expected in (None, (), False, inspect.Parameter.empty)
            assert is_empty or option.name == "searches"
        elif option.name == "methods":
            assert default == tuple(expected)
        else:
            assert default == (expected if isinstance(expected, type(default)) else (expected,))


@pytest.mark.parametrize(("words", "heavy", "code"), IMPORTS, ids=[case[0] for case in IMPORTS])
def test_what_is_not_needed_is_not_imported(cwd, command, words, heavy, code):
    python, flag, script = command
    at_end = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
    line = [python, flag, at_end + script, *words.split()]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert set(done.stderr.split()) & heavy == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_a_dozen_options_all_of_them_and_examples_that_parse(cli, name):
    (code, short_help, err), full_help = cli(name, "--help"), cli(name, "--help-all").out
    assert (code, err) == (0, "")
    short, full = (
        re.findall(r"^  (-\S+)", text.partition("Options:\n")[2], re.MULTILINE)
        for text in (short_help, full_help)
    )
    command = command_of(name)
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert len(short) <= 12
    assert len(full) == len(options) + 1  # --help itself
    examples = re.findall(rf"^    (loca-theory {name} .*)$", short_help, flags=re.MULTILINE)
    assert len(examples) >= 2
    for example in examples:
        assert len(f"    {example}") <= 80
        command.make_context(name, shlex.split(example)[2:])
