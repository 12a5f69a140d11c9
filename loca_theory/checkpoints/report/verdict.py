"""The verdict on an analysis: what to use, and the warning that matters most."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from loca_theory._words import counted, ends, listed
from loca_theory.checkpoints.form.forms import LORA, TYPES
from loca_theory.checkpoints.measure.rows import AllocatedMatrix, Matrix
from loca_theory.checkpoints.report.summary import MeanError, Summary

# What retains less of the change goes with a warning.
_SMALL = 0.5
_NO_ROOM = "No form was compared, since the budget of every rank is larger than the matrix"


def verdict(
    summary: Summary,
    matrices: Sequence[Matrix],
    allocation: Sequence[AllocatedMatrix],
    total: str | None,
    warnings: Sequence[str],
    left_out: str = "",
) -> tuple[str, ...]:
    """One sentence on what to use, and one warning if there are any.

    Args:
        summary: Totals over the matrices.
        matrices: The increments.
        allocation: Sizes of each layer's adapter, if a total is split.
        total: The total, in words.
        warnings: Other warnings, of which the first matters most.
        left_out: How many tensors were left out for which reason.
    """
    if not matrices:
        why = f"; left out: {left_out}" if left_out else ""
        return (f"No matrix could be analysed{why}.", *warnings[:1])
    if len(summary.by_tuned) > 1:
        text, retained = _of_several(summary)
    elif allocation:
        text, retained = _of_split(allocation, str(total))
    else:
        text, retained = _of_rank(summary)
    needed = f"needs rank {ends([matrix.rank_90 for matrix in matrices], 'd')} for 90%"
    each = "it" if len(matrices) == 1 else "each matrix alone"
    first = f"{text or _NO_ROOM}; {each} {needed}."
    small = "No form retains half of the change at this budget."
    is_small = bool(text) and retained < _SMALL
    return first, *[*warnings, *([small] if is_small else [])][:1]


def _of_rank(summary: Summary) -> tuple[str, float]:
    """Which form retains most at the first rank, beside LoRA."""
    means = summary.all.by_rank
    if not means:
        return "", 0.0
    r, of_methods = next(iter(means.items()))
    best = _best(of_methods)
    retained, kind = 1 - of_methods[best].error, TYPES[best]
    size = f"of rank {r}" if best == LORA.method else f"at the budget of LoRA of rank {r}"
    count = counted(of_methods[best].matrices, "matrix", "matrices")
    text = f"{kind.words} {size} {kind.verb} {retained:.0%} of the change of {count}"
    if best != LORA.method:
        text += f", LoRA {1 - of_methods[LORA.method].error:.0%}"
    return text[0].upper() + text[1:], retained


def _of_split(allocation: Sequence[AllocatedMatrix], total: str) -> tuple[str, float]:
    """Which form retains most if the total is split among the layers."""
    energies: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for row in allocation:
        parts = row.energy, row.energy * row.retained, row.energy * row.uniform_retained
        energies[row.method] = [a + b for a, b in zip(energies[row.method], parts, strict=True)]
    best = max(energies, key=lambda method: energies[method][1])
    energy, *split = energies[best]
    retained, uniform = (part / (energy or 1.0) for part in split)
    layers, kind = sum(row.method == best for row in allocation), TYPES[best]
    text = f"With {total}, {kind.words} {kind.verb} {retained:.0%} of the change of "
    text += f"{counted(layers, 'layer')} if each gets its own size"
    return text + (f", {uniform:.0%} if all get the same" if uniform else ""), retained


def _of_several(summary: Summary) -> tuple[str, float]:
    """In how many fine-tunes each form retains most."""
    groups = [group.by_rank for group in summary.by_tuned if group.by_rank]
    if not groups:
        return "", 0.0
    r = next(iter(groups[0]))
    errors = [group[r] for group in groups if r in group]
    best = [_best(of_methods) for of_methods in errors]
    retained = [1 - of_methods[key].error for of_methods, key in zip(errors, best, strict=True)]
    counts = [f"{TYPES[key].words} in {count}" for key, count in Counter(best).most_common()]
    text = f"At the budget of LoRA of rank {r}, the form that retains most is {listed(counts)} of "
    text += f"{counted(len(errors), 'fine-tune')}, {ends(retained, '.0%')} of the change"
    return text, min(retained)


def _best(of_methods: Mapping[str, MeanError]) -> str:
    return min(of_methods.keys() & TYPES.keys(), key=lambda method: of_methods[method].error)
