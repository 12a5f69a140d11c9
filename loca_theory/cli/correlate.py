"""``loca-theory correlate``: compare methods when entries are dependent."""

from __future__ import annotations

import click

from loca_theory.cli.choices import PROTOCOLS, STRUCTURES
from loca_theory.cli.methods import chosen_methods
from loca_theory.cli.options import PARTIAL_RESULTS, SEED, WORKERS, Common, default_option, options
from loca_theory.cli.output import print_csv, print_json
from loca_theory.cli.progress import note
from loca_theory.cli.ranges import IntegerList, NameList, NumberList, Shape
from loca_theory.cli.stores import open_store, running, write_result


@click.command("correlate")
@click.option(
    "--K",
    "size",
    type=click.IntRange(2, 20_000),
    metavar="INTEGER",
    help="Size of square matrices.  [default: 300]",
)
@click.option("--shape", type=Shape(), metavar="PxQ", help="One rectangular shape, instead of --K.")
@default_option(
    "--r",
    "ranks",
    type=IntegerList(),
    default="8,16,24,32",
    help="LoRA ranks, which set the budgets.",
)
@click.option(
    "--structures",
    type=NameList(),
    default=",".join(STRUCTURES),
    metavar="NAMES",
    help=f"Kinds of dependence. Default: all, which are {', '.join(STRUCTURES)}. A number may "
    "follow three of them: ar1:0.1, this correlation of neighbouring columns, instead of --rho; "
    "blocks:8, blocks of 8 rows and columns, instead of the largest common divisor of the sides "
    "up to 16; spiked:3, three random directions of equal energy, instead of one.",
)
@click.option(
    "--protocols",
    type=NameList(),
    default=",".join(PROTOCOLS),
    metavar="NAMES",
    help="What the methods approximate. same-draw: all of them, the same matrix with dependent "
    "entries; iid-reference: LoRA, this matrix, and the others, a matrix with independent "
    "entries. Default: both.",
)
@click.option(
    "--methods",
    type=NameList(),
    metavar="NAMES",
    help="Methods to compare with LoRA and LoCA, which are always included; 'all' stands for those "
    "of the package. Name your own method as module:attribute. Default: Fourier pairs, entries and "
    "the printed line under same-draw; the bounds and the printed line under iid-reference.",
)
@click.option(
    "--rho",
    type=NumberList(),
    help="Correlations of the structures other than 'spiked', 'scaled' and 'power-law'.  "
    "[default: 0..0.4..0.01]",
)
@click.option(
    "--fraction",
    type=NumberList(),
    help="Fractions of the energy that 'spiked' has in random directions.  [default: 0..0.4..0.02]",
)
@click.option(
    "--exponent",
    type=NumberList(),
    help="Exponents with which the variances of 'scaled' and 'power-law' decay.  "
    "[default: 0..1.5..0.1]",
)
@default_option(
    "--draws",
    type=click.IntRange(max=1_000_000),
    default=100,
    metavar="INTEGER",
    help="Number of random draws of each structure.",
)
@default_option(
    "--null-draws",
    type=click.IntRange(1, 10_000_000),
    default=4000,
    metavar="INTEGER",
    help="Number of random draws of each test statistic for independent entries.",
)
@default_option(
    "--level",
    type=float,
    default=0.05,
    help="Significance level of the tests of independence.",
)
@options(
    SEED,
    *WORKERS,
    out="Folder for the tables, their manifests (settings and versions, as JSON), the figures and "
    f"{PARTIAL_RESULTS}",
)
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
    null_draws: int,
    level: float,
) -> None:
    """Compare methods on dependent entries, and measure the power of tests for dependence.

    \b
    Examples:
      loca-theory correlate --K 300 --r 8,16,24,32 --rho 0..0.4..0.01
      loca-theory correlate --structures spiked:3 --fraction 0..0.3..0.05 --format json
      loca-theory correlate --K 64 --r 4 --methods DoRA,my_module:my_method --out results
    """
    # Imported here, because --help does not need them.
    from loca_theory.dependence.protocols import find_protocols
    from loca_theory.dependence.structures import find_structures
    from loca_theory.dependence.study import Study
    from loca_theory.expressivity import Budget

    if size is not None and shape is not None:
        msg = "give either --K (square matrices) or --shape PxQ"
        raise click.UsageError(msg)
    p, q = shape or ((size or 300), (size or 300))
    budgets = (Budget(p, q, r) for r in ranks)
    study = Study(
        p,
        q,
        ranks,
        structures=find_structures(structures),
        protocols=find_protocols(protocols),
        methods=chosen_methods(methods, budgets, quiet=common.quiet) if methods else None,
        rho=rho,
        fraction=fraction,
        exponent=exponent,
        draws=draws,
        seed=common.seed,
        level=level,
        null_draws=null_draws,
    )
    with running(common, open_store(common), "sweeping") as runner:
        result = study.run(runner)
    if common.out:
        write_result(result, common)
    match common.output_format:
        case "json":
            print_json(result.to_json())
        case "csv":
            print_csv(result.to_json()["rows"])
            note("CSV has only the rows; JSON also has crossings and detection", quiet=common.quiet)
        case _:
            from loca_theory.cli.dependence_tables import print_crossings, print_detection

            print_crossings(result.crossings)
            if methods is not None and not common.out:
                note(
                    "the methods' errors are in JSON, CSV and the tables and figures of --out",
                    quiet=common.quiet,
                )
            print_detection(result.detection)
