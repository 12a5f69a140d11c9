"""Decide the ordering of Theorem 1 at every K and r < K/3 by exact errors, and in the limit.

Nothing is simulated. The margin is the smallest gap between neighbours in F1 > R > F2 > D; it
decides a pair (K, r) if it is larger than the bound on the numerical error. Takes about five
minutes on two cores; a run that is stopped goes on where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from loca_theory.cli.options import Common, command_of
from loca_theory.cli.output import console, emit
from loca_theory.cli.running import running, write_result
from loca_theory.expressivity import Accounting
from loca_theory.expressivity.limits import limit_crossings
from loca_theory.expressivity.ordering import THEOREM_1_ORDER, Ordering, OrderingRow
from loca_theory.sweeps.runner import DEFAULT_RUNNER

_LARGEST_SMALL = 40
# Variants at small sizes: the bounds M1 and M2 on F2 that the proof uses, and the other
# interpretation of N2 in the main text.
_VARIANTS = (
    (("F1", "R", "M1", "D"), Accounting.PAPER),
    (("F1", "R", "M2", "D"), Accounting.PAPER),
    (THEOREM_1_ORDER, Accounting.MAIN_TEXT),
)


@command_of(
    None,
    click.option(
        "--largest", type=click.IntRange(4, 2000), default=300, metavar="INTEGER", help="Largest K."
    ),
    out="Folder for the table, the figure and partial results.",
)
def main(common: Common, largest: int) -> None:
    """Decide Theorem 1 at every r < K/3, under four accountings.

    Example: python -m experiments.theorem1 --largest 60
    """
    study = Ordering(tuple(range(4, largest + 1)))
    with running(common, "deciding", "sizes") as runner:
        result = study.run(runner)
    if common.out:
        write_result(result, common)
    emit(result.to_json(), lambda: _print(result.rows, largest), common)


def _print(rows: Sequence[OrderingRow], largest: int) -> None:
    out = console()
    order = " > ".join(THEOREM_1_ORDER)
    out.print(f"{order} for K = 4..{largest}, 1 <= r < K/3", style="bold")
    out.print(_table(rows))
    small = min(largest, _LARGEST_SMALL)
    for methods, accounting in _VARIANTS:
        variant = Ordering(tuple(range(4, small + 1)), (accounting,), methods).run(DEFAULT_RUNNER)
        failures = [row for row in variant.rows if not row.holds]
        first = f"; the first at {_where(failures[0])}" if failures else ""
        out.print(
            f"{' > '.join(methods)}, accounting {accounting}, K <= {small}: fails at "
            f"{len(failures)} of {len(variant.rows)} pairs{first}",
        )
    out.print("\nCrossings as K grows with r/K fixed", style="bold")
    for accounting in (Accounting.PAPER, Accounting.DOF):
        for one in limit_crossings(accounting):
            out.print(
                f"  {accounting}: {one.lower} and {one.upper} at r/K = {one.ratio:.6f}, "
                f"error {one.error:.6f}",
            )


def _table(rows: Sequence[OrderingRow]) -> Table:
    headings = ("accounting", "pairs", "holds", "fails", "undecided")
    table = Table(*headings, "smallest gap", "at", "fails first at", box=SIMPLE_HEAD)
    for accounting in dict.fromkeys(row.accounting for row in rows):
        mine = [row for row in rows if row.accounting is accounting]
        holding = [row for row in mine if row.holds]
        failing = [row for row in mine if row.holds is False]
        undecided = len(mine) - len(holding) - len(failing)
        tightest = min(holding, key=attrgetter("margin"))
        counts = (len(mine), len(holding), len(failing), undecided)
        table.add_row(
            accounting.value,
            *(f"{count:,}" for count in counts),
            f"{tightest.margin:.3e}",
            _where(tightest),
            _where(failing[0]) if failing else "",
        )
    return table


def _where(row: OrderingRow) -> str:
    return f"K = {row.K}, r = {row.r} ({row.worse} > {row.better})"


if __name__ == "__main__":
    main(prog_name="python -m experiments.theorem1")
