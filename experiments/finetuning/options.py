"""Common options of the commands that fine-tune."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from experiments.finetuning.session import Session
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder

DEFAULT_OUT = Path("loca-results") / "experiments"
_OPTIONS = (
    click.option(
        "--out", type=Folder(), default=DEFAULT_OUT, show_default=True,
        help="Folder of runs, tables and figures; stored runs are not repeated.",
    ),
    click.option("--quick", is_flag=True, help="Tiny run, to check that it works."),
    click.option("--full", is_flag=True, help="Everything; takes hours, can be resumed."),
    click.option(
        "--seeds", type=click.IntRange(min=2),
        help="Number of seeds.  [default: that of the design]",
    ),
    click.option(
        "-j", "--jobs", type=int, default=-1, show_default=True,
        help="Worker processes, -1 for one per core.",
    ),
    click.option(
        "--device", metavar="auto|cpu|cuda[:N]", default="auto", show_default=True,
        help="Device to train on.",
    ),
    click.option(
        "--beyond-grid", is_flag=True,
        help="Where the lowest or highest learning rate is best, try those beyond it.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Print neither progress nor notes."),
)  # fmt: skip


def session_command(function: Callable[..., None]) -> click.Command:
    """Make a command with the common options, which receives a :class:`Session`."""

    def with_session(
        *, out: Path, quick: bool, full: bool, seeds: int | None, jobs: int, device: str,
        quiet: bool, beyond_grid: bool, **own: Any,
    ) -> None:  # fmt: skip
        if quick and full:
            msg = "--quick and --full exclude each other; give only one of them"
            raise click.UsageError(msg)
        if jobs == 0 or jobs < -1:
            msg = f"--jobs must be a positive number, or -1 for one per core, not {jobs}"
            raise click.UsageError(msg)
        function(Session(out, quick, full, jobs, device, seeds, quiet, beyond_grid), **own)

    with_session.__doc__, with_session.__name__ = function.__doc__, function.__name__
    with_session.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    for option in reversed(_OPTIONS):
        with_session = option(with_session)
    return click.command(cls=Command)(with_session)
