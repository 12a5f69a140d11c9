"""``loca-theory correlate``: compare methods when entries are dependent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from loca_theory.cli.methods import chosen_methods
from loca_theory.cli.options import PARTIAL_RESULTS, Common, command_of
from loca_theory.cli.output import Rows, console, emit, print_note
from loca_theory.cli.running import running, write_result

if TYPE_CHECKING:
    from loca_theory.dependence.results import CrossingRow, PowerRow

_DEFAULT_SIZE = 300
_STRUCTURES = "shared-mean,equicorrelated,row-equicorrelated,ar1,blocks,scaled,spiked,power-law"
_SHORT = {"rho": "ρ", "low-frequency": "low freq."}
_PROTOCOLS = {
    "same-draw": "same-draw: all methods approximate the same matrix",
    "iid-reference": "iid-reference: LoCA approximates independent entries",
}
_SETTING = (
    "Matrices: {p} × {q}, at the budget of LoRA of rank r. wins: has the smaller error at every "
    "strength that was searched."
)
_STATISTICS = (
    "Each test sees one matrix. T: the paper's statistic, the energy beyond the edges of the bulk "
    "(Marchenko–Pastur law of independent entries); largest: the largest eigenvalue; spikes: the "
    "number of eigenvalues above the bulk; low freq.: the energy in the lowest frequencies of the "
    "DCT. independent: the size, in the {null:,} draws that gave the critical values (low freq. "
    "has an exact one). Other "
    "rows: the power at some weak strengths, of {draws:,} draws each, with a 95% interval of at "
    "most ±{points:.0f} points. --format json and --out also have the critical values, and the "
    "same after centring the columns."
)
_FINDINGS = {"D throughout": "LoCA wins", "R throughout": "LoRA wins", "R first": "LoRA first"}


@command_of(
    "dependence.study:correlate",
    out="Folder for the tables, their manifests (settings and versions, as JSON), the figures and "
    f"{PARTIAL_RESULTS}",
    rare=("shape", "exponent", "seed"),
    without=("protocols", "level", "null_draws"),
    size={"flag": "--K", "type": click.IntRange(2, 20_000), "metavar": "INTEGER",
          "help": f"Size of square matrices.  [default: {_DEFAULT_SIZE}]"},
    ranks={"flag": "--r", "default": "8,16,24,32"},
    structures={"default": _STRUCTURES},
    methods={
        "help": "Methods to compare with LoRA and LoCA, which are always included; 'all' stands "
        "for those of the package. Name your own method as module:attribute. Default: Fourier "
        "pairs, entries and the printed line under same-draw; the bounds and the printed line "
        "under iid-reference."
    },
    draws={"type": click.IntRange(max=1_000_000), "default": 100, "metavar": "INTEGER"},
)  # fmt: skip
def command(*, common: Common, methods: tuple[str, ...] | None, **asked: Any) -> None:
    """Compare methods on dependent entries, and measure the power of tests for dependence.

    \b
    Examples:
      loca-theory correlate --K 300 --r 8,16,24,32 --rho 0..0.4..0.01
      loca-theory correlate --structures spiked:3 --fraction 0..0.3..0.05
      loca-theory correlate --K 64 --r 4 --methods DoRA,my_module:mine
    """
    # Imported here, because --help does not need them.
    from loca_theory.dependence import correlate
    from loca_theory.expressivity import Budget

    if not (asked["size"] or asked["shape"]):
        asked["size"] = _DEFAULT_SIZE
    p, q = asked["shape"] or 2 * [asked["size"]]
    budgets = (Budget(p, q, r) for r in asked["ranks"])
    chosen = None if methods is None else chosen_methods(methods, common, budgets)
    with running(common, "sweeping") as runner:
        result = correlate(**asked, methods=chosen, runner=runner)
    if common.out:
        write_result(result, common)

    def show() -> None:
        _print_setting(result.manifest["grid"])
        _print_crossings(result.crossings)
        if methods and not common.out:
            common.note("the methods' errors are in JSON, CSV and the tables and figures of --out")
        _print_detection(result.detection)

    emit(result.to_json(), show, common)


def _print_setting(grid: Mapping[str, Any]) -> None:
    """Print which matrices are compared, at which budget, and what the words mean."""
    p, q = grid["shape"]
    text = _SETTING.format(p=p, q=q)
    if grid["options"]:
        options = ", ".join(f"{name}:{option}" for name, option in grid["options"].items())
        text += f" With the options {options}."
    print_note(console(), text)


def _print_crossings(rows: Sequence[CrossingRow]) -> None:
    """Print where LoRA's error falls below LoCA's: a table per protocol, a line per structure."""
    out = console()
    out.print("Where LoRA overtakes LoCA: strength of the dependence, 95% interval", style="bold")
    for protocol in dict.fromkeys(row.protocol for row in rows):
        out.print(f"\n{_PROTOCOLS[protocol]}")
        _crossings([row for row in rows if row.protocol == protocol]).print(out)
    out.print()


def _crossings(rows: Sequence[CrossingRow]) -> Rows:
    found: dict[str, list[CrossingRow]] = {}
    for row in rows:
        found.setdefault(row.structure, []).append(row)
    cells: list[dict[str, str | Text]] = []
    for structure, mine in found.items():
        first = mine[0]
        parameter = _SHORT.get(first.parameter, first.parameter)
        searched = f"{parameter} {first.searched_from:g}..{first.searched_to:g}"
        crossings = {f"r = {row.r}": _interval(row) for row in mine}
        cells.append({"structure": structure, **crossings, "searched": searched})
        forms = {f"r = {row.r}": row.closed_form for row in mine}
        if any(value is not None for value in forms.values()):
            shown = {
                heading: Text("" if value is None else f"{value:.3f}      ", style="dim")
                for heading, value in forms.items()
            }
            name = Text("  closed form", style="dim")
            cells.append({"structure": name, **shown, "searched": ""})
    return Rows(cells, {"searched": "left"})


def _interval(row: CrossingRow) -> str:
    if row.crossing is None or row.low is None or row.high is None:
        return _FINDINGS[row.finding]
    return f"{row.crossing:.3f}±{(row.high - row.low) / 2:.3f}"


def _print_detection(rows: Sequence[PowerRow]) -> None:
    """Print how often each statistic detects the dependence."""
    if not rows:
        return
    out = console()
    out.print(f"How often tests at level {rows[0].level:.0%} detect the dependence", style="bold")
    draws, null = (next(row.draws for row in rows if (row.structure == "independent") == is_null)
                   for is_null in (False, True))  # fmt: skip
    # The normal interval is widest at a power of one half.
    points = 100 * 1.96 / math.sqrt(4 * draws)
    print_note(out, _STATISTICS.format(draws=draws, null=null, points=points))
    cells: dict[tuple[str, float | None], dict[str, str | Text]] = {}
    for row in rows:
        if row.centred:
            continue
        name = row.structure
        if row.parameter and row.value is not None:
            name += f", {_SHORT.get(row.parameter, row.parameter)} {row.value:g}"
        found = cells.setdefault((row.structure, row.value), {"structure": name})
        found[_SHORT.get(row.statistic, row.statistic)] = f"{row.power:.0%}"
    headings = dict.fromkeys(heading for found in cells.values() for heading in found)
    Rows([{heading: found.get(heading, "") for heading in headings} for found in cells.values()]
         ).print(out)  # fmt: skip
