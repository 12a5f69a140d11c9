"""Print how coders compare at equal bits, and how fine-tunes of one base compare."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from rich.console import Console

from loca_theory.checkpoints import Analysis
from loca_theory.checkpoints.measure.rows import Comparison
from loca_theory.checkpoints.report.summary import energy_weights
from loca_theory.cli.output import Rows, print_note
from loca_theory.cli.printable import printable

_BITS = (
    "Energy retained of all matrices together by coders of the entries, or of their DCT "
    "coefficients, with at most so many bits per entry, beside a scale or the codes; `loca-theory "
    "methods` describes them. –: no such code. The best bit for an entry is its sign, so that "
    "Lloyd–Max, uniform and BitDelta, which has no other code, agree at 1 bit."
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


def print_bits(out: Console, result: Analysis) -> None:
    """Print what coders retain of all matrices together at equal bits per entry."""
    keys = ((matrix.name, matrix.tuned) for matrix in result.matrices)
    weights = dict(zip(keys, energy_weights(result.matrices), strict=True))
    parts_by_code: dict[tuple[str, float, bool], list[float]] = {}
    for row in result.bits:
        if row.transform in ("none", "dct"):
            code = row.method, row.bits, row.transform == "dct"
            retained = weights[row.name, row.tuned] * (1 - row.error)
            parts_by_code.setdefault(code, []).append(retained)
    # A code that not all matrices have retains nothing of all together.
    totals = {
        code: f"{sum(parts) / sum(weights.values()):.1%}"
        for code, parts in parts_by_code.items()
        if len(parts) == len(weights)
    }
    columns = {
        f"{bits:g} {'bit' if bits == 1 else 'bits'}{', DCT' if is_dct else ''}": (bits, is_dct)
        for bits, is_dct in sorted({code[1:] for code in parts_by_code})
    }
    rows = [
        {
            "coder": name,
            **{heading: totals.get((name, *column), "–") for heading, column in columns.items()},
        }
        for name in dict.fromkeys(name for name, *_ in parts_by_code)
    ]
    print_note(out, _BITS)
    Rows(rows).print(out)


def print_comparisons(out: Console, comparisons: Sequence[Comparison]) -> None:
    """Print how alike each pair of fine-tunes is, in the median over the matrices."""
    out.print("Between fine-tunes", style="bold")
    print_note(out, _ALIKE)
    pairs: dict[str, list[Comparison]] = {}
    for pair in comparisons:
        pairs.setdefault(printable(f"{pair.first}, {pair.second}"), []).append(pair)
    rows = []
    for names, of_pair in pairs.items():
        rows.append(row := {"": names, "number": str(len(of_pair))})
        for heading, field in _LIKENESS.items():
            values = [value for pair in of_pair if (value := getattr(pair, field)) is not None]
            row[heading] = f"{median(values):.3f}" if values else ""
    Rows(rows).print(out)
