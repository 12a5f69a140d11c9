"""Print an analysis of checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os.path import commonprefix
from statistics import median
from typing import TypeAlias

from rich.console import Console
from rich.text import Text

from loca_theory.checkpoints import Analysis
from loca_theory.checkpoints.rows import Comparison, MatrixError
from loca_theory.checkpoints.settings import ANALYSED
from loca_theory.checkpoints.statistics.matrix import FAR_FROM_LAW
from loca_theory.checkpoints.summary import MeanError, Totals, energy_weights
from loca_theory.cli.commands.left_out import print_remarks, print_skipped, short_name
from loca_theory.cli.output import Rows, console, print_note, text_width
from loca_theory.cli.printable import printable
from loca_theory.expressivity.methods.names import display_name
from loca_theory.plotting.page.columns import with_values
from loca_theory.plotting.page.tables import CHANGE, STATISTICS

_FORMS = ("R", "D", "S", "FourierFT")
_SIZES = {"R": "rank", "D": "coefficients"}
_RETAINED = (
    "Energy retained: the fraction of ‖ΔW‖² that the best adapter of each form reproduces "
    "(1 − error), at the budget of LoRA with r = {}. rank 90%: the rank that retains 90%."
)
_BUDGET = (
    "Budget: r(p + q) numbers for a p×q matrix, as LoRA has. A location chosen by looking at ΔW "
    "costs one number, so LoCA and entries have half as many values as FourierFT, whose locations "
    "are random, has coefficients."
)
_TOGETHER = "together: all matrices as one, so that each counts by its ‖ΔW‖². "
_INDEPENDENT = "independent: expected of independent normal entries in matrices of these shapes."
_SHUFFLED, _BASIS = "LoRA, shuffled", "other basis"
_COLUMNS = {
    _SHUFFLED: "What LoRA retains of the same entries in random order.",
    _BASIS: "What LoCA would retain in a basis unrelated to the matrix, by its singular values.",
}
# Titles of those columns of the page that the full table has, too.
_STATISTICS = (
    *("‖ΔW‖/‖W₀‖", "cos(W₀, W′)", "zeros", "TV (95%)", "p", "p (paper)", "outside bulk", "spikes"),
    *("left alignment", "right alignment", "intruders"),
)
_COUNTS = (
    "normality not rejected: in so many matrices p is above 0.05; near law: so many spectra are, "
    "apart from spikes, within a Kolmogorov distance of "
    f"{FAR_FROM_LAW} of the Marchenko–Pastur law of independent entries."
)
_BITS = (
    "Energy retained of all matrices together by coders of the entries, or of their DCT "
    "coefficients, with at most so many bits per entry, beside a scale or the codes; `loca-theory "
    "methods` describes them. –: no such code. The best bit for an entry is its sign, so that "
    "Lloyd–Max, uniform and BitDelta, which has no other code, agree at 1 bit."
)
_CONFIG = (
    "The adapter that this finished fine-tune would fit; do not choose by reconstruction what you "
    "will train"
)
_ALIKE = (
    "medians over the matrices that both change; signs: entries with opposite signs; overlap (of "
    "--subspaces): of the leading left and right singular vectors"
)
_LIKENESS = {
    "cosine": "cosine",
    "signs": "sign_conflict",
    "left overlap": "left_overlap",
    "right overlap": "right_overlap",
}

# Errors of one matrix, or of several, by method.
_Errors: TypeAlias = Mapping[str, MatrixError] | Mapping[str, MeanError]
_Cells: TypeAlias = dict[str, str | Text]


def print_analysis(result: Analysis, *, is_full: bool) -> None:
    """Print warnings, what the forms retain, the verdict, a configuration and what was left out.

    In full: all statistics of each matrix, totals and remarks, too.
    """
    out, summary = console(), result.summary
    for text in result.warnings:
        out.print(f"{text}\n", style="bold red")
    if result.errors:
        print_note(out, _RETAINED.format(_ranks(result)[0]))
    if len(result.tuned) > 1:
        _print_totals(out, "fine-tune", summary.by_tuned, result)
    if result.matrices and (is_full or len(result.tuned) == 1):
        _print_matrices(out, result, is_full=is_full)
    if result.errors:
        accounting = result.manifest["grid"]["accounting"]
        budget = _BUDGET if accounting == "paper" else f"Budget: by the accounting {accounting}."
        print_note(out, budget)
    if is_full:
        if len(summary.by_kind) < len(result.matrices):
            _print_totals(out, "kind", (*summary.by_kind, summary.all), result)
        if 1 < len(summary.by_layer) < len(result.matrices):
            _print_totals(out, "layer", summary.by_layer, result)
    if is_full or len(result.tuned) > 1:
        print_note(out, _COUNTS)
    if result.bits:
        _print_bits(out, result)
    if result.comparisons:
        _print_comparisons(out, result.comparisons)
    out.print(result.verdict, width=text_width(out))
    if result.config_source:
        out.print()
        print_note(out, f"{_CONFIG}:")
        out.print(result.config_source, style="cyan", soft_wrap=True)
    if is_full:
        print_remarks(out, result.matrices)
    print_skipped(out, result.skipped)


def _print_matrices(out: Console, result: Analysis, *, is_full: bool) -> None:
    """Print a row per matrix, one per budget for all together, and one of independent entries."""
    ranks, methods = _ranks(result), _methods(result, is_full=is_full)
    errors: dict[tuple[str, str], dict[str, MatrixError]] = {}
    for error in result.errors:
        if error.r == ranks[0]:
            errors.setdefault((error.name, error.tuned), {})[error.method] = error
    sizes = {(one.method, one.name, one.tuned): f"{one.size:,}" for one in result.allocation}
    if sizes:
        sizes_are = f"of LoRA and LoCA, if {result.total} are split for all"
        print_note(out, f"{' and '.join(_SIZES.values())}: {sizes_are}")
    names = [short_name(one.name) for one in result.matrices]
    known = with_values((*CHANGE, *STATISTICS), result.matrices)
    columns = [column for column in known if is_full and column.title in _STATISTICS]
    cells = []
    for one, name in zip(result.matrices, names, strict=True):
        mine = errors.get((one.name, one.tuned), {})
        own = {heading: sizes.get((key, one.name, one.tuned), "")
               for key, heading in _SIZES.items()}  # fmt: skip
        label = f"{name}, {one.tuned}" if len(result.tuned) > 1 else name
        cells.append({
            "matrix": printable(label),
            "shape": "x".join(map(str, one.shape)),
            "rank 90%": f"{one.rank_90:,}",
            **own,
            **_retained(mine, methods),
            **(_bases(mine) if is_full else {}),
            **{column.title: column.text(one) for column in columns},
        })  # fmt: skip
    if not Rows(cells).fits(out):
        start = "".join(commonprefix(names).rpartition(".")[:2])  # noqa: RUF071  names, not paths
        if start:
            print_note(out, f"names are without the prefix {printable(start)!r}")
        for row in cells:
            row["matrix"] = row["matrix"].removeprefix(printable(start))
    empty, are_several = dict.fromkeys(cells[0], ""), len(cells) > 1
    for r in ranks[not are_several :]:
        label, total = f"{'together, ' * are_several}r = {r}", _of_rank(result.summary.all, r)
        cells.append({**empty, "matrix": label, **_retained(total, methods),
                      **(_bases(total) if is_full else {})})  # fmt: skip
    total = _of_rank(result.summary.all, ranks[0])
    cells.append({**empty, "matrix": f"independent, r = {ranks[0]}",
                  **_retained(total, methods, "iid_error")})  # fmt: skip
    Rows(cells).print(out)
    out.print()
    print_note(out, _TOGETHER * are_several + _INDEPENDENT)
    if is_full:
        texts = _COLUMNS | {column.title: column.explanation for column in columns}
        print_note(out, "\n".join(f"{title}: {text}" for title, text in texts.items()))


def _of_rank(group: Totals, r: int) -> dict[str, MeanError]:
    """What the methods leave of a group of matrices at the budget of one rank, by method."""
    return {error.method: error for error in group.errors if error.r == r}


def _ranks(result: Analysis) -> list[int]:
    return list(dict.fromkeys(error.r for error in result.summary.all.errors)) or [0]


def _methods(result: Analysis, *, is_full: bool = False) -> list[str]:
    """Methods in tables: the usual forms and the user's own methods, or all."""
    found = dict.fromkeys(error.method for error in result.errors)
    left_out = {*_FORMS, *(() if is_full else (method.name for method in ANALYSED))}
    return [
        *(key for key in _FORMS if key in found),
        *(key for key in found if key not in left_out),
    ]


