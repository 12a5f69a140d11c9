"""Print an analysis of checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from loca_theory.cli.command import in_flags
from loca_theory.cli.output import console, plain_table, print_table
from loca_theory.cli.printable import printable
from loca_theory.cli.progress import note
from loca_theory.expressivity.methods.names import display_name

if TYPE_CHECKING:
    from rich.console import Console

    from loca_theory.checkpoints import Analysis
    from loca_theory.checkpoints.rows import Comparison, Matrix, MatrixError, Skipped
    from loca_theory.checkpoints.summary import Totals

_INCOMPLETE = 4
_MOST_ROWS, _MOST_REASONS = 60, 8
# A console at least this wide shows all columns.
_WIDE = 120


def in_csv(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """The matrices of a result as rows of CSV."""
    return [{**vars(row), "shape": _shape(row), **_adapters(row)} for row in rows]


def note_damaged(skipped: Sequence[Skipped]) -> int:
    """Print a note if matrices are damaged.

    Returns:
        The exit code: 4 if there are any, else 0.
    """
    damaged = [one for one in skipped if one.damaged]
    if damaged:
        count = len(damaged)
        are = (
            "1 matrix is damaged and was"
            if count == 1
            else f"{count} matrices are damaged and were"
        )
        note(f"{are} left out, the first: {damaged[0].name}: {damaged[0].reason}", quiet=False)
    return _INCOMPLETE if damaged else 0


def print_analysis(result: Analysis) -> None:
    """Print warnings, a line per matrix, totals, the verdict and the skipped matrices."""
    out = console()
    for text in result.warnings:
        out.print(f"{text}\n", highlight=False, style="bold red", markup=False)
    summary = result.summary
    if result.matrices:
        _print_matrices(out, result)
        if len(summary.by_kind) < len(result.matrices):
            _print_totals(out, "Totals by kind of matrix", summary.by_kind)
        if 1 < len(summary.by_layer) < len(result.matrices):
            _print_totals(out, "Totals by layer", summary.by_layer)
        if len(summary.by_tuned) > 1:
            _print_totals(out, "Totals by fine-tune", summary.by_tuned)
    if result.comparisons:
        _print_comparisons(out, result.comparisons)
    out.print(result.verdict, highlight=False, markup=False)
    if result.config:
        out.print()
        out.print(result.config, highlight=False, style="cyan", markup=False, soft_wrap=True)
    _print_notes(out, result.matrices)
    print_skipped(out, result.skipped)


def _print_matrices(out: Console, result: Analysis) -> None:
    # Imported here, because it loads scipy, which --help does not need.
    from loca_theory.checkpoints.settings import ANALYSED

    r = next((one.r for one in result.summary.all.errors), None)
    out.print("Every increment", style="bold")
    if r is not None:
        line = f"errors at the budget of r = {r}: LoRA (shuf.: of the shuffled entries),"
        line += " LoCA with the best DCT coefficients, the best entries"
        if out.width >= _WIDE:
            line += " (spec.: both as expected from the singular values alone)"
        if result.allocation:
            line += f"; LoRA's rank and LoCA's coefficients with {result.total} for all"
        out.print(line, style="dim", highlight=False)
    out.print()
    is_wide = out.width >= _WIDE
    columns = [column for column in _COLUMNS if is_wide or not column.only_wide]
    used = dict.fromkeys(error.method for error in result.errors)
    usual = {method.name for method in ANALYSED}
    columns += [_Column(display_name(key), _error(key)) for key in used if key not in usual]
    for method, heading in _ALLOCATED.items():
        mine = {
            (one.name, one.tuned): one.size for one in result.allocation if one.method == method
        }
        if mine:
            columns.append(_Column(heading, partial(_size, mine)))
    table = plain_table("matrix", *(column.heading for column in columns))
    errors: dict[tuple[str, str], dict[str, MatrixError]] = {}
    for error in result.errors:
        if error.r == r:
            errors.setdefault((error.name, error.tuned), {})[error.method] = error
    has_several = len(result.tuned) > 1
    for one in result.matrices[:_MOST_ROWS]:
        cells = (column.cell(one, errors.get((one.name, one.tuned), {})) for column in columns)
        label = _label(one, is_wide=is_wide)
        label = f"{label}, {one.tuned}" if has_several else label
        table.add_row(label, *cells)
    print_table(table, out)
    if len(result.matrices) > _MOST_ROWS:
        more = len(result.matrices) - _MOST_ROWS
        out.print(f"… and {more} more; all of them in --format json or csv")
    out.print()


@dataclass(frozen=True)
class _Column:
    """A column: its heading, and the function that makes its cells from a row and its errors."""

    heading: str
    cell: Callable[[Matrix, Mapping[str, MatrixError]], str]
    only_wide: bool = False


def _number(value: float | None) -> str:
    """Format a statistic that not every matrix has."""
    return "none" if value is None else f"{value:.3f}"


def _scientific(value: float | None) -> str:
    return "none" if value is None else f"{value:.2g}"


def _error(method: str) -> Callable[[Matrix, Mapping[str, MatrixError]], str]:
    def cell(matrix: Matrix, found: Mapping[str, MatrixError]) -> str:
        from loca_theory.checkpoints.recommendation import SHOWN

        del matrix
        # Imported here, because it loads torch, which --help does not need.

        if method not in found:
            return ""
        error = found[method].error
        is_best = error == min(found[other].error for other in SHOWN)
        return f"[bold]{error:.3f}[/]" if is_best else f"{error:.3f}"

    return cell


_ALLOCATED = {"R": "alloc. r", "D": "alloc. n"}


def _size(sizes: Mapping[tuple[str, str], int], matrix: Matrix, _: object) -> str:
    size = sizes.get((matrix.name, matrix.tuned))
    return "" if size is None else f"{size:,}"


def _adapters(row: Any) -> dict[str, str]:
    found = getattr(row, "adapters", None)
    return {} if found is None else {"adapters": " ".join(found)}


def _shape(matrix: Matrix) -> str:
    return "x".join(map(str, matrix.shape))


_COLUMNS = (
    _Column("shape", lambda one, _: _shape(one)),
    _Column("TV", lambda one, _: f"{one.tv:.4f}"),
    _Column("p", lambda one, _: f"{one.tv_p_value:.3f}"),
    _Column("p (paper)", lambda one, _: _number(one.tv_p_value_as_printed), only_wide=True),
    _Column("zeros", lambda one, _: f"{one.zero_fraction:.0%}", only_wide=True),
    _Column("outside", lambda one, _: f"{one.outlier_mass:.0%}"),
    _Column("spikes", lambda one, _: str(one.spikes), only_wide=True),
    _Column("rel. norm", lambda one, _: _scientific(one.relative_norm), only_wide=True),
    _Column("cosine", lambda one, _: _number(one.weights_cosine), only_wide=True),
    _Column("90% in", lambda one, _: str(one.rank_90)),
    _Column("LoRA", _error("R")),
    _Column("shuf.", lambda _, found: f"{found['R'].shuffled_error:.3f}" if found else ""),
    _Column("LoCA", _error("D")),
    _Column("FourierFT", _error("FourierFT"), only_wide=True),
    _Column("entries", _error("S")),
    # The same for S.
    _Column(
        "spec.",
        lambda _, found: _number(found["D"].spectral_error) if found else "",
        only_wide=True,
    ),
)


def _label(matrix: Matrix, *, is_wide: bool) -> str:
    """Name of the matrix, or its layer and kind if the console is narrow."""
    if is_wide or matrix.layer is None or matrix.kind == "other":
        return _short(matrix.name)
    return f"{matrix.layer} {matrix.kind}"


def _print_totals(out: Console, title: str, groups: Sequence[Totals]) -> None:
    out.print(title, style="bold")
    out.print("errors weighted by energy; in brackets: expected for independent normal entries",
              style="dim")  # fmt: skip
    out.print()
    ranks = list(dict.fromkeys(error.r for group in groups for error in group.errors))
    shown = ranks if out.width >= _WIDE else ranks[:1]
    columns = [(r, method) for r in shown[:3] for method in ("R", "D")]
    errors_at = (f"{display_name(method)}, r={r}" for r, method in columns)
    table = plain_table("", "number", "not normal", "TV", "outside", *errors_at)
    for group in groups:
        found = {(error.r, error.method): error for error in group.errors}
        cells = [
            f"{found[key].error:.2f} ({_number(found[key].iid_error)})" if key in found else ""
            for key in columns
        ]
        table.add_row(
            group.name,
            str(group.matrices),
            str(group.not_normal),
            f"{group.median_tv:.4f}",
            f"{group.median_outlier_mass:.0%}",
            *cells,
        )
    print_table(table, out)
    out.print()


def _print_comparisons(out: Console, comparisons: Sequence[Comparison]) -> None:
    out.print("Between fine-tunes", style="bold")
    line = "medians over the matrices that both change; signs: entries with opposite signs"
    has_subspaces = any(one.left_overlap is not None for one in comparisons)
    line += "; overlap of the leading left and right singular vectors" * has_subspaces
    out.print(line, style="dim", highlight=False)
    out.print()
    more = ("left overlap", "right overlap") if has_subspaces else ()
    table = plain_table("", "number", "cosine", "signs", *more)
    pairs: dict[tuple[str, str], list[Comparison]] = {}
    for one in comparisons:
        pairs.setdefault((one.first, one.second), []).append(one)
    for (first, second), mine in pairs.items():
        columns = ("cosine", "sign_conflict", "left_overlap", "right_overlap")[: 2 + len(more)]
        cells = (_middle(getattr(one, column) for one in mine) for column in columns)
        table.add_row(f"{first}, {second}", str(len(mine)), *cells)
    print_table(table, out)
    out.print()


def _middle(values: Iterable[float | None]) -> str:
    """Format the median of the values that are not None."""
    known = [value for value in values if value is not None]
    return _number(median(known) if known else None)


def print_skipped(out: Console, skipped: Sequence[Skipped]) -> None:
    """Print the skipped matrices by reason."""
    several = len({one.tuned for one in skipped}) > 1
    names: dict[tuple[str, str], list[str]] = {}
    for one in skipped:
        names.setdefault((one.reason.partition(":")[0], one.name), []).append(one.tuned)
    reasons: dict[str, list[str]] = {}
    for (reason, name), fine_tunes in names.items():
        where = f" ({', '.join(fine_tunes)})" if several else ""
        reasons.setdefault(reason, []).append(f"{_short(name)}{where}")
    _print_grouped(out, "Left out", reasons)


def _print_notes(out: Console, matrices: Sequence[Matrix]) -> None:
    """Print the remarks on matrices by text."""
    notes: dict[str, list[str]] = {}
    for one in matrices:
        for remark in filter(None, one.note.split("; ")):
            names = notes.setdefault(remark, [])
            if _short(one.name) not in names:
                names.append(_short(one.name))
    _print_grouped(out, "Remarks", notes)


def _print_grouped(out: Console, title: str, groups: Mapping[str, Sequence[str]]) -> None:
    """Print names by reason or remark, each with its first names."""
    if not groups:
        return
    out.print()
    out.print(f"{title}: {sum(map(len, groups.values()))}", style="bold")
    for text, names in list(groups.items())[:_MOST_REASONS]:
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        in_words = in_flags(text, click.get_current_context().command)
        line = printable(f"{in_words}: {', '.join(names[:2])}{more}")
        out.print(f"  {line}", highlight=False, markup=False)
    if len(groups) > _MOST_REASONS:
        out.print(f"  … and {len(groups) - _MOST_REASONS} more, in --format json", highlight=False)


def _short(name: str) -> str:
    return name.removesuffix(".weight")
