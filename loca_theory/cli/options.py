"""Options that commands share; each command adds those that affect it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from loca_theory.cli.choices import ACCOUNTINGS
from loca_theory.cli.cluster import BACKENDS, cluster

DEFAULT_OUT = Path("loca-results")
# End of the help of --out, for commands that store only partial results without it.
PARTIAL_RESULTS = (
    "partial results, from which an interrupted run continues.  "
    f"[default: {DEFAULT_OUT}, for the partial results only]"
)

# An option whose help shows its default.
default_option = partial(click.option, show_default=True)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True)
class Common:
    """Values of the shared options; the default if a command does not have an option.

    Attributes:
        output_format: ``table``, ``json`` or ``csv``.
        quiet: Whether to print no progress and no notes.
        out: Folder for results; None if the user gave none.
        seed: Root seed.
        device: ``auto``, ``cpu`` or ``cuda[:N]``, as typed.
        jobs: Number of worker processes; −1 for one per core.
    """

    output_format: str
    quiet: bool
    out: Path | None
    seed: int = 0
    device: str = "cpu"
    jobs: int = 1

    @property
    def folder(self) -> Path:
        """Folder for results."""
        return self.out or DEFAULT_OUT


class Folder(click.Path):
    """The path of a folder; an empty path, as from an unset variable, and bytes are errors."""

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(file_okay=file_okay, path_type=Path)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert the text to a path."""
        if value == "":
            self.fail("the name of the folder is empty; give a name, or omit the option",
                      param, ctx)  # fmt: skip
        try:
            str(value).encode()
        except UnicodeEncodeError:
            # Arrow and safetensors take names in UTF-8 alone.
            self.fail("the name of the folder is not valid UTF-8; choose another", param, ctx)
        return super().convert(value, param, ctx)


def options(*own: Decorator, out: str) -> Decorator:
    """Add shared options to a command, which receives their values as one argument, ``common``."""
    with_out = click.option("--out", type=Folder(), metavar="DIR", help=out)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def with_common(*, debug: bool, **given: Any) -> Any:
            del debug  # read by Command.main
            where = given.pop("backend", BACKENDS[0]), given.pop("scheduler", None)
            with cluster(*where, given.get("jobs", 1)):
                if where[0] != BACKENDS[0]:
                    given["jobs"] = -1  # all workers of the cluster
                shared = {name: given.pop(name) for name in _SHARED & set(given)}
                return function(common=Common(**shared), **given)

        with_common.__doc__ = function.__doc__
        with_common.__name__ = function.__name__
        with_common.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        for option in reversed((*own, with_out, *_PRINTING)):
            with_common = option(with_common)
        return with_common

    return decorate


def _nonzero(ctx: click.Context, param: click.Parameter, value: int) -> int:
    if value == 0 or value < -1:
        msg = f"jobs must be a positive number, or -1 for one per core, not {value}"
        raise click.BadParameter(msg, ctx, param)
    return value


_SHARED = set(Common.__dataclass_fields__)
# Tables store seeds as 64-bit integers.
SEED = default_option(
    "--seed",
    type=click.IntRange(max=2**63 - 1),
    default=0,
    metavar="INTEGER",
    help="Root seed.",
)
DEVICE = default_option(
    "--device",
    default="auto",
    metavar="auto|cpu|cuda[:N]",
    help="Device for dense linear algebra.",
)
ACCOUNTING = default_option(
    "--accounting",
    type=click.Choice(ACCOUNTINGS),
    default=ACCOUNTINGS[0],
    help="What a method may store at the budget of LoRA, (p+q)r numbers. paper: a value "
    "costs one number, and so does its location if the method selects it by looking at the matrix "
    "(random locations are free); main-text: as paper, with twice as many Fourier pairs; "
    "trainable: all locations are free; dof: as paper, but the budget is r(p+q-r) "
    "numbers; bits: as many bits as LoRA.",
)
WORKERS = (
    default_option(
        "-j",
        "--jobs",
        type=int,
        default=-1,
        callback=_nonzero,
        help="Number of worker processes, -1 for one per core. Results do not depend on it.",
    ),
    default_option(
        "--backend",
        type=click.Choice(BACKENDS),
        default=BACKENDS[0],
        help="Where workers run: on this machine (loky), or on a dask or Ray cluster.",
    ),
    click.option(
        "--scheduler", metavar="ADDRESS", help="Address of a running dask scheduler or Ray head."
    ),
)


_PRINTING = (
    default_option(
        "--format",
        "output_format",
        type=click.Choice(["table", "json", "csv"]),
        default="table",
        help="Format of the printed result.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Print no progress and no notes on stderr."),
    click.option("--debug", is_flag=True, help="Show the traceback of an error."),
)
