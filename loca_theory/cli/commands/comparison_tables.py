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


def print_comparisons(out: Console, comparisons: Sequence[Comparison]) -> None:
    """Print how alike each pair of fine-tunes is, in the median over the matrices."""
    out.print("Between fine-tunes", style="bold")
    print_note(out, _ALIKE)
    pairs: dict[str, list[Comparison]] = {}
    for one in comparisons:
        pairs.setdefault(printable(f"{one.first}, {one.second}"), []).append(one)
    rows = []
    for names, mine in pairs.items():
        rows.append(row := {"": names, "number": str(len(mine))})
        for heading, field in _LIKENESS.items():
            known = [value for one in mine if (value := getattr(one, field)) is not None]
            row[heading] = f"{median(known):.3f}" if known else ""
    Rows(rows).print(out)
