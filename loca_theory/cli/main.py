"""Entry point: finds the command, and turns every expected failure into one line."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any, NoReturn

import click

from loca_theory import InvalidArgumentError, LocaTheoryError, __version__

# What the list of commands says of each stands here too: importing them all takes seconds.
_COMMANDS = {
    "simulate": (
        "loca_theory.cli.simulate",
        "Expected reconstruction error of a Gaussian matrix, method by method.",
    ),
    "correlate": (
        "loca_theory.cli.correlate",
        "Reconstruction under dependence: where LoRA overtakes, and who would notice.",
    ),
    "toy": (
        "loca_theory.cli.toy",
        "How often learned locations end at the true ones: the paper's toy experiment as a rate.",
    ),
    "analyze": (
        "loca_theory.cli.analyze",
        "Are the changes of a fine-tune normal and independent, and which adapter keeps them?",
    ),
    "extract": (
        "loca_theory.cli.extract",
        "Turn a full fine-tune into the best LoCA or LoRA adapter, and say what it leaves.",
    ),
    "verify": (
        "loca_theory.cli.verify",
        "Decide claims of the paper; without CLAIM, all.",
    ),
    "figures": (
        "loca_theory.cli.figures",
        "Draw figures of the paper; without ID, all that can be.",
    ),
}

_ERROR, _USAGE, _INTERRUPTED = 1, 2, 130


class _InterruptedError(click.ClickException):
    """Ctrl-C outside a sweep."""

    exit_code = _INTERRUPTED


class _LazyGroup(click.Group):
    """Imports a command's module when that command is asked for, so that others cost nothing."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Before click sees it, which would print an empty line.
            raise _InterruptedError("interrupted") from None  # noqa: EM101

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, _ = _COMMANDS[cmd_name]
        return import_module(module).command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])


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
    Errors are one line on stderr; ``--debug`` adds the traceback.
    """
    debug = "--debug" in sys.argv[1:]
    if isinstance(sys.stdout, TextIOWrapper):
        # A terminal or file that cannot take a sign such as ± gets a question mark.
        sys.stdout.reconfigure(errors="replace")
    try:
        result = group.main(prog_name="loca-theory", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(_USAGE)
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code, debug=debug)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted", _INTERRUPTED, debug=debug)
    except BrokenPipeError:
        # The reader of our output (head, a pager) is gone: nothing is left to say.
        _drop_output()
        sys.exit(_ERROR)
    except LocaTheoryError as error:
        _fail(str(error), _exit_code(error), debug=debug)
    except OSError as error:
        _drop_output()
        _fail(str(error), _ERROR, debug=debug)
    sys.exit(result if isinstance(result, int) else 0)


def _exit_code(error: LocaTheoryError) -> int:
    from loca_theory.sweeps import SweepInterruptedError

    if isinstance(error, SweepInterruptedError):
        return _INTERRUPTED
    return _USAGE if isinstance(error, InvalidArgumentError) else _ERROR


def _drop_output() -> None:
    """Keep Python from writing what is left of the output when it ends, and failing at that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int, *, debug: bool) -> NoReturn:
    if debug:
        import traceback

        traceback.print_exc()
    click.echo(f"loca-theory: {' '.join(message.split())}", err=True)
    sys.exit(code)
