"""Check the ordering of Theorem 1: exactly for small matrices, in the limit for large ones.

Run ``python -m experiments.theorem1``. Nothing is simulated.
"""

from __future__ import annotations

import click

from loca_theory.cli.command import Command
from loca_theory.expressivity import (
    LARGEST_EXACT,
    THEOREM_1_ORDER,
    Accounting,
    limit_crossings,
    theorem_1_violations,
)

# The ordering of the theorem, and the same with each of the bounds M1 and M2 instead of F2.
_ORDERS = (THEOREM_1_ORDER, ("F1", "R", "M1", "D"), ("F1", "R", "M2", "D"))


@click.command(cls=Command)
@click.option(
    "--largest",
    type=click.IntRange(2, LARGEST_EXACT),
    default=LARGEST_EXACT,
    show_default=True,
    help="Largest K to check.",
)
def main(largest: int) -> None:
    """Print every failure of the ordering for r < K/3, and the crossings in the limit."""
    for order in _ORDERS:
        click.echo(f"{' > '.join(order)} for K = 2..{largest}, 1 <= r < K/3 (exact errors):")
        violations = theorem_1_violations(largest, order)
        for v in violations:
            click.echo(
                f"  K = {v.K}, r = {v.r}: {v.worse} {v.worse_error:.10f} is not above "
                f"{v.better} {v.better_error:.10f}"
            )
        if not violations:
            click.echo("  no failure")
    reversed_cases = theorem_1_violations(largest, ("F2", "D"), Accounting.MAIN_TEXT)
    click.echo(
        f"F2 > D with N2 = 2/3 N0 interpreted as locations fails at {len(reversed_cases)} of "
        f"{sum((size - 1) // 3 for size in range(2, largest + 1))} pairs (K, r)"
    )
    click.echo("Crossings as K grows with r/K fixed (paper's budget):")
    for crossing in limit_crossings():
        click.echo(
            f"  {crossing.lower} and {crossing.upper} cross at r/K = {crossing.ratio:.6f}, "
            f"error {crossing.error:.6f}"
        )


if __name__ == "__main__":
    main(prog_name="python -m experiments.theorem1")
