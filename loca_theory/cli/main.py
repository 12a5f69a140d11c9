"""Entry point of ``loca-theory``."""

from __future__ import annotations

from importlib import import_module
from typing import NoReturn

import click

from loca_theory import __version__
from loca_theory._lookup import unknown_name
from loca_theory.cli.command import Command

_GROUPS = {
    "Your checkpoints": ("analyze", "extract", "unmerge"),
    "Theory": ("simulate", "correlate", "toy", "methods"),
    "The paper": ("verify", "figures"),
}


class _LazyGroup(Command, click.Group):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A group that imports the module of a command only when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [name for names in _GROUPS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        names = self.list_commands(ctx)
        if cmd_name not in names:
            if ctx.resilient_parsing:  # of a line that the shell completes
                return None
            raise unknown_name("command", cmd_name, names)
        return import_module(f"loca_theory.cli.commands.{cmd_name}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in _GROUPS.items():
            helps = [getattr(self.get_command(ctx, name), "help", "") for name in names]
            firsts = [" ".join(text.partition("\n\n")[0].split()) for text in helps]
            with formatter.section(title):
                formatter.write_dl(list(zip(names, firsts, strict=True)))


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="loca-theory")
def group() -> None:
    """Check the theory of LoCA: what low-rank, Fourier and cosine adapters can reconstruct.

    \b
    Example:
      loca-theory simulate --K 768 --r 8..32
    """


def main() -> NoReturn:
    """Run the command line and exit with its code.

    0 done, 1 error, 2 usage, 3 a claim is not supported (``verify --strict``), 130 interrupted.
    """
    group.main(prog_name="loca-theory")
