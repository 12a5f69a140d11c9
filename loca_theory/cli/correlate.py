"""``loca-theory correlate``: compare methods when entries are dependent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from loca_theory.cli.choices import PROTOCOLS, STRUCTURES
from loca_theory.cli.methods import chosen_methods
from loca_theory.cli.options import PARTIAL_RESULTS, Common, command_of
from loca_theory.cli.output import emit
from loca_theory.cli.progress import note
from loca_theory.cli.stores import open_store, running, write_result

if TYPE_CHECKING:
    from loca_theory.dependence import CorrelationResult


@command_of(
    "dependence.study:correlate",
    out="Folder for the tables, their manifests (settings and versions, as JSON), the figures and "
    f"{PARTIAL_RESULTS}",
    rare=("shape", "protocols", "exponent", "null_draws", "level", "seed"),
    size={"flag": "--K", "type": click.IntRange(2, 20_000), "metavar": "INTEGER",
          "help": "Size of square matrices.  [default: 300]"},
    ranks={"flag": "--r", "default": "8,16,24,32"},
    structures={
        "default": ",".join(STRUCTURES),
        "show_default": False,
        "help": f"Kinds of dependence. Default: all, which are {', '.join(STRUCTURES)}. A number "
        "may follow three of them: ar1:0.1, this correlation of neighbouring columns, instead of "
        "--rho; blocks:8, blocks of 8 rows and columns, instead of the largest common divisor of "
        "the sides up to 16; spiked:3, three random directions of equal energy, instead of one.",
    },
    protocols={"default": ",".join(PROTOCOLS)},
    methods={
        "help": "Methods to compare with LoRA and LoCA, which are always included; 'all' stands "
        "for those of the package. Name your own method as module:attribute. Default: Fourier "
        "pairs, entries and the printed line under same-draw; the bounds and the printed line "
        "under iid-reference."
    },
    draws={"type": click.IntRange(max=1_000_000), "default": 100, "metavar": "INTEGER"},
    null_draws={"type": click.IntRange(1, 10_000_000), "default": 4000, "metavar": "INTEGER"},
    level={"default": 0.05},
)  # fmt: skip
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
    emit(result.to_json(), lambda: _print(result, common, has_methods=methods is not None), common)
    if common.output_format == "csv":
        note("CSV has only the rows; JSON also has crossings and detection", quiet=common.quiet)


def _print(result: CorrelationResult, common: Common, *, has_methods: bool) -> None:
    from loca_theory.cli.dependence_tables import print_crossings, print_detection

    print_crossings(result.crossings)
    if has_methods and not common.out:
        line = "the methods' errors are in JSON, CSV and the tables and figures of --out"
        note(line, quiet=common.quiet)
    print_detection(result.detection)