def _retained(errors: _Errors, methods: Iterable[str], field: str = "error") -> _Cells:
    """What each method retains; bold if none retains more."""
    cells: _Cells = dict.fromkeys(map(display_name, methods), "")
    known = {key: getattr(one, field) for key, one in errors.items()}
    least = min((error for error in known.values() if error is not None), default=0.0)
    for key in methods:
        if (error := known.get(key)) is not None:
            style = "bold" if error == least else ""
            cells[display_name(key)] = Text(f"{1 - error:.1%}", style=style)
    return cells


def _bases(errors: _Errors) -> _Cells:
    """What is retained of shuffled entries, and of other singular vectors."""
    lora, loca = errors.get("R"), errors.get("D")
    return {
        _SHUFFLED: f"{1 - lora.shuffled_error:.1%}" if lora else "",
        _BASIS: f"{1 - loca.spectral_error:.1%}" if loca and loca.spectral_error else "",
    }


def _print_totals(out: Console, title: str, groups: Sequence[Totals], result: Analysis) -> None:
    """Print a row per group of matrices: what is retained of them together."""
    rows = [
        {
            title: printable(group.name),
            "matrices": str(group.matrices),
            **_retained(_of_rank(group, _ranks(result)[0]), _methods(result)),
            "normality\nnot rejected": str(group.matrices - group.not_normal),
            "near\nlaw": str(group.follow_mp),
        }
        for group in groups
    ]
    Rows(rows).print(out)
    out.print()


