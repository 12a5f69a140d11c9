"""What a command's help offers is what the packages have."""

import subprocess
import sys

import pytest

from loca_theory.cli import choices
from loca_theory.cli.main import _COMMANDS
from loca_theory.dependence.protocols import Protocol
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.expressivity import METHODS, Accounting
from loca_theory.expressivity.methods.method import Engine
from loca_theory.expressivity.methods.names import DEFAULT_KEYS, DISPLAY_NAMES
from loca_theory.expressivity.methods.registry import DEFAULT_METHODS
from loca_theory.expressivity.monte_carlo import Sampler

HELP = """
import contextlib, io, sys
from loca_theory.cli import main

for name in sys.argv[1:]:
    sys.argv = ["loca-theory", name, "--help"]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        main()
print(*{"numpy", "scipy", "torch", "joblib", "pandas", "matplotlib"} & set(sys.modules))
"""


@pytest.mark.parametrize(
    ("offered", "known"),
    [
        (choices.ENGINES, Engine),
        (choices.SAMPLERS, Sampler),
        (choices.ACCOUNTINGS, Accounting),
        (choices.PROTOCOLS, Protocol),
        (choices.STRUCTURES, STRUCTURES),
        (DISPLAY_NAMES, METHODS),
        (DEFAULT_KEYS, [method.name for method in DEFAULT_METHODS]),
    ],
    ids=["engines", "samplers", "accountings", "protocols", "structures", "methods", "default"],
)
def test_every_choice_is_offered(offered, known):
    assert tuple(offered) == tuple(known)


def test_help_imports_nothing_that_computes():
    done = subprocess.run(
        [sys.executable, "-c", HELP, *_COMMANDS], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
