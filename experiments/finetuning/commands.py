"""The options of ``experiments.study``, ``everything`` and ``complexity``, and their session."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from experiments.finetuning.session import Session
from experiments.finetuning.settings import task_names
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder

TASKS = f"{', '.join(task_names())}.  [default: all but text]"

_option = partial(click.Option, show_default=True)
_OPTIONS = (
    _option(
        ["--out"],
        type=Folder(),
        default=Path("loca-results") / "experiments",
        help="Folder of runs, tables and figures; stored runs are not repeated.",
    ),
    click.Option(["--quick"], is_flag=True, help="Tiny run, to check that it works."),
    click.Option(["--full"], is_flag=True, help="Everything; takes hours, can be resumed."),
    click.Option(
        ["--seeds"],
        type=click.IntRange(min=2),
        help="Number of seeds.  [default: that of the design]",
    ),
    _option(["-j", "--jobs"], type=int, default=-1, help="Worker processes, -1 for one per core."),
    _option(["--device"], metavar="auto|cpu|cuda[:N]", default="auto", help="Device to train on."),
    click.Option(["-q", "--quiet"], is_flag=True, help="Print neither progress nor notes."),
)


def session_command(function: Callable[..., None]) -> click.Command:
    """Make a command with the common options, which receives a :class:`Session`."""

    @wraps(function)
    def with_session(**arguments: Any) -> None:
        common = {str(option.name): arguments.pop(str(option.name)) for option in _OPTIONS}
        if common["quick"] and common["full"]:
            raise click.UsageError("--quick and --full exclude each other; give only one of them")
        if common["jobs"] == 0 or common["jobs"] < -1:
            raise click.UsageError(
                "--jobs must be a positive number, or -1 for one per core, not "
                + str(common["jobs"])
            )
        function(Session(**common), **arguments)

    command = click.command(cls=Command)(with_session)
    command.params = [*_OPTIONS, *command.params]
    return command
