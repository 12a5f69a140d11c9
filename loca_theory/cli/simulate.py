"""``loca-theory simulate``: expected reconstruction errors, method by method."""

from __future__ import annotations

import click

from loca_theory.cli.methods import chosen_methods
from loca_theory.cli.options import (
    DEVICE,
    POINTS_ONLY,
    SEED,
    WORKERS,
    Common,
    default_option,
    options,
)
from loca_theory.cli.output import print_csv, print_errors, print_json
from loca_theory.cli.progress import note
from loca_theory.cli.ranges import IntegerList, NameList, Shape
from loca_theory.cli.stores import note_idle, open_store, running, write_result
from loca_theory.expressivity import (
    DEFAULT_METHODS,
    METHODS,
    Accounting,
    Engine,
    Sampler,
    Simulation,
)
from loca_theory.expressivity.simulation import DEFAULT_DRAWS, engines_of, squares

# More are a typing error: standard errors below any use, and a list that fills the memory.
_MOST_DRAWS = 10_000_000


@click.command("simulate")
@click.option("--K", "sizes", type=IntegerList(), help="Sizes of square matrices.")
@click.option("--shape", type=Shape(), metavar="PxQ", help="One rectangular shape, instead of --K.")
@click.option("--r", "ranks", type=IntegerList(), required=True, help="LoRA ranks.")
@click.option(
    "--methods",
    type=NameList(),
    default=",".join(method.name for method in DEFAULT_METHODS),
    metavar="NAMES",
    help=f"Methods to compare, or 'all'. There are {', '.join(METHODS)}; all but DoRA and VeRA are "
    "the default. One of your own is module:attribute.",
)
@click.option(
    "--engine",
    type=click.Choice([*(engine.value for engine in Engine), "all"]),
    help="Default: exact where a method has it, and monte-carlo beside it.",
)
@default_option(
    "--accounting",
    type=click.Choice([accounting.value for accounting in Accounting]),
    default=Accounting.PAPER.value,
    help="What every method may spend when LoRA spends (p+q)r numbers.",
)
@default_option(
    "--value-bits",
    type=click.IntRange(max=1024),
    default=16,
    metavar="INTEGER",
    help="Bits of a stored number (for RD and --accounting bits).",
)
@default_option(
    "--draws",
    type=click.IntRange(max=_MOST_DRAWS),
    default=DEFAULT_DRAWS,
    metavar="INTEGER",
    help="Random draws.",
)
@click.option(
    "--sampler",
    type=click.Choice([sampler.value for sampler in Sampler]),
    help="How to draw: from the law of the error, or from dense matrices. Default: reduced where "
    "a method has such a law.",
)
@options(
    SEED,
    DEVICE,
    *WORKERS,
    out=f"Store the table, its manifest and the figure here.  {POINTS_ONLY}",
)
def command(
    *,
    common: Common,
    sizes: tuple[int, ...] | None,
    shape: tuple[int, int] | None,
    ranks: tuple[int, ...],
    methods: tuple[str, ...],
    engine: str | None,
    accounting: str,
    value_bits: int,
    draws: int,
    sampler: str | None,
) -> None:
    """Expected reconstruction error of a Gaussian matrix, method by method.

    Lists are written 8,16,32 or 8..32 or 8..32..4, both ends included.

    \b
    Examples:
      loca-theory simulate --K 768 --r 8..32
      loca-theory simulate --K 4096 --r 8..32..4 --engine exact
      loca-theory simulate --shape 768x3072 --r 8,16 --format json
      loca-theory simulate --K 300 --r 8 --methods R,D,DoRA --sampler dense --out results
      loca-theory simulate --K 64 --r 4 --methods R,D,my_module:my_method
    """
    if (sizes is None) == (shape is None):
        msg = "give either --K (square matrices) or --shape PxQ"
        raise click.UsageError(msg)
    simulation = Simulation(
        shapes=squares(sizes) if sizes else (shape,) if shape else (),
        ranks=ranks,
        methods=chosen_methods(methods),
        engines=engines_of(engine),
        accounting=Accounting(accounting),
        value_bits=value_bits,
        draws=draws,
        seed=common.seed,
        sampler=Sampler(sampler) if sampler else None,
    ).on_device(common.device)
    simulation.check_memory(common.jobs)
    # Exact values are not worth a folder of their own.
    stored = common.out is not None or Engine.MONTE_CARLO in simulation.engines
    store = open_store(common, simulation.version) if stored else None
    with running(common, store, "simulating") as runner:
        result = simulation.run(runner)
    if not stored:
        note_idle(store, common)
    _say_what_to_know(simulation, common)
    if common.out:
        write_result(result, common)
    match common.output_format:
        case "json":
            print_json(result.to_json())
        case "csv":
            print_csv(result.to_json()["rows"])
        case _:
            print_errors(result.rows, simulation.methods)


def _say_what_to_know(simulation: Simulation, common: Common) -> None:
    for method in simulation.without_engine:
        others = {one for p, q in simulation.shapes for one in method.engines(p, q)}
        note(
            f"{method.name} has no value from the engine {' or '.join(simulation.engines)} at this "
            f"size; ask for --engine {' or '.join(sorted(others, reverse=True))}",
            quiet=common.quiet,
        )
    if simulation.draws == 1 and Engine.MONTE_CARLO in simulation.engines:
        note("one draw has no standard error; it is left empty", quiet=common.quiet)
