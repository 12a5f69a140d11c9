"""Entry point: finds the command."""

from __future__ import annotations

from importlib import import_module
from typing import NoReturn

import click

from loca_theory import __version__
from loca_theory.cli.command import Group

# What the list of commands says of each stands here too: importing them all takes seconds.
_COMMANDS = {
    "simulate": "Expected reconstruction error of a Gaussian matrix, method by method.",
    "correlate": "Reconstruction under dependence: where LoRA overtakes, and who would notice.",
    "toy": "How often learned locations end at the true ones: the paper's toy experiment "
    "as a rate.",
    "analyze": "Are the changes of a fine-tune normal and independent, and which adapter "
    "keeps them?",
    "extract": "Turn a full fine-tune into the best LoCA or LoRA adapter, and say what it leaves.",
    "verify": "Decide claims of the paper; without CLAIM, all.",
    "methods": "The methods that the other commands compare, or those named.",
    "figures": "Draw figures of the paper; without ID, all that can be.",
}


class _LazyGroup(Group):
    """Imports a command's module when that command is asked for, so that others cost nothing."""

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
