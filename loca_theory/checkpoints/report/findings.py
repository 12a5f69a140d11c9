"""The findings of an analysis, a sentence each: forms, dependence, basis, spectrum, normality."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from loca_theory._words import counted, ends, listed
from loca_theory.checkpoints.form.forms import LOCA, LORA, TYPES
from loca_theory.checkpoints.measure.errors import NOTICEABLE
from loca_theory.checkpoints.measure.rows import Matrix, MatrixError
from loca_theory.checkpoints.report.summary import MeanError, Summary, Totals

# Shuffling restores the independent error if at most this fraction of the difference remains.
_BACK = 0.1
# LoRA retains as much as of independent entries.
_ALIKE = 0.01


def findings(
    summary: Summary,
    matrices: Sequence[Matrix],
    errors: Sequence[MatrixError],
    epsilon: float,
) -> tuple[str, ...]:
    """Which form retains how much of the increments, why, and are they normal?"""
    if not matrices:
        return ()
    means = summary.all.by_rank
    last = _spectrum(matrices), _normality(summary.all, matrices, epsilon)
    if not means:
        return last
    r, total = next(iter(means.items()))
    of_rank = [row for row in errors if row.r == r]
    winner = _winner(total)
    if len(summary.by_tuned) > 1:
        winner = _winners([totals.by_rank.get(r, {}) for totals in summary.by_tuned])
    controlled = summary.controlled.by_rank.get(r, {}).get(LORA.method)
    return (
        f"At the budget of LoRA with r = {r}, {winner}",
        _dependence(total[LORA.method], controlled),
        _order(total[LOCA.method], of_rank),
        *last,
    )


def _winner(errors: Mapping[str, MeanError]) -> str:
    """What each form retains of all matrices."""
    methods = [method for method in TYPES if method in errors]
    best, *worse = sorted(methods, key=lambda method: errors[method].error)
    texts = [f"{TYPES[method].words} {1 - errors[method].error:.0%}" for method in worse]
    kind, retained = TYPES[best], 1 - errors[best].error
    return f"{kind.words} {kind.verb} {retained:.0%} of the energy ‖ΔW‖², {listed(texts)}."


def _winners(groups: Sequence[Mapping[str, MeanError]]) -> str:
    """In how many fine-tunes each form retains most, and how much the forms retain."""
    groups = [errors for errors in groups if errors]
    shown = [method for method in TYPES if method in groups[0]]
    counts = Counter(min(shown, key=lambda method: errors[method].error) for errors in groups)
    best = listed([f"{TYPES[method].words} in {count}" for method, count in counts.most_common()])
    ranges = [
        f"{TYPES[method].words} {ends([1 - errors[method].error for errors in groups], '.0%')}"
        for method in shown
    ]
    text = f"the form that retains most of the energy ‖ΔW‖² is {best} of {len(groups)} fine-tunes: "
    return f"{text}{listed(ranges)}."


def _dependence(total: MeanError, controlled: MeanError | None) -> str:
    """Does LoRA retain more than of independent entries, and is dependence the cause?"""
    retained, expected = 1 - total.error, 1 - (total.iid_error or 0.0)  # never None for R
    if abs(retained - expected) < _ALIKE:
        return "LoRA retains as much as it would of independent entries."
    text = f"LoRA would retain {expected:.0%} of independent normal entries"
    if controlled is None:
        return f"{text}."
    retained, expected = 1 - controlled.error, 1 - (controlled.iid_error or 0.0)
    shuffled = 1 - (controlled.shuffled_error or 0.0)
    if controlled.matrices == total.matrices:
        text += f", and {shuffled:.0%} of these entries in random order"
    else:
        known = counted(controlled.matrices, "representative matrix", "representative matrices")
        text += f"; of {known} LoRA retains {retained:.0%}, {shuffled:.0%} with the entries in "
        text += f"random order and {expected:.0%} if they were independent"
        if abs(retained - expected) < _ALIKE:
            return f"{text}."
    cause = "their arrangement and their distribution both contribute"
    if abs(shuffled - expected) <= _BACK * abs(retained - expected):
        cause = "the difference is in how the entries are arranged, not how they are distributed"
    return f"{text}: {cause}."


def _spectrum(matrices: Sequence[Matrix]) -> str:
    """In how few dimensions the energy lies, and how many spectra are close to the law."""
    close = [matrix for matrix in matrices if matrix.follows_law]
    beside = [matrix for matrix in close if matrix.spikes]
    dimensions, count = ends([matrix.rank_90 for matrix in matrices], "d"), len(matrices)
    text = "In each matrix, 90%" if count > 1 else "90%"
    values = "singular value" if dimensions == "1" else "singular values"
    text += f" of the energy lies in {dimensions} {values}; the spectrum is close to the "
    text += "Marchenko–Pastur law of independent entries in "
    text += f"{len(close) - len(beside):,} of {counted(count, 'matrix', 'matrices')}"
    if beside:
        outside = ends([matrix.outlier_mass for matrix in beside], ".0%")
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
    rejected, distances = total.not_normal, ends([matrix.tv for matrix in matrices], ".3f")
    outcome = "rejected at the level 5%" if rejected else "not rejected at the level 5%"
    if total.matrices > 1:
        outcome = f"rejected at the level 5% in {rejected} of {total.matrices}"
    return (
        f"Normality of the entries, up to a total variation of {epsilon:g}, is {outcome} (total "
        f"variation from a normal law {distances})."
    )
