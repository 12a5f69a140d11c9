"""The verdict on an analysis in one paragraph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from loca_theory.checkpoints.rows import AllocatedMatrix, Comparison
from loca_theory.checkpoints.statistics.matrix import UNRELATED
from loca_theory.checkpoints.summary import MeanError, Totals

ADAPTERS = {"R": "LoRA", "D": "LoCA (best DCT coefficients)", "FourierFT": "FourierFT"}
"""Methods that exist as an adapter, with its name. S, F2 and F3 have no adapter."""

SHOWN = (*ADAPTERS, "S")
"""Methods in short tables and figures: the adapters, and selection of entries for comparison.

A user's own methods are added after them.
"""

# A split may retain less than the best by this fraction of the energy without a remark.
_NOTICEABLE_GAP = 0.01
# Shuffling restores the independent error if at most this fraction of the difference remains.
_BACK = 0.1
# A smaller fraction of the energy makes no practical difference and may be the spread of small
# matrices.
_NOTICEABLE = 0.03


def warning(total: Totals) -> str:
    """The remark that W₀ and W′ are unrelated; "" if they are not, or W₀ is not known."""
    cosine = total.median_weights_cosine
    if cosine is None or cosine >= UNRELATED:
        return ""
    middle = "median " if total.matrices > 1 else ""
    return (
        f"The weights of the base and of the fine-tune are unrelated: the {middle}cosine between "
        f"them is {cosine:z.2f}, and that of a fine-tune is almost 1. The increments are "
        "differences between two trainings, not changes by fine-tuning."
    )


def verdict(total: Totals, epsilon: float) -> str:
    """One paragraph: are the increments normal and independent, and which adapter is best?"""
    if total.median_tv is None:
        return "No matrix could be analysed."
    normal = total.matrices - total.not_normal
    parts = [_normality(normal, total.matrices, epsilon, total.median_tv), _spectrum(total)]
    errors = errors_by_rank(total)
    if errors:
        parts.append(_dependence(next(iter(errors.values()))["R"]))
        first, *others = (_winner(mine, r) for r, mine in errors.items())
        parts += [first, _basis(next(iter(errors.values()))), *others]
        parts.append("(These are the best that each could do; LoCA's assumes perfect locations.)")
    return " ".join(parts)


def errors_by_rank(total: Totals) -> dict[int, dict[str, MeanError]]:
    """Mean errors by rank, in the given order, and by method."""
    found: dict[int, dict[str, MeanError]] = {}
    for error in total.errors:
        found.setdefault(error.r, {})[error.method] = error
    return found


def _winner(errors: Mapping[str, MeanError], r: int) -> str:
    retained = {method: 1 - errors[method].error for method in ADAPTERS}
    best, *others = sorted(retained, key=lambda method: -retained[method])
    rest = " and ".join(f"{ADAPTERS[method]} {retained[method]:.0%}" for method in others)
    found = f"{ADAPTERS[best]} retains {retained[best]:.0%} of the energy"
    return f"At the budget of r = {r}, {found}, {rest}."


def _basis(errors: Mapping[str, MeanError]) -> str:
    """A sentence on whether the DCT suits the matrices better than a basis unrelated to them."""
    error, expected = errors["D"].error, errors["D"].spectral_error
    if expected is None:  # never for D
        return ""
    text = (
        f"A basis unrelated to the matrices would retain {1 - expected:.0%} where the DCT retains "
    )
    text += f"{1 - error:.0%}"
    is_noticeable = abs(expected - error) >= _NOTICEABLE
    return f"{text}." if is_noticeable else f"{text}: the DCT itself makes little difference."


def _spectrum(total: Totals) -> str:
    """A sentence on whether the spectra follow the Marchenko–Pastur law."""
    count, follow = total.matrices, total.follow_mp
    fraction = f"{total.median_outlier_mass:.0%}"
    # A few large eigenvalues hardly change the distance: the bulk may follow the law while most of
    # the energy lies outside it.
    text = f"In {follow} of {count} the bulk of the spectrum is close to"
    if count == 1:
        text = f"The bulk of the spectrum is {'close to' if follow else 'not close to'}"
    text += " the Marchenko–Pastur law of independent entries"
    distance = total.median_mp_distance
    middle = "median " * (count > 1)
    details = [] if distance is None else [f"{middle}distance {distance:.2f}"]
    if follow < count:
        where = "outside the law's support" + " in the median" * (count > 1)
        details.append(f"{fraction} of the energy lies {where}")
    text += f" ({'; '.join(details)})" if details else ""
    if follow and total.with_spikes:
        text += f"; {total.with_spikes} of {count} have" if count > 1 else "; it has"
        text += (
            f" eigenvalues above it, with {fraction} of the energy{' in the median' * (count > 1)}"
        )
    return f"{text}."


def _normality(normal: int, count: int, epsilon: float, distance: float) -> str:
    found = f"{normal} of {count} increments are"
    if count == 1:
        found = f"The increment is{'' if normal else ' not'}"
    law = f"within a total variation of {epsilon:g} of a normal law as far as the test can tell"
    return f"{found} {law} ({'median ' * (count > 1)}distance {distance:.3f})."


def _dependence(error: MeanError) -> str:
    if error.iid_error is None:  # never for R
        return ""
    gap = error.iid_error - error.error
    left = error.iid_error - error.shuffled_error
    if abs(gap) < 0.01:
        return "Low rank retains as much as it would of independent entries."
    cause = ": dependence and distribution both contribute."
    if abs(left) <= _BACK * abs(gap):
        cause = ", so the cause is dependence, not the distribution."
    return (
        f"At r = {error.r}, the error of low rank is {error.error:.0%} of the energy; for "
        f"independent entries it would be {error.iid_error:.0%}. After shuffling the entries it is "
        f"{error.shuffled_error:.0%}{cause}"
    )


def agreements(comparisons: Sequence[Comparison]) -> list[str]:
    """One sentence for every two fine-tunes: do their increments point the same way?"""
    pairs: dict[tuple[str, str], list[Comparison]] = {}
    for one in comparisons:
        pairs.setdefault((one.first, one.second), []).append(one)
    sentences = []
    for (first, second), mine in pairs.items():
        cosine = median(one.cosine for one in mine)
        conflicts = [one.sign_conflict for one in mine if one.sign_conflict is not None]
        text = f"{first} and {second} change {len(mine)} of the same matrices: median cosine "
        text += f"{cosine:.2f}"
        text += f", opposite signs at {median(conflicts):.0%} of the entries" if conflicts else ""
        sentences.append(f"{text}.")
    return sentences


def allocations(sizes: Sequence[AllocatedMatrix], total: str | None) -> list[str]:
    """One sentence per method: how much more do sizes by matrix retain at the same total?"""
    sentences = []
    if total is not None and not any(one.method == "R" for one in sizes):
        sentences.append(f"{total} do not pay for one rank of LoRA in any linear layer.")
    for method in dict.fromkeys(one.method for one in sizes):
        mine = [one for one in sizes if one.method == method]
        best = sum(one.energy * one.retained for one in mine)
        same = sum(one.energy * one.uniform_retained for one in mine)
        text = f"With {total} for {len(mine)} linear layers, {ADAPTERS[method]} retains "
        text += f"{best:.0%} of their energy if each gets its own size"
        if same:
            text += f". The largest size that all can have retains {same:.0%}, and a split of what "
            text += f"that costs {mine[0].equal_retained:.0%}"
        else:
            text += ", and the same size for all costs more"
        if mine[0].bound - best >= _NOTICEABLE_GAP:
            text += f"; no split retains more than {mine[0].bound:.0%}"
        sentences.append(f"{text}.")
    return sentences
