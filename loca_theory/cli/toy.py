"""``loca-theory toy``: how often searches solve the paper's toy problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from loca_theory.cli.options import PARTIAL_RESULTS, Common, command_of
from loca_theory.cli.output import Rows, console, emit
from loca_theory.cli.running import running, write_result
from loca_theory.convergence.interpretations import DEFAULT_INTERPRETATION, INTERPRETATIONS

if TYPE_CHECKING:
    from loca_theory.convergence.results import RecoveryRow

_NOTES = (
    "solved: all locations that generated the data are found; diverged: not solved",
    "low..high: exact (Clopper–Pearson) 95% interval of the percentage solved",
    "found: mean number of these locations that are occupied at the end",
    "median loss: final loss, in units of the loss at ΔW = 0",
)


@command_of(
    "convergence.study:toy",
    out="Folder for the tables, their manifests (settings and versions, as JSON), the figures and "
    f"{PARTIAL_RESULTS}",
    rare=("interpretations", "conditions", "components", "lr", "location_lr", "seed"),
    searches={
        "flag": "--search",
        "help": "Searches to run, or 'help' to list them.  [default: all]",
    },
    interpretations={
        "flag": "--interpretation",
        "default": DEFAULT_INTERPRETATION,
        "help": "Interpretations of what the paper's description leaves open: 'all', or some of "
        "default (none of the following); standard-deviation (20 and 0.2 are standard deviations, "
        "not variances); mean-of-samples (squared errors are averaged over samples only); sum "
        "(squared errors are summed); indices (locations are not scaled to [0, 1]); zero-border (Z "
        "is 0 beyond the spectrum); one-sided-border (differences are one-sided at the border); "
        "overwrite (of components at one location, only the last counts); half-period (phases of 5 "
        "steps, not 10); never-frozen (locations move in all steps, not half). A+B combines two.",
    },
    sizes={"flag": "--size"},
    conditions={"flag": "--condition"},
)
def command(
    *,
    common: Common,
    searches: tuple[str, ...] | None,
    interpretations: tuple[str, ...],
    **asked: Any,
) -> None:
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
    with running(common, "searching") as runner:
        result = toy(
            tuple(SEARCHES) if searches is None or "all" in searches else searches,
            interpretations=INTERPRETATIONS if "all" in interpretations else interpretations,
            runner=runner,
            **asked,
        )
    if common.out:
        write_result(result, common)
    document = {"rows": result.to_json()["rows"], "manifest": result.manifest}
    emit(document, lambda: _print(result.rows), common)


def _print(rows: Sequence[RecoveryRow]) -> None:
    """Print the success rate of each search: all details if there is only one kind of problem."""
    out, first = console(), rows[0]
    out.print(f"Problems solved by each search, after {first.steps} steps", style="bold")
    kinds = list(dict.fromkeys(map(_kind, rows)))
    if len(kinds) > 1:
        cells, notes = _compared(rows, kinds), _NOTES[:2]
    else:
        cells, notes = [_details(row) for row in rows], _NOTES
        line = f"{first.problems} problems: {first.size}×{first.size}, {first.components} "
        line += f"components, {_weights(first)} weights"
        if first.interpretation != DEFAULT_INTERPRETATION:
            line += f", interpretation {first.interpretation}"
        out.print(line)
    out.print()
    Rows(cells).print(out)
    for line in notes:
        out.print(line, style="dim")


def _details(row: RecoveryRow) -> dict[str, str | Text]:
    loss = row.median_final_loss
    return {
        "search": row.search,
        "solved": f"{100 * row.recovered:.2f} %",
        "low..high": _interval(row),
        "found": f"{row.mean_found:.2f} of {row.components}",
        "median loss": "diverged" if loss is None else f"{loss:.1e}",
        "diverged": str(row.diverged),
    }


_Kind = tuple[str, int, int, float | None]


def _kind(row: RecoveryRow) -> _Kind:
    return row.interpretation, row.size, row.components, row.condition


def _compared(rows: Sequence[RecoveryRow], kinds: Sequence[_Kind]) -> list[dict[str, str | Text]]:
    """The cells of a table with a column for each kind of problem."""
    # A heading shows the settings in which the kinds differ.
    differs = [len(set(values)) > 1 for values in zip(*kinds, strict=True)]
    found: dict[str, dict[str, RecoveryRow]] = {}
    for row in sorted(rows, key=lambda row: kinds.index(_kind(row))):
        found.setdefault(row.search, {})[_heading(row, differs)] = row
    cells: list[dict[str, str | Text]] = []
    for search in dict.fromkeys(row.search for row in rows):
        mine = found[search]
        solved = {kind: f"{100 * row.recovered:.1f} %" for kind, row in mine.items()}
        cells.append({"search": search, **solved})
        intervals = {kind: Text(_interval(row), style="dim") for kind, row in mine.items()}
        cells.append({"search": "", **intervals})
        counts = {kind: f"{row.diverged} diverged" for kind, row in mine.items() if row.diverged}
        if counts:
            shown = {kind: Text(counts.get(kind, ""), style="dim") for kind in mine}
            cells.append({"search": "", **shown})
    return cells


def _heading(row: RecoveryRow, differs: Sequence[bool]) -> str:
    components = f"{row.components} components"
    parts = (row.interpretation, f"{row.size}×{row.size}", components, _weights(row))
    shown = [part for part, is_shown in zip(parts, differs, strict=True) if is_shown]
    return "\n".join((*shown, f"n = {row.problems}"))


def _weights(row: RecoveryRow) -> str:
    return "Gaussian" if row.condition is None else f"condition {row.condition:g}"


def _interval(row: RecoveryRow) -> str:
    return f"{100 * row.low:.2f}..{100 * row.high:.2f}"
