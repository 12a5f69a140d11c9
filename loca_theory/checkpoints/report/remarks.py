"""Sentences beside the verdict: on unrelated weights, on the budget, and on splits of a total."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import Any

from loca_theory.checkpoints.form.forms import LORA, TYPES
from loca_theory.checkpoints.measure.matrix import UNRELATED
from loca_theory.checkpoints.measure.rows import AllocatedMatrix, Matrix
from loca_theory.checkpoints.report.summary import Totals
from loca_theory.expressivity import Accounting
from loca_theory.expressivity.bits import NUMBER_BITS

# The remark on a fine-tune that is the base.
_IDENTICAL = "The base and the fine-tune are identical: they store the same tensors."

_LORA = "Budget: r(p + q) numbers for a p×q matrix, as LoRA has"
_CHARGED = "A location chosen by looking at ΔW costs one number"
_BUDGETS = {
    Accounting.PAPER: f"{_LORA}. {_CHARGED}, so LoCA and entries have half as many values as "
    "FourierFT, whose locations are random, has coefficients.",
    Accounting.MAIN_TEXT: f"{_LORA}. {_CHARGED}; Fourier pairs get 2/3 r(p + q) of them, twice "
    "what that pays for.",
    Accounting.TRAINABLE: f"{_LORA}. Only trainable numbers count, so LoCA, entries and FourierFT "
    "have as many values as LoRA.",
    Accounting.DOF: "Budget: r(p + q − r) numbers for a p×q matrix, the degrees of freedom of "
    f"rank r. {_CHARGED}.",
    Accounting.BITS: f"{_LORA}, of {NUMBER_BITS} bits each. A location chosen by looking at ΔW "
    "costs the logarithm of the number of locations, in bits.",
}
_IN_BYTES = " The {} are those of the tensors that PEFT stores, with their locations."

# Less of the smaller checkpoint is not compared without a remark.
_ENOUGH = 0.9
# Smaller errors of rounding, relative to the energy of the change, go without a remark.
_NOTICEABLE_ROUNDING = 0.05
# A split may retain less than the best by this fraction of the energy without a remark.
_NOTICEABLE_GAP = 0.01


def remarks_by_label(
    grid: Mapping[str, Any], groups: Iterable[Totals], matrices: Iterable[Matrix]
) -> Iterator[tuple[str, str]]:
    """Remarks on whether each fine-tune is the base, unrelated, rounded, or compared in part.

    A remark that does not apply is "".
    """
    by_label: dict[str, list[Matrix]] = {label: [] for label in grid["labels"]}
    for row in matrices:
        by_label[row.tuned].append(row)
    yield from ((label, _IDENTICAL) for label in grid["identical"])
    yield from ((group.name, _unrelated(group)) for group in groups)
    yield from ((label, _rounding(rows)) for label, rows in by_label.items())
    yield from ((label, _uncovered(grid["coverage"][label])) for label in by_label)


def _unrelated(total: Totals) -> str:
    """The remark that W₀ and W′ are unrelated; "" if they are not, or W₀ is not known."""
    cosine = total.median_weights_cosine
    if cosine is None or cosine >= UNRELATED:
        return ""
    middle = "median " if total.matrices > 1 else ""
    return (
        f"The weights of the base and of the fine-tune are unrelated ({middle}cosine "
        f"{cosine:z.2f}, almost 1 for a fine-tune): the increments are differences between two "
        "trainings, not changes by fine-tuning."
    )


def _rounding(matrices: Sequence[Matrix]) -> str:
    """The remark that rounding is a large part of the stored changes; "" if it is not."""
    known = [row for row in matrices if row.rounding is not None and row.changed is not None]
    errors = [row.rounding for row in known if row.rounding is not None]
    if not known or (error := median(errors)) < _NOTICEABLE_ROUNDING:
        return ""
    formats = " and ".join(sorted({row.format for row in known}))
    changed = median(row.changed for row in known if row.changed is not None)
    much = f"about {error:.0%}" if error < 1 else "more than all"
    return (
        f"Stored in {formats}, whose steps are as large as these changes: {changed:.1%} of the "
        f"entries of the median matrix changed, with errors of rounding of {much} of the energy "
        "of the change, if it was normal, so that all numbers are of the rounded change; if a LoRA "
        "was merged, unmerge looks through the rounding."
    )


def _uncovered(coverage: Mapping[str, Any] | None) -> str:
    """The remark that little of the smaller checkpoint is compared; "" if enough is."""
    if coverage is None or coverage["fraction"] >= _ENOUGH:
        return ""
    return (
        f"Only {coverage['fraction']:.0%} of the parameters of the {coverage['side']} checkpoint "
        f"are compared: {coverage['missing']} of its tensors have no partner of the same name and "
        f"shape, such as {', '.join(coverage['largest'])}."
    )


def not_compared(matrices: Sequence[Matrix]) -> list[str]:
    """The remark on fine-tunes that change no matrix of the same name and shape, if there are."""
    changed: dict[str, set[Any]] = {}
    for row in matrices:
        changed.setdefault(row.tuned, set()).add((row.name, row.shape))
    apart = [
        f"{first} and {second}"
        for (first, of_first), (second, of_second) in combinations(changed.items(), 2)
        if of_first.isdisjoint(of_second)
    ]
    text = "Not compared, since they change no matrix of the same name and shape: "
    return [f"{text}{'; '.join(apart)}."] if apart else []


def budget(grid: Mapping[str, Any]) -> str:
    """The accounting of an analysis with these settings, in words."""
    total = grid["allocate"] or ""
    in_bytes = _IN_BYTES.format(total) if total.endswith("bytes") else ""
    return _BUDGETS[Accounting(grid["accounting"])] + in_bytes


def allocations(
    sizes: Sequence[AllocatedMatrix], labels: Iterable[str], total: str | None
) -> Iterator[tuple[str, str]]:
    """How much more do sizes by matrix retain at the same total, by fine-tune and method?"""
    for label in labels:
        of_label = [row for row in sizes if row.tuned == label]
        yield from ((label, sentence) for sentence in _allocations(of_label, total))


def _allocations(sizes: Sequence[AllocatedMatrix], total: str | None) -> list[str]:
    """One sentence per method."""
    sentences = []
    if total is not None and not any(row.method == LORA.method for row in sizes):
        sentences.append(f"{total} do not pay for one rank of LoRA in any layer.")
    layers = len({row.name for row in sizes})
    for method in dict.fromkeys(row.method for row in sizes):
        of_method = [row for row in sizes if row.method == method]
        energy = sum(row.energy for row in of_method) or 1.0
        best = sum(row.energy * row.retained for row in of_method) / energy
        same = sum(row.energy * row.uniform_retained for row in of_method) / energy
        count = f"{len(of_method)} layers"
        if len(of_method) < layers:
            count = f"{len(of_method)} of {layers} layers, which are those that can have it"
        kind = TYPES[method]
        text = f"With {total} for {count}, {kind.words} {kind.verb} {best:.0%} of their "
        text += "energy if each gets its own size"
        if same:
            text += f". The largest size that all can have retains {same:.0%}, and a split of what "
            text += f"that costs {of_method[0].equal_retained:.0%}"
        else:
            text += ", and the same size for all costs more"
        if of_method[0].bound - best >= _NOTICEABLE_GAP:
            text += f"; no split retains more than {of_method[0].bound:.0%}"
        sentences.append(f"{text}.")
    return sentences
