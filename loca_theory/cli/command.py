"""Commands that turn every expected failure into one line and an exit code."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any, NoReturn

import click

from loca_theory.cli.printable import printable
from loca_theory.errors import InvalidArgumentError, LocaTheoryError

_ERROR, _USAGE, _INTERRUPTED = 1, 2, 130


class Command(click.Command):
    """A command whose failures are one line on stderr; ``--debug`` adds the traceback.

    Exit codes: 0 done, 1 error, 2 usage, 130 interrupted, or the number that the command returns.
    """

    def main(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **_: Any
    ) -> NoReturn:
        """Run the command line and exit."""
        arguments = sys.argv[1:] if args is None else list(args)
        name, debug = prog_name or self.name or "", "--debug" in arguments
        self._main_shell_completion({}, name)
        # A scheduler's request to end is an interruption, as Ctrl-C is.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if isinstance(sys.stdout, TextIOWrapper):
            # Write a question mark for a character, such as ±, that the output cannot encode.
            sys.stdout.reconfigure(errors="replace")
        try:
            # Not click's own main, because it prints an empty line when it is interrupted.
            with self.make_context(name, arguments) as ctx:
                result = self.invoke(ctx)
            sys.stdout.flush()
        except click.exceptions.Exit as done:
            sys.exit(done.exit_code)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(_USAGE)
        except click.ClickException as error:
            _fail(name, _message(error), error.exit_code, debug=debug)
        except (click.Abort, KeyboardInterrupt):
            _fail(name, "interrupted", _INTERRUPTED, debug=debug)
        except MemoryError as error:
            why = f"{error or 'no more is free'}; choose a smaller matrix or fewer of them"
            _fail(name, f"the memory does not suffice: {why}", _ERROR, debug=debug)
        except OSError as error:
            # Discard the buffered output, which Python would otherwise fail to write when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):
                # The reader of the output (head, a pager) has closed it, so print nothing more.
                sys.exit(_ERROR)
            _fail(name, str(error), _ERROR, debug=debug)
        sys.exit(result if isinstance(result, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error of the package becomes one of click, in flags."""
        try:
            return super().invoke(ctx)
        except LocaTheoryError as error:
            failure = click.ClickException(in_flags(str(error)))
            failure.exit_code = _exit_code(error)  # pyright: ignore[reportAttributeAccessIssue]
            raise failure from error


def in_flags(message: str) -> str:
    """Replace arguments in a message of the library by the options of the command that runs.

    ``device="cpu"`` becomes ``--device cpu`` if the command has that option, ``rho=...`` becomes
    ``--rho LIST``, ``check=True`` becomes ``--check``, and ``folder="..."`` becomes ``--out DIR``.
    """
    parameters = click.get_current_context().command.params
    options = {p.name: p for p in parameters if isinstance(p, click.Option)}

    def flag(match: re.Match[str]) -> str:
        option = options.get("out" if match[1] == "folder" else match[1])
        if option is None:
            return match[0]
        value = match[2].strip('"')
        if value == "True":
            return max(option.opts, key=len)
        if value == "...":
            value = option.metavar or option.type.name.upper()
        return f"{max(option.opts, key=len)} {value}"

    return re.sub(r'\b(\w+)=("[^"]*"|\d+|True|\.{3})', flag, message)


def _message(error: click.ClickException) -> str:
    """The text of an error, and the help that lists the options if one is unknown or missing."""
    text = error.format_message()
    is_value = type(error) is click.BadParameter
    if isinstance(error, click.UsageError) and error.ctx and not is_value:
        return f"{text.rstrip('.')}; see {error.ctx.command_path} --help"
    return text


def _exit_code(error: LocaTheoryError) -> int:
    from loca_theory.sweeps.runner import SweepInterruptedError

    if isinstance(error, SweepInterruptedError):
        return _INTERRUPTED
    return _USAGE if isinstance(error, InvalidArgumentError) else _ERROR


def _fail(name: str, message: str, code: int, *, debug: bool) -> NoReturn:
    if debug:
        import traceback

        traceback.print_exc()
    click.echo(f"{name}: {printable(' '.join(message.split()))}", err=True)
    sys.exit(code)