def _print_bits(out: Console, result: Analysis) -> None:
    """Print what coders retain of all matrices together at equal bits per entry."""
    keys = ((one.name, one.tuned) for one in result.matrices)
    weights = dict(zip(keys, energy_weights(result.matrices), strict=True))
    found: dict[tuple[str, float, bool], list[float]] = {}
    for one in result.bits:
        if one.transform in ("none", "dct"):
            code = one.method, one.bits, one.transform == "dct"
            retained = weights[one.name, one.tuned] * (1 - one.error)
            found.setdefault(code, []).append(retained)
    # A code that not all matrices have retains nothing of all together.
    totals = {code: f"{sum(parts) / sum(weights.values()):.1%}"
              for code, parts in found.items() if len(parts) == len(weights)}  # fmt: skip
    columns = {
        f"{bits:g} bit{'s' * (bits != 1)}{', DCT' * is_dct}": (bits, is_dct)
        for bits, is_dct in sorted({code[1:] for code in found})
    }
    rows = [
        {"coder": name, **{heading: totals.get((name, *column), "–")
                           for heading, column in columns.items()}}
        for name in dict.fromkeys(name for name, *_ in found)
    ]  # fmt: skip
    print_note(out, _BITS)
    Rows(rows).print(out)
    out.print()


def _print_comparisons(out: Console, comparisons: Sequence[Comparison]) -> None:
    """Print how alike each pair of fine-tunes is, in the median over the matrices."""
    out.print("Between fine-tunes", style="bold")
    print_note(out, _ALIKE)
    pairs: dict[str, list[Comparison]] = {}
    for one in comparisons:
        pairs.setdefault(printable(f"{one.first}, {one.second}"), []).append(one)
    rows = [
        {"": names, "number": str(len(mine)),
         **{heading: _median(getattr(one, field) for one in mine)
            for heading, field in _LIKENESS.items()}}
        for names, mine in pairs.items()
    ]  # fmt: skip
    Rows(rows).print(out)
    out.print()


def _median(values: Iterable[float | None]) -> str:
    """Format the median of the values that are not None."""
    known = [value for value in values if value is not None]
    return f"{median(known):.3f}" if known else ""
