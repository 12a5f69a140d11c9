"""``loca-theory correlate``: the comparison when entries are not independent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from loca_theory.cli.options import POINTS_ONLY, SEED, WORKERS, Common, options
from loca_theory.cli.output import print_csv, print_json
from loca_theory.cli.progress import note
from loca_theory.cli.ranges import IntegerList, NameList, NumberList, Shape
from loca_theory.cli.studies import report_written, run_study, store_tables
from loca_theory.dependence import STRUCTURES, Protocol
from loca_theory.sweeps import load_rows

if TYPE_CHECKING:
    from loca_theory.dependence import Study


@click.command("correlate")
@click.option(
    "--K", "size", type=click.IntRange(2, 20_000), metavar="INTEGER", help="Size.  [default: 300]"
)
@click.option("--shape", type=Shape(), metavar="PxQ", help="A rectangular shape, instead of --K.")
@click.option(
    "--r",
    "ranks",
    type=IntegerList(),
    default="8,16,24,32",
    show_default=True,
    metavar="LIST",
    help="LoRA ranks.",
)
@click.option(
    "--structures",
    type=NameList(),
    default=",".join(STRUCTURES),
    metavar="NAMES",
    help=f"Kinds of dependence, by default all: {', '.join(STRUCTURES)}.",
)
@click.option(
    "--protocols",
    type=NameList(),
    default=",".join(Protocol),
    metavar="NAMES",
    help="same-draw: every method sees the same matrix; iid-reference: only LoRA sees the "
    "dependence. By default both.",
)
@click.option("--rho", type=NumberList(), metavar="LIST", help="[default: 0..0.4..0.01]")
@click.option(
    "--share",
    type=NumberList(),
    metavar="LIST",
    help="Of the energy.  [default: 0..0.4..0.02]",
)
@click.option(
    "--exponent",
    type=NumberList(),
    metavar="LIST",
    help="[default: 0..1.5..0.1]",
)
@click.option(
    "--draws",
    type=click.IntRange(max=1_000_000),
    default=100,
    show_default=True,
    metavar="INTEGER",
    help="Draws of each structure.",
)
@click.option(
    "--spikes",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    metavar="INTEGER",
    help="Directions that share the energy of spiked.",
)
@click.option(
    "--null-draws",
    type=click.IntRange(1, 10_000_000),
    default=4000,
    show_default=True,
    metavar="INTEGER",
    help="Draws of the tests' law under independence.",
)
@click.option("--level", type=float, default=0.05, show_default=True, help="Size of the tests.")
@options(SEED, *WORKERS, out=f"Store tables, manifests and figures here.  {POINTS_ONLY}")
def command(
    *,
    common: Common,
    size: int | None,
    shape: tuple[int, int] | None,
    ranks: tuple[int, ...],
    structures: tuple[str, ...],
    protocols: tuple[str, ...],
    rho: tuple[float, ...] | None,
    share: tuple[float, ...] | None,
    exponent: tuple[float, ...] | None,
    draws: int,
    spikes: int,
    null_draws: int,
    level: float,
) -> None:
    """Reconstruction under dependence: where LoRA overtakes, and who would notice.

    \b
    Examples:
      loca-theory correlate --K 300 --r 8,16,24,32 --rho 0..0.4..0.01
      loca-theory correlate --structures spiked --share 0..0.3..0.05 --format json
    """
    # Imports torch, which a look at the help shall not wait for.
    from loca_theory.dependence.study import Study
    from loca_theory.dependence.tables import ROW_COLUMNS

    if size is not None and shape is not None:
        msg = "give either --K (square matrices) or --shape PxQ"
        raise click.UsageError(msg)
    p, q = shape or ((size or 300), (size or 300))
    given = {"rho": rho, "share": share, "exponent": exponent}
    study = Study(
        p,
        q,
        ranks,
        structures=structures,
        protocols=_protocols(protocols),
        grids={name: values for name, values in given.items() if values},
        draws=draws,
        seed=common.seed,
        level=level,
        spikes=spikes,
        null_draws=null_draws,
    )
    _check_used(given, structures)
    tables, origin = run_study(study, common, doing="sweeping")
    if common.out:
        _write(tables, origin, study, common)
    match common.output_format:
        case "json":
            print_json({**tables, "manifest": origin})
        case "csv":
            print_csv(tables["rows"], ROW_COLUMNS)
            note("CSV holds the rows; crossings and detection are in JSON", quiet=common.quiet)
        case _:
            from loca_theory.cli.dependence_tables import print_crossings, print_detection

            print_crossings(tables["crossings"])
            print_detection(tables["detection"])


def _protocols(names: tuple[str, ...]) -> tuple[Protocol, ...]:
    known = {protocol.value for protocol in Protocol}
    for name in names:
        if name not in known:
            msg = f"unknown protocol {name!r}; choose from {', '.join(sorted(known))}"
            raise click.UsageError(msg)
    return tuple(Protocol(name) for name in names)


def _check_used(given: dict[str, tuple[float, ...] | None], structures: tuple[str, ...]) -> None:
    for parameter, values in given.items():
        owners = [one.name for one in STRUCTURES.values() if one.parameter == parameter]
        if values and not set(owners) & set(structures):
            msg = f"--{parameter} belongs to {', '.join(owners)}, none of which is among "
            msg += "--structures"
            raise click.UsageError(msg)


def _write(
    tables: dict[str, list[dict[str, Any]]], origin: dict[str, Any], study: Study, common: Common
) -> None:
    from loca_theory.plotting import save_figure
    from loca_theory.plotting.dependence import draw_crossings, draw_losses, draw_phase

    folder = common.folder
    written = store_tables(tables, origin, common, "correlate")
    losses, _ = load_rows(folder, "correlate-rows")
    crossings, _ = load_rows(folder, "correlate-crossings")
    for name in study.structures:
        figure_name = f"correlate-{name}"
        written += save_figure(lambda name=name: draw_losses(losses, name), folder, figure_name)
    written += save_figure(lambda: draw_crossings(crossings), folder, "correlate-crossings")
    if "spiked" in study.structures and study.spikes == 1:
        shape = (study.p, study.q)
        written += save_figure(lambda: draw_phase(crossings, shape), folder, "correlate-phase")
    report_written(written, common)
