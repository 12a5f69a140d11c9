"""Compare the appendix on non-i.i.d. effects with its printed numbers.

``python -m experiments.dependence`` prints the crossings of R and D at K = 300 under each
interpretation of the covariance and each protocol, and the statistic T at the printed crossings
with its null distribution. It takes about two minutes on two cores.
"""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from loca_theory.cli.command import Command
from loca_theory.dependence import correlate
from loca_theory.sweeps import Runner

RANKS = (8, 16, 24, 32)
PRINTED_CROSSINGS = (0.09, 0.14, 0.17, 0.19)
PRINTED_T = (0.086, 0.134, 0.143, 0.146)
PRINTED_CRITICAL_T = 0.005


@click.command(cls=Command)
@click.option("--draws", default=100, show_default=True, help="Draws per structure.")
@click.option("--jobs", "-j", default=-1, show_default=True, help="Worker processes.")
def main(draws: int, jobs: int) -> None:
    """Print the tables of crossings and of T."""
    names = ("shared-mean", "equicorrelated")
    result = correlate(300, ranks=RANKS, structures=names, draws=draws, runner=Runner(jobs=jobs))
    console = Console()
    crossings = Table("covariance", "protocol", *(f"r = {r}" for r in RANKS), title="crossings")
    crossings.add_row("", "printed", *map(str, PRINTED_CROSSINGS))
    for name in names:
        for protocol in ("same-draw", "iid-reference"):
            cells = [
                "none" if row.crossing is None else f"{row.crossing:.4f}"
                for row in result.crossings
                if (row.structure, row.protocol) == (name, protocol)
            ]
            crossings.add_row(name, protocol, *cells)
    console.print(crossings)
    statistic = Table(
        "entries", "rho", "printed T", "mean T", "s.e.", "P(T=0)", "critical", title="T"
    )
    printed = dict(zip(PRINTED_CROSSINGS, PRINTED_T, strict=True))
    for row in result.detection:
        if row.statistic != "T" or row.centred:
            continue
        own = "" if row.value is None else printed.get(row.value, "")
        cells = (row.mean, row.sd / row.draws**0.5, row.at_zero, row.critical_value)
        shown = (f"{value:.4f}" for value in cells)
        statistic.add_row(row.structure, str(row.value or ""), str(own), *shown)
    console.print(statistic)
    console.print(f"printed critical value of T: {PRINTED_CRITICAL_T}")


if __name__ == "__main__":
    main(prog_name="python -m experiments.dependence")
