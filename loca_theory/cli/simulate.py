"""``loca-theory simulate``: compute expected reconstruction errors for each method."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from loca_theory.cli.choices import ENGINES, SAMPLERS
from loca_theory.cli.methods import chosen_methods
from loca_theory.cli.options import PARTIAL_RESULTS, Common, command_of
from loca_theory.cli.output import emit, print_errors
from loca_theory.cli.progress import note
from loca_theory.cli.stores import open_store, running, write_result
from loca_theory.expressivity.methods.names import DEFAULT_KEYS, DISPLAY_NAMES, display_name

if TYPE_CHECKING:
    from loca_theory.expressivity.simulation import Simulation

# More draws are a typing error: their standard errors are needlessly small, and their list would
# fill the memory.
_MOST_DRAWS = 10_000_000


@command_of(
    "expressivity.simulation:simulate",
    out="Folder for the table, a manifest (settings and versions, as JSON), the figure and "
    f"{PARTIAL_RESULTS}",
    rare=("accounting", "value_bits", "sampler", "seed", "device"),
    sizes={"flag": "--K"},
    ranks={"flag": "--r", "required": True},
    methods={
        "default": ",".join(DEFAULT_KEYS),
        "show_default": False,
        "help": f"Methods to compare: 'all', or names from {', '.join(DISPLAY_NAMES.values())}; a "
        "letter of the paper and any case of letters will do. Name your own method as "
        f"module:attribute. Default: {', '.join(map(display_name, DEFAULT_KEYS))}.",
    },
    engine={"type": click.Choice([*ENGINES, "all"])},
    value_bits={"type": click.IntRange(max=1024), "metavar": "INTEGER"},
    draws={"type": click.IntRange(max=_MOST_DRAWS), "metavar": "INTEGER"},
    sampler={"type": click.Choice(SAMPLERS)},
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
    """Compute the expected reconstruction error of a Gaussian matrix for each method.

    Write lists as 8,16,32 or 8..32 or 8..32..4; ranges include both ends.

    \b
    Examples:
      loca-theory simulate --K 768 --r 8..32
      loca-theory simulate --K 4096 --r 8..32..4 --engine exact
      loca-theory simulate --shape 768x3072 --r 8,16 --format json
      loca-theory simulate --K 300 --r 8 --methods LoRA,LoCA,DoRA --sampler dense --out results
      loca-theory simulate --K 64 --r 4 --methods LoRA,LoCA,my_module:my_method
    """
    if (sizes is None) == (shape is None):
        msg = "give either --K (square matrices) or --shape PxQ"
        raise click.UsageError(msg)
    from loca_theory.expressivity import Accounting, Budget
    from loca_theory.expressivity.monte_carlo import Sampler
    from loca_theory.expressivity.simulation import Simulation, engines_of, squares

    shapes = squares(sizes) if sizes else (shape,) if shape else ()
    budgets = (
        Budget(p, q, r, Accounting(accounting), value_bits) for p, q in shapes for r in ranks
    )
    simulation = Simulation(
        shapes=shapes,
        ranks=ranks,
        methods=chosen_methods(methods, budgets, quiet=common.quiet),
        engines=engines_of(engine, sampler),
        accounting=Accounting(accounting),
        value_bits=value_bits,
        draws=draws,
        seed=common.seed,
        sampler=Sampler(sampler) if sampler else None,
    ).on_device(common.device)
    simulation.check_memory(common.jobs)
    # Exact values alone are not worth a store.
    stored = common.out is not None or simulation.draws_errors
    store = open_store(common) if stored else None
    with running(common, store, "simulating") as runner:
        result = simulation.run(runner)
    _note_gaps(simulation, common)
    if common.out:
        write_result(result, common)
    emit(result.to_json(), lambda: print_errors(result.rows, simulation.methods), common)


def _note_gaps(simulation: Simulation, common: Common) -> None:
    from loca_theory.expressivity.low_rank_exact import LARGEST_EXACT_RANK, LARGEST_EXACT_SIZE
    from loca_theory.expressivity.methods.method import Engine

    for method in simulation.unevaluated_methods:
        chosen = simulation.engines or (Engine.EXACT, Engine.MONTE_CARLO)
        known = {one for budget in simulation.budgets for one in method.engines(budget)}
        others = sorted(known.difference(chosen), reverse=True)
        note(
            f"{method.display_name} has no value from the engine {' or '.join(chosen)} at "
            "some of these "
            f"ranks; use --engine {' or '.join(others)}",
            quiet=common.quiet,
        )
    for method, ranks in simulation.fallbacks.items():
        note(
            f"{display_name(method)} is simulated at r = {', '.join(map(str, ranks))}: it "
            "is exact up to "
            f"r = {LARGEST_EXACT_RANK} and min(p, q) = {LARGEST_EXACT_SIZE}",
            quiet=common.quiet,
        )
    if simulation.draws == 1 and simulation.draws_errors:
        note("one draw has no standard error, so it is left empty", quiet=common.quiet)
