"""Entry point of ``loca-theory``."""

from __future__ import annotations

from importlib import import_module
from typing import NoReturn

import click

from loca_theory import __version__
from loca_theory.cli.command import Group

# First sentences of the commands' help, repeated because importing all commands takes seconds.
_COMMANDS = {
    "simulate": "Compute the expected reconstruction error of a Gaussian matrix for each method.",
    "correlate": "Compare methods on dependent entries, and measure the power of tests for "
    "dependence.",
    "toy": "Measure how often training finds the locations that generated the paper's toy data.",
    "analyze": "Show how fine-tunes changed every weight matrix, and compare adapters on the "
    "changes.",
    "extract": "Convert a full fine-tune to the best LoCA or LoRA adapter, and print its error.",
    "verify": "Check the paper's claims, or only the named ones, and give each a verdict.",
    "methods": "List the methods that the other commands compare, or only the named ones, and "
    "their costs.",
    "figures": "Draw the paper's figures, or only the named ones, such as sim_1.",
}


class _LazyGroup(Group):
    """A group that imports the module of a command only when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        return import_module(f"loca_theory.cli.{cmd_name}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


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
