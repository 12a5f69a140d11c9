"""Print an analysis of checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

import click
from rich.text import Text

from loca_theory.cli.command import in_flags
from loca_theory.cli.output import Rows, console
from loca_theory.cli.printable import note, printable
from loca_theory.expressivity.methods.names import display_name

if TYPE_CHECKING:
    from rich.console import Console

    from loca_theory.checkpoints import Analysis
    from loca_theory.checkpoints.rows import Comparison, Matrix, MatrixError, Skipped
    from loca_theory.checkpoints.summary import Totals

_INCOMPLETE = 4
_MOST_ROWS, _MOST_REASONS = 60, 8
# A console at least this wide shows all columns, a narrower one all but these.
_WIDE = 120
_ONLY_WIDE = {"p (paper)", "zeros", "spikes", "rel. norm", "cosine", "FourierFT", "spec."}
_ALLOCATED = {"R": "alloc. r", "D": "alloc. n"}

# Errors of one matrix by method.
_Errors: TypeAlias = Mapping[str, "MatrixError"]


def note_damaged(skipped: Sequence[Skipped]) -> int:
    """Print a note if matrices are damaged.

    Returns:
        The exit code: 4 if there are any, else 0.
    """
    damaged = [one for one in skipped if one.damaged]
    if not damaged:
        return 0
    count = len(damaged)
    are = f"{count} matrices are damaged and were"
    are = "1 matrix is damaged and was" if count == 1 else are
    note(f"{are} left out, the first: {damaged[0].name}: {damaged[0].reason}")
    return _INCOMPLETE


def print_analysis(result: Analysis) -> None:
    """Print warnings, a line per matrix, totals, the verdict and the skipped matrices."""
    out, summary = console(), result.summary
    for text in result.warnings:
        out.print(f"{text}\n", style="bold red")
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
    out.print(result.verdict)
    if result.config:
        out.print()
        out.print(result.config, style="cyan", soft_wrap=True)
    _print_remarks(out, result.matrices)
    print_skipped(out, result.skipped)


def _print_matrices(out: Console, result: Analysis) -> None:
    is_wide = out.width >= _WIDE
    r = next((one.r for one in result.summary.all.errors), None)
    out.print("Every increment", style="bold")
    if r is not None:
        line = f"errors at the budget of r = {r}: LoRA (shuf.: of the shuffled entries),"
        line += " LoCA with the best DCT coefficients, the best entries"
        if is_wide:
            line += " (spec.: both as expected from the singular values alone)"
        if result.allocation:
            line += f"; LoRA's rank and LoCA's coefficients with {result.total} for all"
        out.print(line, style="dim")
    out.print()
    errors: dict[tuple[str, str], dict[str, MatrixError]] = {}
    for error in result.errors:
        if error.r == r:
            errors.setdefault((error.name, error.tuned), {})[error.method] = error
    methods = list(dict.fromkeys(error.method for error in result.errors))
    sizes = {(one.method, one.name, one.tuned): one.size for one in result.allocation}
    split = {one.method for one in result.allocation}
    allocated = {method: heading for method, heading in _ALLOCATED.items() if method in split}
    rows = []
    for one in result.matrices[:_MOST_ROWS]:
        is_numbered = one.layer is not None and one.kind != "other"
        label = f"{one.layer} {one.kind}" if is_numbered and not is_wide else _short(one.name)
        label = f"{label}, {one.tuned}" if len(result.tuned) > 1 else label
        cells = _cells(one, errors.get((one.name, one.tuned), {}), methods)
        for method, heading in allocated.items():
            size = sizes.get((method, one.name, one.tuned))
            cells[heading] = "" if size is None else f"{size:,}"
        shown = {name: one for name, one in cells.items() if is_wide or name not in _ONLY_WIDE}
        rows.append({"matrix": printable(label), **shown})
    Rows(rows).print(out)
    if len(result.matrices) > _MOST_ROWS:
        more = len(result.matrices) - _MOST_ROWS
        out.print(f"… and {more} more; all of them in --format json or csv")
    out.print()


def _cells(one: Matrix, errors: _Errors, methods: Iterable[str]) -> dict[str, str | Text]:
    """The cells of a matrix by heading; those of errors are empty if there are none."""
    # Imported here, because it loads torch, which --help does not need.
    from loca_theory.checkpoints.settings import ANALYSED

    usual = {method.name for method in ANALYSED}
    norm, lora, loca = one.relative_norm, errors.get("R"), errors.get("D")
    return {
        "shape": "x".join(map(str, one.shape)),
        "TV": f"{one.tv:.4f}",
        "p": f"{one.tv_p_value:.3f}",
        "p (paper)": _number(one.tv_p_value_as_printed),
        "zeros": f"{one.zero_fraction:.0%}",
        "outside": f"{one.outlier_mass:.0%}",
        "spikes": str(one.spikes),
        "rel. norm": "none" if norm is None else f"{norm:.2g}",
        "cosine": _number(one.weights_cosine),
        "90% in": str(one.rank_90),
        "LoRA": _error(errors, "R"),
        "shuf.": f"{lora.shuffled_error:.3f}" if lora else "",
        "LoCA": _error(errors, "D"),
        "FourierFT": _error(errors, "FourierFT"),
        "entries": _error(errors, "S"),
        "spec.": _number(loca.spectral_error) if loca else "",  # the same for the entries
        **{display_name(key): _error(errors, key) for key in methods if key not in usual},
    }


def _error(errors: _Errors, method: str) -> str | Text:
    """The error of a method, bold if none of the methods in short tables has a smaller one."""
    from loca_theory.checkpoints.recommendation import SHOWN

    if method not in errors:
        return ""
    error = errors[method].error
    is_best = error == min(errors[other].error for other in SHOWN)
    return Text(f"{error:.3f}", style="bold" if is_best else "")


def _number(value: float | None) -> str:
    """Format a statistic that not every matrix has."""
    return "none" if value is None else f"{value:.3f}"


def _print_totals(out: Console, title: str, groups: Sequence[Totals]) -> None:
    out.print(title, style="bold")
    line = "errors weighted by energy; in brackets: expected for independent normal entries"
    out.print(f"{line}\n", style="dim")
    ranks = list(dict.fromkeys(error.r for group in groups for error in group.errors))
    shown = ranks[:3] if out.width >= _WIDE else ranks[:1]
    columns = {
        f"{display_name(method)}, r={r}": (r, method) for r in shown for method in ("R", "D")
    }
    rows = []
    for group in groups:
        found = {(error.r, error.method): error for error in group.errors}
        errors = {heading: found.get(key) for heading, key in columns.items()}
        rows.append({
            "": printable(group.name),
            "number": str(group.matrices),
            "not normal": str(group.not_normal),
            "TV": f"{group.median_tv:.4f}",
            "outside": f"{group.median_outlier_mass:.0%}",
            **{
                heading: f"{one.error:.2f} ({_number(one.iid_error)})" if one else ""
                for heading, one in errors.items()
            },
        })  # fmt: skip
    Rows(rows).print(out)
    out.print()


def _print_comparisons(out: Console, comparisons: Sequence[Comparison]) -> None:
    out.print("Between fine-tunes", style="bold")
    line = "medians over the matrices that both change; signs: entries with opposite signs"
    columns = {"cosine": "cosine", "signs": "sign_conflict"}
    if any(one.left_overlap is not None for one in comparisons):
        line += "; overlap of the leading left and right singular vectors"
        columns |= {"left overlap": "left_overlap", "right overlap": "right_overlap"}
    out.print(f"{line}\n", style="dim")
    pairs: dict[tuple[str, str], list[Comparison]] = {}
    for one in comparisons:
        pairs.setdefault((one.first, one.second), []).append(one)
    rows = []
    for (first, second), mine in pairs.items():
        cells = {
            heading: _median(getattr(one, field) for one in mine)
            for heading, field in columns.items()
        }
        rows.append({"": printable(f"{first}, {second}"), "number": str(len(mine)), **cells})
    Rows(rows).print(out)
    out.print()


def _median(values: Iterable[float | None]) -> str:
    """Format the median of the values that are not None."""
    known = [value for value in values if value is not None]
    return _number(median(known) if known else None)


def print_skipped(out: Console, skipped: Sequence[Skipped]) -> None:
    """Print the skipped matrices by reason."""
    has_several = len({one.tuned for one in skipped}) > 1
    fine_tunes: dict[tuple[str, str], list[str]] = {}
    for one in skipped:
        fine_tunes.setdefault((one.reason.partition(":")[0], one.name), []).append(one.tuned)
    reasons: dict[str, list[str]] = {}
    for (reason, name), tuned in fine_tunes.items():
        where = f" ({', '.join(tuned)})" if has_several else ""
        reasons.setdefault(reason, []).append(f"{_short(name)}{where}")
    _print_grouped(out, "Left out", reasons)


def _print_remarks(out: Console, matrices: Sequence[Matrix]) -> None:
    """Print the remarks on matrices by text."""
    remarks: dict[str, dict[str, None]] = {}
    for one in matrices:
        for remark in filter(None, one.note.split("; ")):
            remarks.setdefault(remark, {})[_short(one.name)] = None
    _print_grouped(out, "Remarks", {remark: list(names) for remark, names in remarks.items()})


def _print_grouped(out: Console, title: str, groups: Mapping[str, Sequence[str]]) -> None:
    """Print names by reason or remark, each with its first names."""
    if not groups:
        return
    out.print(f"\n{title}: {sum(map(len, groups.values()))}", style="bold")
    for text, names in list(groups.items())[:_MOST_REASONS]:
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        in_words = in_flags(text, click.get_current_context().command)
        out.print(printable(f"  {in_words}: {', '.join(names[:2])}{more}"))
    if len(groups) > _MOST_REASONS:
        out.print(f"  … and {len(groups) - _MOST_REASONS} more, in --format json")


def _short(name: str) -> str:
    return name.removesuffix(".weight")
