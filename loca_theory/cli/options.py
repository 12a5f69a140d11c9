"""Options that every command has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from loca_theory.sweeps import Backend, Cluster

DEFAULT_OUT = Path("loca-results")


@dataclass(frozen=True)
class Common:
    """The values of the common options.

    Attributes:
        seed: Root seed.
        device: ``auto``, ``cpu`` or ``cuda[:N]``, as typed.
        jobs: Worker processes; −1 for one a core.
        out: Folder for results, None where the user named none.
        output_format: ``table``, ``json`` or ``csv``.
        quiet: No progress, no notes.
        cluster: Where workers are.
    """

    seed: int
    device: str
    jobs: int
    out: Path | None
    output_format: str
    quiet: bool
    cluster: Cluster

    @property
    def folder(self) -> Path:
        """Where results go."""
        return self.out or DEFAULT_OUT


def common_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the common options; the command receives them as one argument, ``common``."""

    def with_common(
        *,
        seed: int,
        device: str,
        jobs: int,
        out: Path | None,
        output_format: str,
        quiet: bool,
        backend: str,
        scheduler: str | None,
        debug: bool,
        **own: Any,
    ) -> Any:
        del debug  # read in main()
        cluster = Cluster(Backend(backend), scheduler)
        common = Common(seed, device, jobs, out, output_format, quiet, cluster)
        return function(common=common, **own)

    with_common.__doc__ = function.__doc__
    with_common.__name__ = function.__name__
    with_common.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    for option in reversed(_OPTIONS):
        with_common = option(with_common)
    return with_common


def _nonzero(ctx: click.Context, param: click.Parameter, value: int) -> int:
    if value == 0 or value < -1:
        msg = f"{value} workers make no sense; give a positive number, or -1 for one a core"
        raise click.BadParameter(msg, ctx, param)
    return value


_OPTIONS = (
    # Seeds stand in a table of 64-bit integers.
    click.option(
        "--seed",
        type=click.IntRange(max=2**63 - 1),
        default=0,
        show_default=True,
        metavar="INTEGER",
        help="Root seed.",
    ),
    click.option(
        "--device",
        default="auto",
        show_default=True,
        metavar="auto|cpu|cuda[:N]",
        help="Where dense linear algebra runs.",
    ),
    click.option(
        "-j",
        "--jobs",
        type=int,
        default=-1,
        callback=_nonzero,
        show_default=True,
        help="Worker processes, -1 for one a core. Results do not depend on it.",
    ),
    click.option(
        "--backend",
        type=click.Choice([backend.value for backend in Backend]),
        default=Backend.LOKY.value,
        show_default=True,
        help="Who runs the workers: this machine, or a dask or Ray cluster.",
    ),
    click.option(
        "--scheduler", metavar="ADDRESS", help="A running dask scheduler or Ray head to use."
    ),
    click.option(
        "--out",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Store results here: table, manifest, figure.",
    ),
    click.option(
        "--format",
        "output_format",
        type=click.Choice(["table", "json", "csv"]),
        default="table",
        show_default=True,
        help="What to print.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="No progress and no notes on stderr."),
    click.option("--debug", is_flag=True, help="Show the traceback of an error."),
)
