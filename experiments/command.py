"""What the commands of all experiments have in common."""

from __future__ import annotations

from typing import Any

import click

from loca_theory.cli.options import in_flags
from loca_theory.errors import LocaTheoryError
from loca_theory.sweeps import SweepInterruptedError

INTERRUPTED = 130


class _StoppedError(click.ClickException):
    exit_code = INTERRUPTED


def _one_line(invoke: Any, ctx: click.Context) -> Any:
    try:
        return invoke(ctx)
    except KeyboardInterrupt:
        msg = "interrupted; run the same command again to go on"
        raise _StoppedError(msg) from None
    except SweepInterruptedError as error:
        raise _StoppedError(str(error)) from error
    except LocaTheoryError as error:
        raise click.ClickException(in_flags(str(error), ctx.command)) from error


class OneLineCommand(click.Command):
    """A command whose expected failures are one line: exit code 1, or 130 if interrupted."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        return _one_line(super().invoke, ctx)


class OneLineGroup(click.Group):
    """The same for a group of commands."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run one of them."""
        return _one_line(super().invoke, ctx)
