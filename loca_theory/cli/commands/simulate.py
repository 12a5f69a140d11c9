"""``loca-theory simulate``: compute expected reconstruction errors for each method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from loca_theory.cli.columns import print_pointer
from loca_theory.cli.commands.methods import chosen_methods
from loca_theory.cli.options import PARTIAL_RESULTS, Common, command_of
from loca_theory.cli.output import Rows, console, emit, print_note
from loca_theory.cli.ranges import WholeNumber
from loca_theory.cli.running import running, write_result
from loca_theory.expressivity.methods.names import DEFAULT_NAMES, NAMES

if TYPE_CHECKING:
    from loca_theory.expressivity import Budget, Method, SimulationResult
    from loca_theory.expressivity.results import ErrorRow

# More draws are a typing error: their standard errors are needlessly small, and their list would
# fill the memory.
_MOST_DRAWS = 10_000_000
_DECIMALS, _ROUNDING = 4, 1e-14
# Tables, one per shape, and rows for people; JSON, CSV and files have all.
_MOST_TABLES, _MOST_ROWS = 10, 30
# Columns of a table with a row per rank, and of one with a row per method.
_MOST_METHODS, _MOST_RANKS = 12, 6
_ERROR = (
    "Expected relative error ‖W − Ŵ‖² / ‖W‖² (1 − energy retained) of matrices W with independent "
    "normal entries, at the budget of LoRA of rank r."
)
_MARKS = {
    "±": "±: simulated with {draws} draws, one standard error; without ±: exact",
    "≈": "≈: limit for large matrices",
}
_OFF = "†"
_OFF_NOTE = f" {_OFF} marks methods that spend more or less, by the percentages below."
_PREFERRED = ("exact", "monte-carlo", "asymptotic")


@command_of(
    "expressivity.simulation:simulate",
    out="Folder for the table, a manifest (settings and versions, as JSON), the figure and "
    f"{PARTIAL_RESULTS}",
    rare=("accounting", "value_bits", "sampler", "seed", "device"),
    sizes={"flag": "--K"},
    ranks={"flag": "--r", "required": True},
    methods={
        "default": ",".join(DEFAULT_NAMES),
        "show_default": False,
        "help": f"Methods to compare: 'all', or names from {', '.join(NAMES)}; a "
        "letter of the paper and any case of letters will do. Name your own method as "
        f"module:attribute. Default: {', '.join(DEFAULT_NAMES)}.",
    },
    value_bits={"type": WholeNumber(max=1024), "metavar": "INTEGER"},
    draws={"type": WholeNumber(max=_MOST_DRAWS), "metavar": "INTEGER"},
)
def command(*, common: Common, methods: tuple[str, ...], **arguments: Any) -> None:
    """Compute the expected reconstruction error of a Gaussian matrix for each method.

    Write lists as 8,16,32 or 8..32 or 8..32..4; ranges include both ends. --columns says what the
    columns of the files mean.

    \b
    Examples:
      loca-theory simulate --K 768 --r 8..32
      loca-theory simulate --K 4096 --r 8..32..4 --engine exact
      loca-theory simulate --shape 768x3072 --r 8,16 --format json
      loca-theory simulate --K 300 --r 8 --methods LoRA,LoCA,DoRA --out results
      loca-theory simulate --K 64 --r 4 --methods LoRA,LoCA,my_module:my_method
    """
    from loca_theory.expressivity import Accounting, Budget, simulate
    from loca_theory.expressivity.simulation import squares

    shapes = (
        *squares(arguments["sizes"] or ()),
        *([arguments["shape"]] if arguments["shape"] else []),
    )
    accounting, bits = Accounting(arguments["accounting"]), arguments["value_bits"]
    budgets = [Budget(p, q, r, accounting, bits) for p, q in shapes for r in arguments["ranks"]]
    chosen = chosen_methods(methods, common, budgets)
    with running(common, "simulating") as runner:
        result = simulate(**arguments, methods=chosen, runner=runner)
    _note_gaps(result, chosen, budgets, common)
    write_result(result, common)
    emit(result.to_json(), lambda: print_errors(result.rows, chosen), common)


def _note_gaps(
    result: SimulationResult, methods: Sequence[Method], budgets: Sequence[Budget], common: Common
) -> None:
    """Print notes on methods that have no value or no exact one at some budgets."""
    engines = result.manifest["grid"]["engines"] or ["exact", "monte-carlo"]
    computed = {(row.method, row.p, row.q, row.r) for row in result.rows}
    for method in methods:
        if any((method.name, budget.p, budget.q, budget.r) not in computed for budget in budgets):
            possible = {engine for budget in budgets for engine in method.engines(budget)}
            others_in_words = " or ".join(sorted(possible.difference(engines), reverse=True))
            common.note(
                f"{method.name} has no value from the engine {' or '.join(engines)} at some "
                f"of these ranks; use --engine {others_in_words}"
            )
    if any(row.draws == 1 for row in result.rows):
        common.note("one draw has no standard error, so it is left empty")


def print_errors(rows: Sequence[ErrorRow], methods: Sequence[Method]) -> None:
    """Print a table for each shape, of the methods from the worst to the best.

    Methods are columns, or rows if that is too wide. Of many ranks and shapes, a selection is
    printed. A cell is the exact value if there is one, else the simulated value (±), else the limit
    (≈). A method that does not spend the budget is marked (†).
    """
    out = console()
    print_note(out, f"{_ERROR}{_OFF_NOTE if _off_budget(rows) else ''}")
    shapes = list(dict.fromkeys((row.p, row.q) for row in rows))
    ranks = list(dict.fromkeys(row.r for row in rows))
    shared, most_ranks = False, _MOST_ROWS
    for p, q in _selection(shapes, _MOST_TABLES):
        of_shape = [row for row in rows if (row.p, row.q) == (p, q)]
        table = _by_rank(of_shape, between=" ± ")
        if not table.fits(out):
            table = _by_rank(of_shape, between="\n± ")
        if not table.fits(out) or len(table.cells[0]) > 1 + _MOST_METHODS:
            table, most_ranks = _by_method(of_shape), _MOST_RANKS
        out.print(f"{p} × {q}\n", style="bold")
        table.print(out)
        shared |= any("\n" in heading for heading in table.cells[0])
        shown = "".join(str(cell) for row in table.cells for cell in row.values())
        marks = [text for mark, text in _MARKS.items() if mark in shown]
        draws = max(row.draws or 0 for row in of_shape)
        print_note(out, "; ".join(marks or ["all values are exact"]).format(draws=f"{draws:,}"))
        if off := _off_budget(of_shape):
            spent = ", ".join(f"{name} {text}" for name, text in off.items())
            print_note(out, f"{_OFF}: spent of the budget: {spent}")
    for plural_noun, count, limit in (
        ("shapes", len(shapes), _MOST_TABLES),
        ("ranks", len(ranks), most_ranks),
    ):
        if count > limit:
            text = "from the first to the last, are shown; --format json or csv and --out have all"
            print_note(out, f"{limit} of the {count} {plural_noun}, {text}")
    if shared:
        print_note(out, "names above one column: equal to all digits shown")
    printed = {row.method for row in rows}
    named = [method for method in methods if method.name in printed]
    width = max(len(method.name) for method in named)
    for method in named:
        out.print(f"  {method.name:<{width}}  {method.title}", style="dim")
    print_pointer(out, "simulate")


def _by_rank(rows: Sequence[ErrorRow], *, between: str) -> Rows:
    """A row per rank; methods with equal cells share a column."""
    columns: dict[tuple[str, ...], list[str]] = {}
    for name, cells in _cells_by_method(rows, between).items():
        columns.setdefault(tuple(cells.values()), []).append(name)
    headings = ["\n".join(names) for names in columns.values()]
    ranks = dict.fromkeys(row.r for row in rows)
    values = zip(*columns, strict=True)
    table = [
        {"r": str(r), **dict(zip(headings, row, strict=True))}
        for r, row in _selection(list(zip(ranks, values, strict=True)), _MOST_ROWS)
    ]
    return Rows(table, {"r": "right"})


def _by_method(rows: Sequence[ErrorRow]) -> Rows:
    """A row per method and a column per rank."""
    ranks = _selection(list(dict.fromkeys(row.r for row in rows)), _MOST_RANKS)
    return Rows(
        [
            {"method": name, **{f"r = {r}": cells[r] for r in ranks}}
            for name, cells in _cells_by_method(rows, " ± ").items()
        ],
        {"method": "left"},
    )


def _cells_by_method(rows: Sequence[ErrorRow], between: str) -> dict[str, dict[int, str]]:
    """A cell per rank of each method, the worst first; ``between`` separates value and error."""
    ranks = dict.fromkeys(row.r for row in rows)
    best: dict[str, dict[int, ErrorRow]] = {row.method: {} for row in rows}
    # The preferred engine comes last, and replaces the others.
    for row in sorted(rows, key=lambda row: -_PREFERRED.index(row.engine)):
        best[row.method][row.r] = row
    off = _off_budget(rows)
    return {
        name + (_OFF if name in off else ""): {r: _cell(best[name].get(r), between) for r in ranks}
        for name in sorted(best, key=lambda name: -fmean(row.error for row in best[name].values()))
    }


def _off_budget(rows: Sequence[ErrorRow]) -> dict[str, str]:
    """What methods spend of the budget, where it is off by more than 2% at some rank."""
    from loca_theory.expressivity.spending import off_budget

    names = dict.fromkeys(row.method for row in rows)
    texts = {name: off_budget(row.spent for row in rows if row.method == name) for name in names}
    return {name: text for name, text in texts.items() if text}


def _selection(items: Sequence[Any], limit: int) -> Sequence[Any]:
    """The items, or at most so many, evenly from the first to the last."""
    if len(items) <= limit:
        return items
    return [items[round(i * (len(items) - 1) / (limit - 1))] for i in range(limit)]


def _cell(row: ErrorRow | None, between: str) -> str:
    if row is None:
        return ""
    decimals, error = _DECIMALS, row.standard_error
    if row.engine != "monte-carlo":
        limit = "≈ " if row.engine == "asymptotic" else ""
        return f"{limit}{row.error:.{decimals}f}"
    if error is None:
        return f"{row.error:.{decimals}f}{between}?"
    # A standard error this small is rounding only.
    if error > _ROUNDING * row.error:
        decimals = max(decimals, math.ceil(-math.log10(error)))
    return f"{row.error:.{decimals}f}{between}{error:.{decimals}f}"
