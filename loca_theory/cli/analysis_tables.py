"""Print an analysis of checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os.path import commonprefix
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

from rich.text import Text

from loca_theory.cli.left_out import print_remarks, print_skipped, short_name
from loca_theory.cli.output import Rows, console, text_width
from loca_theory.cli.printable import printable
from loca_theory.expressivity.methods.names import display_name

if TYPE_CHECKING:
    from rich.console import Console

    from loca_theory.checkpoints import Analysis
    from loca_theory.checkpoints.rows import Comparison, Matrix, MatrixError
    from loca_theory.checkpoints.summary import MeanError, Totals

_FORMS = ("R", "D", "S", "FourierFT")
_SIZES = {"R": "rank", "D": "coefficients"}
_RETAINED = (
    "Energy retained: the fraction of ‖ΔW‖² that the best adapter of each form reproduces "
    "(1 − error), at the budget of LoRA with r = {}. rank 90%: how many singular values have 90% "
    "of the energy."
)
_COUNTS = (
    "may be normal: matrices whose entries pass the test; follow the law: those with the spectrum "
    "of independent entries, but for single values"
)
_CONFIG = "To compress this finished fine-tune; for new training, reconstruction is no guide"

# Errors of one matrix, or of several, by method.
_Errors: TypeAlias = "Mapping[str, MatrixError] | Mapping[str, MeanError]"
_Cells: TypeAlias = "dict[str, str | Text]"


def print_analysis(result: Analysis, *, is_full: bool) -> None:
    """Print warnings, what the forms retain, the verdict, a configuration and what was left out.

    In full: all statistics of each matrix, totals and remarks, too.
    """
    out, summary = console(), result.summary
    for text in result.warnings:
        out.print(f"{text}\n", style="bold red")
    if result.errors:
        text = _RETAINED.format(_ranks(result)[0])
        out.print(f"{text}\n", style="dim", width=text_width(out))
    if len(result.tuned) > 1:
        _print_totals(out, "fine-tune", summary.by_tuned, result)
    if result.matrices and (is_full or len(result.tuned) == 1):
        _print_matrices(out, result, is_full=is_full)
    if is_full:
        out.print(f"{_COUNTS}\n", style="dim", width=text_width(out))
        if len(summary.by_kind) < len(result.matrices):
            _print_totals(out, "kind", summary.by_kind, result)
        if 1 < len(summary.by_layer) < len(result.matrices):
            _print_totals(out, "layer", summary.by_layer, result)
    if result.bits:
        _print_bits(out, result)
    if result.comparisons:
        _print_comparisons(out, result.comparisons)
    out.print(result.verdict, width=text_width(out))
    if result.config_source:
        out.print(f"\n{_CONFIG}:\n", style="dim")
        out.print(result.config_source, style="cyan", soft_wrap=True)
    if is_full:
        print_remarks(out, result.matrices)
    print_skipped(out, result.skipped)


def _print_matrices(out: Console, result: Analysis, *, is_full: bool) -> None:
    """Print a row per matrix, and one per budget for all of them together."""
    ranks, methods = _ranks(result), _methods(result, is_full=is_full)
    errors: dict[tuple[str, str], dict[str, MatrixError]] = {}
    for error in result.errors:
        if error.r == ranks[0]:
            errors.setdefault((error.name, error.tuned), {})[error.method] = error
    sizes = {(one.method, one.name, one.tuned): f"{one.size:,}" for one in result.allocation}
    methods_split = {method for method, *_ in sizes}
    split = {heading: key for key, heading in _SIZES.items() if key in methods_split}
    if split:
        text = f"{' and '.join(split)}: of LoRA and LoCA, if {result.total} are split for all"
        out.print(f"{text}\n", style="dim")
    names = [short_name(one.name) for one in result.matrices]
    cells = []
    for one, name in zip(result.matrices, names, strict=True):
        mine = errors.get((one.name, one.tuned), {})
        own = {heading: sizes.get((key, one.name, one.tuned), "") for heading, key in split.items()}
        label = f"{name}, {one.tuned}" if len(result.tuned) > 1 else name
        cells.append({
            "matrix": printable(label),
            "shape": "x".join(map(str, one.shape)),
            "rank 90%": f"{one.rank_90:,}",
            **own,
            **_retained(mine, methods),
            **(_statistics(one, mine) if is_full else {}),
        })  # fmt: skip
    if not Rows(cells).fits(out):
        start = "".join(commonprefix(names).rpartition(".")[:2])  # noqa: RUF071  names, not paths
        if start:
            out.print(
                f"names are without the prefix {printable(start)}\n",
                style="dim",
                width=text_width(out),
            )
        for row in cells:
            row["matrix"] = row["matrix"].removeprefix(printable(start))
    for r in ranks if len(cells) > 1 else ():
        total = {error.method: error for error in result.summary.all.errors if error.r == r}
        together = {"matrix": f"together, r = {r}", **_retained(total, methods)}
        cells.append(dict.fromkeys(cells[0], "") | together)
    Rows(cells).print(out)
    out.print()


def _ranks(result: Analysis) -> list[int]:
    return list(dict.fromkeys(error.r for error in result.summary.all.errors)) or [0]


def _methods(result: Analysis, *, is_full: bool = False) -> list[str]:
    """Methods in tables: the usual forms and the user's own methods, or all."""
    # Imported here, because it loads torch, which --help does not need.
    from loca_theory.checkpoints.settings import ANALYSED

    found = dict.fromkeys(error.method for error in result.errors)
    left_out = {*_FORMS, *(() if is_full else (method.name for method in ANALYSED))}
    return [
        *(key for key in _FORMS if key in found),
        *(key for key in found if key not in left_out),
    ]


