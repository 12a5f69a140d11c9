"""Commands with the options of a Python function, and those that all commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from loca_theory.cli.cluster import cluster
from loca_theory.cli.command import Command
from loca_theory.cli.common import DEFAULT_OUT as DEFAULT_OUT
from loca_theory.cli.common import Common as Common
from loca_theory.cli.ranges import WholeNumber
from loca_theory.cli.signature import option_settings

# End of the help of --out, for commands that store only partial results without it.
PARTIAL_RESULTS = (
    "partial results, from which an interrupted run continues.  "
    f"[default: {DEFAULT_OUT}, for the partial results only]"
)
_EVERYTHING = f"{__name__}.everything"


class Folder(click.Path):
    """The path of a folder; an empty path, as from an unset variable, and bytes are errors."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert the text to a path."""
        if value == "":
            self.fail("the name of the folder is empty; give a name, or omit the option")
        try:
            str(value).encode()
        except UnicodeEncodeError:
            # Arrow and safetensors take names in UTF-8 alone.
            self.fail("the name of the folder is not valid UTF-8; choose another")
        return Path(str(super().convert(value, param, ctx)))


class Rare(click.Option):
    """An option that only ``--help-all`` shows."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The text of the help, if everything is to be shown."""
        return super().get_help_record(ctx) if ctx.meta.get(_EVERYTHING) else None


_rare_option = partial(click.option, cls=Rare)


def _show_everything(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[_EVERYTHING] = True
        click.echo(ctx.get_help())
        ctx.exit()


# How an option of this name differs from what the signature says, in every command.
_EVERYWHERE: dict[str, dict[str, Any]] = {
    "shape": {"metavar": "PxQ", "help": "One rectangular shape, instead of --K."},
    "include": {"metavar": "REGEX"},
    "exclude": {"metavar": "REGEX"},
    "max_size": {"type": WholeNumber(min=1), "metavar": "N"},
    "allocate": {"metavar": "TOTAL"},
    "results": {"type": Folder(), "metavar": "DIR"},
    # Tables store seeds as 64-bit integers.
    "seed": {"type": WholeNumber(max=2**63 - 1), "metavar": "INTEGER"},
    "device": {"metavar": "auto|cpu|cuda[:N]"},
    "jobs": {"flag": "-j --jobs"},
    "scheduler": {"metavar": "ADDRESS"},
    "accounting": {
        "type": click.Choice(("paper", "main-text", "trainable", "dof", "bits")),
        "help": "What a method may store at the budget of LoRA, (p+q)r numbers. paper: a value "
        "costs one number, and so does its location if the method selects it by looking at the "
        "matrix (random locations are free); main-text: as paper, with twice as many Fourier "
        "pairs; trainable: all locations are free; dof: as paper, but the budget is r(p+q-r) "
        "numbers; bits: as many bits as LoRA.",
    },
}
_PRINTING = (
    click.option(
        "--format",
        "output_format",
        type=click.Choice(["table", "json", "csv"]),
        default="table",
        help="Format of the printed result; CSV has only the first table.",
    ),
    _rare_option("-q", "--quiet", is_flag=True, help="Print no progress and no notes on stderr."),
    # What Command.main looks for.
    _rare_option(
        "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."
    ),
    click.help_option("--help-all", callback=_show_everything, help="Show every option and exit."),
)


def demo_option(verb: str) -> Callable[[Any], Any]:
    """The option for checkpoints that come with the package, instead of the user's."""
    text = f"{verb} a small pair of checkpoints that comes with the package."
    return click.option("--demo", is_flag=True, help=text)


def _columns_option(printed_columns: Callable[[], Mapping[str, str]]) -> Callable[[Any], Any]:
    """The option that explains columns, with the meanings of those of the printed table."""

    def show(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            # Imported here, because tables of the terminal load rich.
            from loca_theory.cli.columns import print_columns

            print_columns(str(ctx.command.name), printed_columns())
            ctx.exit()

    settings = {"is_flag": True, "is_eager": True, "expose_value": False, "callback": show}
    text = "Print what the columns of the tables mean and exit."
    return _rare_option("--columns", help=text, **settings)


def command_of(
    function: str,
    *further: Callable[[Any], Any],
    out: str,
    rare: Iterable[str] = (),
    without: Iterable[str] = (),
    columns: Callable[[], Mapping[str, str]] | None = dict,
    **overrides: Mapping[str, Any],
) -> Callable[[Callable[..., Any]], Command]:
    """Make a command with the options of a Python function and the shared ones.

    The command receives the arguments of the function by their names, and the other options as
    ``common``.

    Args:
        function: The Python function, such as ``checkpoints.analysis:analyze``.
        further: Arguments and options that the function does not have.
        out: What the help says of ``--out``.
        rare: Parameters whose options only ``--help-all`` shows.
        without: Parameters that are no options.
        columns: Makes the meanings of the columns of the printed table, by their headings; None
            if its result has no tables.
        overrides: How the option of a parameter differs: its ``flag``, and arguments of
            :func:`click.option`.
    """
    available = option_settings(function)
    if available.pop("runner", None):
        available |= option_settings("cli.cluster:cluster")
    options = []
    for name in (parameter for parameter in available if parameter not in without):
        settings = {**available[name], **_EVERYWHERE.get(name, {}), **overrides.get(name, {})}
        flags = settings.pop("flag", f"--{name.replace('_', '-')}").split()
        kind = Rare if name in {"backend", "scheduler", *rare} else click.Option
        options.append(click.option(*flags, name, cls=kind, **settings))
    with_out = click.option("--out", type=Folder(), metavar="DIR", help=out)

    def decorate(run: Callable[..., Any]) -> Command:
        def with_common(jobs: int = 1, **arguments: Any) -> Any:
            where = {
                name: arguments.pop(name) for name in ("backend", "scheduler") if name in arguments
            }
            shared = {name: arguments.pop(name) for name in ("output_format", "quiet", "out")}
            with cluster(jobs, **where) as workers:
                return run(common=Common(**shared, jobs=workers), **arguments)

        printing = _PRINTING if columns is None else (_columns_option(columns), *_PRINTING)
        for option in reversed((*further, *options, with_out, *printing)):
            with_common = option(with_common)
        name = run.__module__.rpartition(".")[2]
        shown = {"show_default": True}
        return click.command(name, Command, help=run.__doc__, context_settings=shown)(with_common)

    return decorate
