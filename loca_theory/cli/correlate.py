"""``loca-theory correlate``: the comparison when entries are not independent."""

from __future__ import annotations

import click

from loca_theory.cli.methods import chosen_methods
from loca_theory.cli.options import POINTS_ONLY, SEED, WORKERS, Common, default_option, options
from loca_theory.cli.output import print_csv, print_json
from loca_theory.cli.progress import note
from loca_theory.cli.ranges import IntegerList, NameList, NumberList, Shape
from loca_theory.cli.stores import open_store, running, write_result
from loca_theory.dependence import STRUCTURES, Protocol, find_protocols


@click.command("correlate")
@click.option(
    "--K", "size", type=click.IntRange(2, 20_000), metavar="INTEGER", help="Size.  [default: 300]"
)
@click.option("--shape", type=Shape(), metavar="PxQ", help="A rectangular shape, instead of --K.")
@default_option("--r", "ranks", type=IntegerList(), default="8,16,24,32", help="LoRA ranks.")
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
@click.option(
    "--methods",
    type=NameList(),
    metavar="NAMES",
    help="Methods beside R and D, or 'all'; one of your own is module:attribute. Default: R, F2, "
    "D, S and U; under iid-reference R, D, M1, M2 and U.",
)
@click.option("--rho", type=NumberList(), help="[default: 0..0.4..0.01]")
@click.option("--fraction", type=NumberList(), help="Of the energy.  [default: 0..0.4..0.02]")
@click.option("--exponent", type=NumberList(), help="[default: 0..1.5..0.1]")
@default_option(
    "--draws",
    type=click.IntRange(max=1_000_000),
    default=100,
    metavar="INTEGER",
    help="Draws of each structure.",
)
@default_option(
    "--spikes",
    type=click.IntRange(1, 1000),
    default=1,
    metavar="INTEGER",
    help="Directions that share the energy of spiked.",
)
@default_option(
    "--null-draws",
    type=click.IntRange(1, 10_000_000),
    default=4000,
    metavar="INTEGER",
    help="Draws of the tests' law under independence.",
)
@default_option("--level", type=float, default=0.05, help="Size of the tests.")
@options(SEED, *WORKERS, out=f"Store tables, manifests and figures here.  {POINTS_ONLY}")
def command(
    *,
    common: Common,
    size: int | None,
    shape: tuple[int, int] | None,
    ranks: tuple[int, ...],
    structures: tuple[str, ...],
    protocols: tuple[str, ...],
    methods: tuple[str, ...] | None,
    rho: tuple[float, ...] | None,
    fraction: tuple[float, ...] | None,
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
      loca-theory correlate --structures spiked --fraction 0..0.3..0.05 --format json
      loca-theory correlate --K 64 --r 4 --methods DoRA,my_module:my_method --out results
    """
    # Imports torch, which a look at the help shall not wait for.
    from loca_theory.dependence import Study

    if size is not None and shape is not None:
        msg = "give either --K (square matrices) or --shape PxQ"
        raise click.UsageError(msg)
    p, q = shape or ((size or 300), (size or 300))
    study = Study(
        p,
        q,
        ranks,
        structures=structures,
        protocols=find_protocols(protocols),
        methods=None if methods is None else chosen_methods(methods),
        rho=rho,
        fraction=fraction,
        exponent=exponent,
        draws=draws,
        seed=common.seed,
        level=level,
        spikes=spikes,
        null_draws=null_draws,
    )
    with running(common, open_store(common, study.version), "sweeping") as runner:
        result = study.run(runner)
    if common.out:
        write_result(result, common)
    match common.output_format:
        case "json":
            print_json(result.to_json())
        case "csv":
            print_csv(result.to_json()["rows"])
            note("CSV holds the rows; crossings and detection are in JSON", quiet=common.quiet)
        case _:
            from loca_theory.cli.dependence_tables import print_crossings, print_detection

            print_crossings(result.crossings)
            if methods is not None and not common.out:
                note(
                    "the methods' errors are in JSON, CSV and the tables and figures of --out",
                    quiet=common.quiet,
                )
            print_detection(result.detection)