def _retained(errors: _Errors, methods: Iterable[str]) -> _Cells:
    """What each method retains; bold if none retains more."""
    cells: _Cells = dict.fromkeys(map(display_name, methods), "")
    least = min((one.error for one in errors.values()), default=0.0)
    for key in filter(errors.get, methods):
        error = errors[key].error
        style = "bold" if error == least else ""
        cells[display_name(key)] = Text(f"{1 - error:.1%}", style=style)
    return cells


def _statistics(one: Matrix, errors: Mapping[str, MatrixError]) -> _Cells:
    """Further cells of a matrix by heading."""
    from loca_theory.checkpoints.summary import follows_law

    norm, lora, loca = one.relative_norm, errors.get("R"), errors.get("D")
    return {
        "LoRA, shuffled": f"{1 - lora.shuffled_error:.1%}" if lora else "",
        "other basis": f"{1 - loca.spectral_error:.1%}" if loca and loca.spectral_error else "",
        "TV": f"{one.tv:.4f}",
        "p": f"{one.tv_p_value:.3f}",
        "p (paper)": _number(one.tv_p_value_as_printed),
        "zeros": f"{one.zero_fraction:.0%}",
        "outside": f"{one.outlier_mass:.0%}",
        # Without a bulk that follows the law, nothing stands out of it.
        "spikes": f"{one.spikes}" if follows_law(one) else "",
        "rel. norm": "" if norm is None else f"{norm:.2g}",
        "cosine": _number(one.weights_cosine),
    }


def _number(value: float | None) -> str:
    """Format a statistic that not every matrix has."""
    return "" if value is None else f"{value:.3f}"


def _print_totals(out: Console, title: str, groups: Sequence[Totals], result: Analysis) -> None:
    """Print a row per group of matrices: what is retained of them together."""
    r, rows = _ranks(result)[0], []
    for group in groups:
        errors = {error.method: error for error in group.errors if error.r == r}
        rows.append({
            title: printable(group.name),
            "matrices": str(group.matrices),
            **_retained(errors, _methods(result)),
            "may be normal": str(group.matrices - group.not_normal),
            "follow the law": str(group.follow_mp),
        })  # fmt: skip
    Rows(rows).print(out)
    out.print()


def _print_bits(out: Console, result: Analysis) -> None:
    """Print what coders retain of all matrices together at equal bits per entry."""
    from loca_theory.checkpoints.summary import energy_weights

    text = "Energy retained of all matrices together by coders of so many bits per entry, of the "
    out.print(f"{text}entries and of their DCT\n", style="dim")
    keys = ((one.name, one.tuned) for one in result.matrices)
    weights = dict(zip(keys, energy_weights(result.matrices), strict=True))
    found: dict[str, dict[str, float]] = {}
    for one in result.bits:
        if one.transform in ("none", "dct"):
            heading = f"{one.bits:g} bits{', DCT' * (one.transform == 'dct')}"
            mine, weight = found.setdefault(one.method, {}), weights[one.name, one.tuned]
            mine[heading] = mine.get(heading, 0.0) + weight * (1 - one.error)
    headings = sorted({heading for mine in found.values() for heading in mine}, key=len)
    rows = [
        {"coder": name, **{
            heading: f"{mine[heading] / sum(weights.values()):.1%}" if heading in mine else ""
            for heading in headings
        }}
        for name, mine in found.items()
    ]  # fmt: skip
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
