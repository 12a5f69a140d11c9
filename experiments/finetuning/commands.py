"""What the commands that fine-tune share: their options, and what they run on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from experiments.finetuning.methods import find_method
from experiments.finetuning.protocol import Configuration
from experiments.finetuning.session import Session
from experiments.finetuning.settings import task_names
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder
from loca_theory.errors import InvalidArgumentError

TASKS = f"{', '.join(task_names())}.  [default: all but text]"

_OPTIONS = (
    click.Option(["--out"], type=Folder(), default=Path("loca-results") / "experiments",
                 show_default=True,
                 help="Folder of runs, tables and figures; stored runs are not repeated."),
    click.Option(["--quick"], is_flag=True, help="Tiny run, to check that it works."),
    click.Option(["--full"], is_flag=True, help="Everything; takes hours, can be resumed."),
    click.Option(["--seeds"], type=click.IntRange(min=2),
                 help="Number of seeds.  [default: that of the design]"),
    click.Option(["-j", "--jobs"], type=int, default=-1, show_default=True,
                 help="Worker processes, -1 for one per core."),
    click.Option(["--device"], metavar="auto|cpu|cuda[:N]", default="auto", show_default=True,
                 help="Device to train on."),
    click.Option(["--beyond-grid"], is_flag=True,
                 help="Where the lowest or highest learning rate is best, try those beyond it."),
    click.Option(["-q", "--quiet"], is_flag=True, help="Print neither progress nor notes."),
)  # fmt: skip


def session_command(function: Callable[..., None]) -> click.Command:
    """Make a command with the common options, which receives a :class:`Session`."""

    def with_session(**given: Any) -> None:
        common = {str(option.name): given.pop(str(option.name)) for option in _OPTIONS}
        if common["quick"] and common["full"]:
            msg = "--quick and --full exclude each other; give only one of them"
            raise click.UsageError(msg)
        if common["jobs"] == 0 or common["jobs"] < -1:
            msg = "--jobs must be a positive number, or -1 for one per core, not "
            raise click.UsageError(msg + str(common["jobs"]))
        function(Session(**common), **given)

    with_session.__doc__, with_session.__name__ = function.__doc__, function.__name__
    command = click.command(cls=Command)(with_session)
    own: list[click.Parameter] = getattr(function, "__click_params__", [])
    command.params = [*_OPTIONS, *reversed(own)]
    return command


def tasks_of(session: Session, task: str | None) -> list[str]:
    """The given task; without one all small tasks, or in a quick session one of each kind."""
    if task:
        return [task]
    small = [name for name in task_names() if session.settings(name)["grid"] == "small"]
    if not session.quick:
        return small
    return list({session.settings(name)["module"]: name for name in reversed(small)}.values())[::-1]


def configurations(
    session: Session, task: str, names: Sequence[str], r: int | None = None
) -> list[Configuration]:
    """One configuration per method, at the budget ``r`` or, if it is None, at that of the task.

    Methods that are not run on tasks of this size are dropped, unless none is left.
    """
    chosen = session.settings(task)
    run = [name for name in names if chosen["grid"] in find_method(name).lowest]
    if len(run) < len(names):
        msg = f"{', '.join(name for name in names if name not in run)} cannot be run on {task}"
        if not run:
            raise InvalidArgumentError(msg + "; choose another method or task")
        session.say(f"note: {msg}")
    return [Configuration(task, name, r or chosen["r"]) for name in run]
