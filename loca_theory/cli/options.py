"""Options that commands share; each command names those that do something for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps import Backend, Cluster, Runner

DEFAULT_OUT = Path("loca-results")
# The end of what --out does, for commands that store nothing but finished points without it.
POINTS_ONLY = f"[default: {DEFAULT_OUT}, for the points that an interrupted run goes on from]"

# An option whose help says its default.
default_option = partial(click.option, show_default=True)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True)
class Common:
    """The values of the shared options; the default of one that a command does not offer.

    Attributes:
        output_format: ``table``, ``json`` or ``csv``.
        quiet: No progress, no notes.
        out: Folder for results, None where the user named none.
        seed: Root seed.
        device: ``auto``, ``cpu`` or ``cuda[:N]``, as typed.
        jobs: Worker processes; −1 for one per core.
        cluster: Where workers are.
    """

    output_format: str
    quiet: bool
    out: Path | None
    seed: int = 0
    device: str = "cpu"
    jobs: int = 1
    cluster: Cluster = field(default_factory=Cluster)

    @property
    def folder(self) -> Path:
        """Where results go."""
        return self.out or DEFAULT_OUT


class Folder(click.Path):
    """The path of a folder; an empty one, as an unset shell variable leaves it, is refused."""

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(file_okay=file_okay, path_type=Path)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """The path."""
        if value == "":
            self.fail("the name of the folder is empty; name one, or leave the option out",
                      param, ctx)  # fmt: skip
        return super().convert(value, param, ctx)


def options(*own: Decorator, out: str) -> Decorator:
    """Add shared options; the command receives their values as one argument, ``common``.

    Args:
        own: Those among ``SEED``, ``DEVICE``, ``*WORKERS`` and others that do something for the
            command. It gets ``--out``, ``--format``, ``--quiet`` and ``--debug`` besides.
        out: What ``--out`` does, for the help.
    """
    with_out = click.option("--out", type=Folder(), metavar="DIR", help=out)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def with_common(*, debug: bool, **given: Any) -> Any:
            del debug  # read by Command.main
            if "backend" in given:
                backend = Backend(given.pop("backend"))
                given["cluster"] = Cluster(backend, given.pop("scheduler"))
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
    try:
        Runner(jobs=value)
    except InvalidArgumentError as error:
        raise click.BadParameter(str(error), ctx, param) from error
    return value


_SHARED = set(Common.__dataclass_fields__)
# Seeds stand in a table of 64-bit integers.
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
    help="Where dense linear algebra runs.",
)
WORKERS = (
    default_option(
        "-j",
        "--jobs",
        type=int,
        default=-1,
        callback=_nonzero,
        help="Worker processes, -1 for one per core. Results do not depend on it.",
    ),
    default_option(
        "--backend",
        type=click.Choice([backend.value for backend in Backend]),
        default=Backend.LOKY.value,
        help="Who runs the workers: this machine, or a dask or Ray cluster.",
    ),
    click.option(
        "--scheduler", metavar="ADDRESS", help="A running dask scheduler or Ray head to use."
    ),
)


_PRINTING = (
    default_option(
        "--format",
        "output_format",
        type=click.Choice(["table", "json", "csv"]),
        default="table",
        help="What to print.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="No progress and no notes on stderr."),
    click.option("--debug", is_flag=True, help="Show the traceback of an error."),
)
