"""The verdict on an analysis, in at most five sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from loca_theory.checkpoints.form.forms import LOCA, LORA, TYPES
from loca_theory.checkpoints.measure.errors import NOTICEABLE
from loca_theory.checkpoints.measure.rows import Matrix, MatrixError
from loca_theory.checkpoints.report.summary import MeanError, Summary, Totals, follows_law

ADAPTERS = {method: kind.words for method, kind in TYPES.items()}
"""Methods that a configuration makes an adapter of, in words; F2 and F3 have none."""

SHOWN = tuple(ADAPTERS)
"""Methods in short tables and figures. A user's own methods are added after them."""

# Shuffling restores the independent error if at most this fraction of the difference remains.
_BACK = 0.1
# LoRA retains as much as of independent entries.
_ALIKE = 0.01


def verdict(
    summary: Summary,
    matrices: Sequence[Matrix],
    errors: Sequence[MatrixError],
    epsilon: float,
    unchanged: int = 0,
) -> str:
    """Which form retains how much of the increments, why, and are they normal?

    ``unchanged`` is the number of matrices that are the same on both sides.
    """
    if not matrices:
        why = f": {unchanged} have not changed" if unchanged else ""
        return f"No matrix could be analysed{why}."
    means = summary.all.by_rank
    last = _normality(summary.all, matrices, epsilon)
    if not means:
        return f"{_spectrum(matrices)} {last}"
    r, total = next(iter(means.items()))
    here = [one for one in errors if one.r == r]
    winner = _winner(total)
    if len(summary.by_tuned) > 1:
        winner = _winners([one.by_rank.get(r, {}) for one in summary.by_tuned])
    first = f"At the budget of LoRA with r = {r}, {winner}"
    controlled = summary.controlled.by_rank.get(r, {}).get(LORA.method)
    why = (
        _dependence(total[LORA.method], controlled),
        _spectrum(matrices),
        _order(total[LOCA.method], here),
    )
    return " ".join([first, *why, last])


def _winner(errors: Mapping[str, MeanError]) -> str:
    """What each form retains of all matrices."""
    known = [method for method in SHOWN if method in errors]
    best, *others = sorted(known, key=lambda method: errors[method].error)
    rest = [f"{ADAPTERS[method]} {1 - errors[method].error:.0%}" for method in others]
    text = f"{ADAPTERS[best]} {TYPES[best].verb} {1 - errors[best].error:.0%} of the energy ‖ΔW‖², "
    return f"{text}{_listed(rest)}."


def _winners(groups: Sequence[Mapping[str, MeanError]]) -> str:
    """In how many fine-tunes each form retains most, and how much the forms retain."""
    known = [errors for errors in groups if errors]
    shown = [method for method in SHOWN if method in known[0]]
    counts = Counter(min(shown, key=lambda method: errors[method].error) for errors in known)
    most = [f"{ADAPTERS[method]} in {count}" for method, count in counts.most_common()]
    ranges = [
        f"{ADAPTERS[method]} {_ends([1 - errors[method].error for errors in known], '.0%')}"
        for method in shown
    ]
    text = f"the form that retains most of the energy ‖ΔW‖² is {_listed(most)} of {len(known)} "
    return f"{text}fine-tunes: {_listed(ranges)}."


def _dependence(every: MeanError, controlled: MeanError | None) -> str:
    """Does LoRA retain more than of independent entries, and is dependence the cause?"""
    own, expected = 1 - every.error, 1 - (every.iid_error or 0.0)  # never None for R
    if abs(own - expected) < _ALIKE:
        return "LoRA retains as much as it would of independent entries."
    text = f"LoRA would retain {expected:.0%} of independent normal entries"
    if controlled is None:
        return f"{text}."
    own, expected = 1 - controlled.error, 1 - (controlled.iid_error or 0.0)
    shuffled = 1 - (controlled.shuffled_error or 0.0)
    if controlled.matrices == every.matrices:
        text += f", and {shuffled:.0%} of these entries in random order"
    else:
        count = controlled.matrices
        text += f"; of {count} representative matri{'x' if count == 1 else 'ces'} LoRA retains "
        text += f"{own:.0%}, {shuffled:.0%} with the entries in random order and {expected:.0%} if "
        text += "they were independent"
        if abs(own - expected) < _ALIKE:
            return f"{text}."
    cause = "their arrangement and their distribution both contribute"
    if abs(shuffled - expected) <= _BACK * abs(own - expected):
        cause = "the difference is in how the entries are arranged, not how they are distributed"
    return f"{text}: {cause}."


def _spectrum(matrices: Sequence[Matrix]) -> str:
    """In how few dimensions the energy lies, and how many spectra are close to the law."""
    close = [one for one in matrices if follows_law(one)]
    beside = [one for one in close if one.spikes]
    dimensions, count = _ends([one.rank_90 for one in matrices], "d"), len(matrices)
    text = "In each matrix, 90%" if count > 1 else "90%"
    text += f" of the energy lies in {dimensions} singular value{'s' * (dimensions != '1')}; the "
    text += "spectrum is close to the Marchenko–Pastur law of independent entries in "
    text += f"{len(close) - len(beside)} of {count} matri{'x' if count == 1 else 'ces'}"
    if beside:
        outside = _ends([one.outlier_mass for one in beside], ".0%")
        text += f", and in {len(beside)} but for a few larger values that hold {outside}"
    return f"{text}."


def _order(total: MeanError, errors: Sequence[MatrixError]) -> str:
    """Does the DCT suit the matrices better than a basis unrelated to them, and in how many?"""
    retained, expected = 1 - total.error, 1 - (total.spectral_error or total.error)
    text = f"The DCT retains {retained:.0%}, a basis unrelated to the matrices would retain "
    text += f"{expected:.0%}"
    gains = [
        row.spectral_error - row.error
        for row in errors
        if row.method == LOCA.method and row.spectral_error is not None
    ]
    suited = [gain for gain in gains if gain >= NOTICEABLE]
    if suited:
        text += f"; in {len(suited)} of {len(gains)} matrices the DCT retains at least "
        text += f"{100 * NOTICEABLE:.0f} points more, up to {100 * max(suited):.0f}"
    elif abs(retained - expected) < NOTICEABLE:
        text += ": rows and columns are in no order that the DCT could use"
    return f"{text}."


def _normality(total: Totals, matrices: Sequence[Matrix], epsilon: float) -> str:
    """Of how many increments the test rejects normality."""
    rejected, distances = total.not_normal, _ends([one.tv for one in matrices], ".3f")
    found = f"rejected at the level 5% in {rejected} of {total.matrices}"
    if total.matrices == 1:
        found = f"{'not ' * (not rejected)}rejected at the level 5%"
    return (
        f"Normality of the entries, up to a total variation of {epsilon:g}, is {found} (total "
        f"variation from a normal law {distances})."
    )


def _ends(values: Sequence[float], form: str) -> str:
    """The smallest and the largest of some values."""
    low, high = (format(end(values), form) for end in (min, max))
    return low if low == high else f"{low} to {high}"


def _listed(texts: Sequence[str]) -> str:
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last
