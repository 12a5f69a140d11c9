"""``loca-theory correlate``: compare methods when entries are dependent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from loca_theory.cli.commands.methods import chosen_methods, search_current_folder
from loca_theory.cli.options import PARTIAL_RESULTS, Common, command_of
from loca_theory.cli.output import Rows, console, emit, print_note
from loca_theory.cli.ranges import WholeNumber
from loca_theory.cli.running import running, write_result

if TYPE_CHECKING:
    from rich.console import Console

    from loca_theory.dependence.results import CrossingRow, PowerRow

_DEFAULT_SIZE = 300
_STRUCTURES = "shared-mean,equicorrelated,row-equicorrelated,ar1,blocks,scaled,spiked,power-law"
_SHORT = {"rho": "ρ", "low-frequency": "low freq."}
_PROTOCOLS = {
    "same-draw": "same-draw: all methods approximate the same matrix",
    "iid-reference": "iid-reference: LoCA approximates independent entries",
}
_SETTING = (
    "Matrices: {p} × {q}, at the budget of LoRA of rank r. 'LoCA throughout': LoCA retains more at "
    "every strength that was searched; 'LoRA at the start': LoRA does at the weakest, but not at "
    "all."
)
_STATISTICS = (
    "Power of tests that see one matrix, in {draws:,} draws (95% intervals of at most "
    "±{points:.0f} points); in the row of independent entries the rate of false positives, in "
    "{null:,} draws. T: the paper's statistic, the energy beyond the Marchenko–Pastur law; "
    "largest: the largest eigenvalue; spikes: the number above that law; low freq.: the energy in "
    "the DCT's lowest frequencies."
)


@command_of(
    "dependence.study:correlate",
    out="Folder for the tables, their manifests (settings and versions, as JSON), the figures and "
    f"{PARTIAL_RESULTS}",
    rare=("shape", "fraction", "exponent", "seed"),
    without=("protocols", "level", "null_draws"),
    size={
        "flag": "--K",
        "type": WholeNumber(2, 20_000),
        "metavar": "INTEGER",
        "help": f"Size of square matrices.  [default: {_DEFAULT_SIZE}]",
    },
    ranks={"flag": "--r", "default": "8,16,24,32"},
    structures={"default": _STRUCTURES},
    methods={
        "help": "Methods to compare with LoRA and LoCA, which are always included; 'all' stands "
        "for those of the package. Name your own method as module:attribute. Default: Fourier "
        "pairs, entries and the printed line under same-draw; the bounds and the printed line "
        "under iid-reference."
    },
    draws={"type": WholeNumber(max=1_000_000), "default": 100, "metavar": "INTEGER"},
)
def command(*, common: Common, methods: tuple[str, ...] | None, **arguments: Any) -> None:
    """Compare methods on dependent entries, and measure the power of tests for dependence.

    \b
    Examples:
      loca-theory correlate --K 300 --r 8,16,24,32 --rho 0..0.4..0.01
      loca-theory correlate --structures spiked:3 --fraction 0..0.3..0.05
      loca-theory correlate --K 64 --r 4 --methods DoRA,my_module:mine
      loca-theory correlate --K 64 --r 4 --structures ar1,my_module:Mine
    """
    # Imported here, because --help does not need them.
    from loca_theory.dependence import correlate
    from loca_theory.dependence.structures import find_structures
    from loca_theory.expressivity import Budget

    if not (arguments["size"] or arguments["shape"]):
        arguments["size"] = _DEFAULT_SIZE
    p, q = arguments["shape"] or 2 * [arguments["size"]]
    budgets = (Budget(p, q, r) for r in arguments["ranks"])
    chosen = None if methods is None else chosen_methods(methods, common, budgets)
    search_current_folder(arguments["structures"])
    arguments["structures"] = structures = find_structures(arguments["structures"])
    with running(common, "sweeping") as runner:
        result = correlate(**arguments, methods=chosen, runner=runner)
    write_result(result, common)

    def show() -> None:
        out = console()
        print_note(out, _SETTING.format(p=p, q=q))
        _print_crossings(out, result.crossings)
        for structure in structures:
            option = "" if structure.option is None else f":{structure.option:g}"
            out.print(f"  {structure.name + option:<20}  {structure.title}", style="dim")
        out.print()
        if methods and not common.out:
            common.note("the methods' errors are in JSON, CSV and the tables and figures of --out")
        _print_detection(out, result.detection)

    emit(result.to_json(), show, common)


def _print_crossings(out: Console, rows: Sequence[CrossingRow]) -> None:
    """Print where LoRA's error falls below LoCA's: a table per protocol, a line per structure."""
    text = "Where LoRA overtakes LoCA: strength of the dependence, 95% interval\n"
    out.print(text, style="bold")
    for protocol in dict.fromkeys(row.protocol for row in rows):
        out.print(_PROTOCOLS[protocol])
        _crossings([row for row in rows if row.protocol == protocol]).print(out)


def _crossings(rows: Sequence[CrossingRow]) -> Rows:
    cells = []
    for structure, group in groupby(rows, attrgetter("structure")):
        of_structure = list(group)
        parameter = _SHORT.get(of_structure[0].parameter, of_structure[0].parameter)
        searched = f"{parameter} {of_structure[0].searched_from:g}..{of_structure[0].searched_to:g}"
        crossings = {f"r = {row.r}": _interval(row) for row in of_structure}
        cells.append({"structure": structure, **crossings, "searched": searched})
        forms = {
            f"r = {row.r}": "" if row.closed_form is None else f"{row.closed_form:.3f}      "
            for row in of_structure
        }
        if any(forms.values()):
            cells.append({"structure": "  closed form", **forms})
    return Rows(cells, {"searched": "left"})


def _interval(row: CrossingRow) -> str:
    if row.crossing is None or row.low is None or row.high is None:
        return row.finding
    return f"{row.crossing:.3f}±{(row.high - row.low) / 2:.3f}"


def _print_detection(out: Console, rows: Sequence[PowerRow]) -> None:
    """Print how often each statistic detects the dependence."""
    if not rows:
        return
    out.print(f"How often tests at level {rows[0].level:.0%} detect the dependence", style="bold")
    draws = {row.structure == "independent": row.draws for row in rows}
    # The normal interval is widest at a power of one half.
    points = 100 * 1.96 / math.sqrt(4 * draws[False])
    print_note(out, _STATISTICS.format(draws=draws[False], null=draws[True], points=points))
    statistics = dict.fromkeys(_SHORT.get(row.statistic, row.statistic) for row in rows)
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        name = row.structure
        if row.parameter:
            name += f", {_SHORT.get(row.parameter, row.parameter)} {row.value:g}"
        cells_of_row = cells.setdefault(name, {"structure": name, **dict.fromkeys(statistics, "")})
        if not row.centred:
            cells_of_row[_SHORT.get(row.statistic, row.statistic)] = f"{row.power:.0%}"
    Rows(list(cells.values())).print(out, then_empty=False)
