"""Print an analysis of checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os.path import commonprefix
from typing import TypeAlias

from rich.console import Console
from rich.text import Text

from loca_theory._words import counted, listed
from loca_theory.checkpoints import Analysis
from loca_theory.checkpoints.form.forms import SPLIT
from loca_theory.checkpoints.measure.rows import FAR_FROM_LAW, MatrixError
from loca_theory.checkpoints.measure.settings import ANALYSED
from loca_theory.checkpoints.report.column import with_values
from loca_theory.checkpoints.report.columns import (
    CHANGE,
    MATRIX,
    SHUFFLED,
    STATISTIC_COLUMNS,
)
from loca_theory.checkpoints.report.summary import MeanError, Totals
from loca_theory.cli.columns import print_pointer
from loca_theory.cli.commands.comparison_tables import print_bits, print_comparisons
from loca_theory.cli.commands.left_out import print_remarks, print_skipped, short_name
from loca_theory.cli.output import Rows, console, print_note, text_width
from loca_theory.cli.printable import printable

_FORMS = ("LoRA", "LoCA", "entries", "FourierFT")
_RETAINED = (
    "Fraction of ‖ΔW‖² that the best adapter of each form retains at the budget of LoRA of rank {}."
)
_TOGETHER = "together", "each matrix counts by its ‖ΔW‖²."
_INDEPENDENT = "independent", "expected of independent normal entries."
_SHUFFLED, _BASIS = SHUFFLED[0], "other basis"
_COLUMNS = {
    **dict([SHUFFLED]),
    _BASIS: "What LoCA would retain in a basis unrelated to the matrix, by its singular values.",
}
# Columns of the page that ``--full`` prints as well.
_STATISTICS = (
    *("‖ΔW‖/‖W₀‖", "cos(W₀, W′)", "zeros", "TV (95%)", "p", "p (paper)", "outside bulk", "spikes"),
    *("left alignment", "right alignment", "intruders"),
)
_COUNTS = {
    "normality not rejected": "Number of matrices with p above 0.05.",
    "near law": "Number of spectra that, apart from spikes, are within a Kolmogorov distance of "
    f"{FAR_FROM_LAW} of the Marchenko–Pastur law of independent entries.",
}
_CONFIG = (
    "The adapter that this finished fine-tune would fit; do not choose by reconstruction what you "
    "will train"
)
# Errors of one matrix, or of several, by method.
_Errors: TypeAlias = Mapping[str, MatrixError] | Mapping[str, MeanError]
_Cells: TypeAlias = dict[str, str | Text]


def print_analysis(result: Analysis, *, is_full: bool, with_config: bool) -> None:
    """Print the verdict, what the forms retain, and what was left out.

    In full: the other warnings and findings, all statistics of each matrix, totals and remarks,
    too. A configuration of PEFT is printed if it is asked for.
    """
    out, summary = console(), result.summary
    out.print(f"{result.message}\n", style="bold", width=text_width(out))
    warnings = result.warnings[1:]
    if warnings and not is_full:
        warnings = (f"{counted(len(warnings), 'more warning')} with --full",)
    for text in filter(None, (result.warning, *warnings)):
        out.print(f"{text}\n", style="bold red", width=text_width(out))
    if result.errors:
        print_note(out, _RETAINED.format(result.first_rank))
    if off := [f"{name} {text}" for name, text in result.off_budget.items()]:
        print_note(out, f"Methods that spend another budget: {', '.join(off)} of it.")
    if len(result.tuned) > 1:
        _print_totals(out, "fine-tune", summary.by_tuned, result, is_full=is_full)
    if result.matrices and (is_full or len(result.tuned) == 1):
        _print_matrices(out, result, is_full=is_full)
    if result.matrices:
        print_pointer(out, "analyze")
    if result.bits or result.comparisons:
        out.print()
    if is_full:
        if len(summary.by_kind) < len(result.matrices):
            _print_totals(out, "kind", (*summary.by_kind, summary.all), result, is_full=True)
        if 1 < len(summary.by_layer) < len(result.matrices):
            _print_totals(out, "layer", summary.by_layer, result, is_full=True)
        print_note(out, f"{result.budget}\n{_lines(_COUNTS)}")
    if result.bits:
        print_bits(out, result)
    if result.comparisons:
        print_comparisons(out, result.comparisons)
    if is_full:
        out.print("\n".join(result.findings), width=text_width(out))
        print_remarks(out, result.matrices)
    if with_config and result.config_source:
        print_note(out, f"\n{_CONFIG}:")
        out.print(result.config_source, style="cyan", soft_wrap=True)
    print_skipped(out, result.skipped)


def _print_matrices(out: Console, result: Analysis, *, is_full: bool) -> None:
    """Print a row per matrix, one per budget for all together, and one of independent entries."""
    first, methods = result.first_rank, _methods(result, is_full=is_full)

    def retained(errors: _Errors) -> _Cells:
        cells = _retained(errors, methods)
        if is_full:
            lora, loca = errors.get("LoRA"), errors.get("LoCA")
            shuffled = lora.shuffled_error if lora else None
            cells[_SHUFFLED] = "" if shuffled is None else f"{1 - shuffled:.1%}"
            cells[_BASIS] = f"{1 - loca.spectral_error:.1%}" if loca and loca.spectral_error else ""
        return cells

    sizes = {(size.method, size.name, size.tuned): f"{size.size:,}" for size in result.allocation}
    if sizes:
        columns = " and ".join(form.unit_name for form in SPLIT)
        forms = " and ".join(form.title for form in SPLIT)
        print_note(out, f"{columns}: of {forms}, if {result.total} are split for all")
    names = [short_name(matrix.name) for matrix in result.matrices]
    available = with_values((*CHANGE, *STATISTIC_COLUMNS), result.matrices)
    columns = [column for column in available if is_full and column.title in _STATISTICS]
    cells = []
    for matrix, name in zip(result.matrices, names, strict=True):
        key = matrix.name, matrix.tuned
        errors = {error.method: error for error in result.errors_of[key] if error.r == first}
        label = f"{name}, {matrix.tuned}" if len(result.tuned) > 1 else name
        cells.append(
            {
                "matrix": printable(label),
                "shape": "x".join(map(str, matrix.shape)),
                "rank 90%": f"{matrix.rank_90:,}",
                **{form.unit_name: sizes.get((form.method, *key), "") for form in SPLIT},
                **retained(errors),
                **{column.title: column.text(matrix) for column in columns},
            }
        )
    if not Rows(cells).fits(out):
        start = "".join(commonprefix(names).rpartition(".")[:2])  # noqa: RUF071  names, not paths
        if start:
            print_note(out, f"names are without the prefix {printable(start)!r}")
        for row in cells:
            row["matrix"] = row["matrix"].removeprefix(printable(start))
    count, totals = len(cells), result.summary.all.by_rank
    label = "together, " if count > 1 else ""
    for r, total in list(totals.items())[count == 1 :]:
        compared = total["LoRA"].matrices
        part = f" ({compared} of {count})" if compared < count else ""
        cells.append({"matrix": f"{label}r = {r}{part}", **retained(total)})
    if totals:
        independent = _retained(totals[first], methods, "iid_error")
        cells.append({"matrix": f"independent, r = {first}", **independent})
    Rows(cells).print(out)
    about = []
    if totals:
        rows = [_TOGETHER, _INDEPENDENT] if count > 1 else [_INDEPENDENT]
        about = [f"{title}: {text}" for title, text in rows]
    if large := [f"{r}" for r in result.ranks if r not in totals]:
        about.append(f"Not compared: rank {listed(large)}, whose budget is larger than the matrix.")
    out.print(" ".join(about), style="dim", width=text_width(out))
    if is_full:
        texts = _COLUMNS | {column.title: column.about for column in columns}
        out.print(_lines(texts), style="dim", width=text_width(out))


def printed_columns() -> dict[str, str]:
    """Meanings of the columns of the printed tables, and of their last rows."""
    columns = {column.title: column.about for column in (*MATRIX, *CHANGE, *STATISTIC_COLUMNS)}
    return {
        **{title: columns[title] for title in ("shape", "rank 90%")},
        ", ".join(_FORMS): _RETAINED.format("r"),
        **dict([_TOGETHER, _INDEPENDENT]),
        **_COLUMNS,
        **{title: columns[title] for title in _STATISTICS},
        **_COUNTS,
    }


def _lines(texts: Mapping[str, str]) -> str:
    return "\n".join(f"{title}: {text}" for title, text in texts.items())


def _methods(result: Analysis, *, is_full: bool = False) -> list[str]:
    """Methods in tables: the usual forms and the user's own methods, or all."""
    left_out = set() if is_full else {method.name for method in ANALYSED}
    other_methods = [error.method for error in result.errors if error.method not in left_out]
    return list(dict.fromkeys([*_FORMS, *other_methods]))


def _retained(errors: _Errors, methods: Iterable[str], field: str = "error") -> _Cells:
    """What each method retains; bold if none retains more."""
    cells: _Cells = dict.fromkeys(methods, "")
    values = {key: getattr(error, field) for key, error in errors.items()}
    smallest = min((error for error in values.values() if error is not None), default=0.0)
    for key in methods:
        if (error := values.get(key)) is not None:
            style = "bold" if error == smallest else ""
            cells[key] = Text(f"{1 - error:.1%}", style=style)
    return cells


def _print_totals(
    out: Console, title: str, groups: Sequence[Totals], result: Analysis, *, is_full: bool
) -> None:
    """Print a row per group of matrices: what is retained of them together."""
    rows = [
        {
            title: printable(group.name),
            "matrices": str(group.matrices),
            **_retained(group.by_rank.get(result.first_rank, {}), _methods(result)),
            "normality\nnot rejected": str(group.matrices - group.not_normal) if is_full else "",
            "near\nlaw": str(group.follow_mp) if is_full else "",
        }
        for group in groups
    ]
    Rows(rows).print(out)
