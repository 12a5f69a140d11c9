"""``loca-theory toy``: how often searches solve the paper's toy problem."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from loca_theory.cli.options import PARTIAL_RESULTS, Common, command_of
from loca_theory.cli.output import Rows, console, emit, print_note
from loca_theory.cli.ranges import WholeNumber
from loca_theory.cli.running import running, write_result
from loca_theory.convergence.interpretations import DEFAULT_INTERPRETATION, INTERPRETATIONS

if TYPE_CHECKING:
    from loca_theory.convergence.results import RecoveryRow

_SOLVED = """\
solved: all locations of the data are found; exact (Clopper–Pearson) interval
diverged: the loss exceeded 10⁶ times that at ΔW = 0; counted as not solved"""
_FOUND = """
found: mean number of these locations that are occupied at the end
median loss: final loss, in units of the loss at ΔW = 0"""
_SEARCHES = "\n`loca-theory toy --search help` describes the searches"


_COUNT = {"type": WholeNumber(max=1_000_000), "metavar": "INTEGER"}


@command_of(
    "convergence.study:toy",
    out="Folder for the tables, their manifests (settings and versions, as JSON), the figures and "
    f"{PARTIAL_RESULTS}",
    rare=("interpretations", "conditions", "components", "lr", "location_lr", "seed"),
    searches={
        "flag": "--search",
        "help": "Searches to run, or 'help' to list them.  [default: all]",
    },
    interpretations={"flag": "--interpretation", "default": DEFAULT_INTERPRETATION},
    sizes={"flag": "--size"},
    conditions={"flag": "--condition"},
    problems=_COUNT,
    steps=_COUNT,
)
def command(*, common: Common, searches: tuple[str, ...] | None, **arguments: Any) -> None:
    """Measure how often training finds the locations that generated the paper's toy data.

    The data come from a weight change with a few DCT coefficients, whose locations each search has
    to find.

    \b
    Examples:
      loca-theory toy --problems 2000 --search central,swap
      loca-theory toy --search central,reselect --interpretation all
      loca-theory toy --size 6,16,32,64,128 --condition 1,10,gaussian
    """
    # Imported here, because it loads torch, which --help does not need.
    from loca_theory.convergence import toy
    from loca_theory.convergence.searches import SEARCHES

    if searches == ("help",):
        for name, kind in SEARCHES.items():
            click.echo(f"{name:<18} {kind.title}")
        return
    if searches is None or "all" in searches:
        searches = tuple(SEARCHES)
    if "all" in arguments["interpretations"]:
        arguments["interpretations"] = INTERPRETATIONS
    with running(common, "searching") as runner:
        result = toy(searches, runner=runner, **arguments)
    write_result(result, common)
    document = {"rows": result.to_json()["rows"], "manifest": result.manifest}
    emit(document, lambda: _print(result.rows), common)


def _print(rows: Sequence[RecoveryRow]) -> None:
    """Print the success rate of each search: all details if there is only one kind of problem."""
    out, settings = console(), [_settings(row) for row in rows]
    differing = [name for name in settings[0] if len({setting[name] for setting in settings}) > 1]
    common = [
        f"{name}: {text}"
        for name, text in settings[0].items()
        if name not in differing and text != DEFAULT_INTERPRETATION
    ]
    out.print(f"Problems solved by each search, after {rows[0].steps} steps", style="bold")
    print_note(out, ", ".join(common))
    # Searches with the same results share a row.
    searches: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for row, setting in zip(rows, settings, strict=True):
        cells = {name: setting[name] for name in differing}
        # The digits that one problem more can change.
        digits = max(0, math.ceil(math.log10(row.problems)) - 2)
        cells["solved"] = f"{row.recovered:.{digits}%}"
        cells["95% interval"] = f"{100 * row.low:.{digits}f}..{100 * row.high:.{digits}f}%"
        if not differing:
            loss = row.median_final_loss
            cells["found"] = f"{row.mean_found:.2f} of {row.components}"
            cells["median loss"] = "diverged" if loss is None else f"{loss:.1e}"
        cells["diverged"] = f"{row.diverged or ''}"
        searches.setdefault(tuple(cells.items()), []).append(row.search)
    table = [{"search": ", ".join(names), **dict(cells)} for cells, names in searches.items()]
    Rows(table).print(out)
    print_note(out, _SOLVED + _FOUND * (not differing) + _SEARCHES)


def _settings(row: RecoveryRow) -> dict[str, str]:
    """What kind of problem it is, in words."""
    return {
        "problems": f"{row.problems}",
        "size": f"{row.size}×{row.size}",
        "components": f"{row.components}",
        "weights": "Gaussian" if row.condition is None else f"condition {row.condition:g}",
        "interpretation": row.interpretation,
    }
