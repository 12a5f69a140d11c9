"""The verdict on an analysis in one paragraph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from loca_theory.checkpoints.rows import Matrix, MatrixError
from loca_theory.checkpoints.summary import MeanError, Totals

ADAPTERS = {
    "R": "LoRA",
    "D": "LoCA (best DCT coefficients)",
    "FourierFT": "FourierFT",
    "S": "the largest plain entries",
}
"""Methods that a configuration makes an adapter of, in words; F2 and F3 have none."""

SHOWN = tuple(ADAPTERS)
"""Methods in short tables and figures. A user's own methods are added after them."""

_ACCOUNTINGS = {
    "free_error": "if indices were free", "bits_error": "if an index cost its bits",
}  # fmt: skip
"""Errors by other accountings than the chosen one."""

# Matrices that the verdict names.
_NAMED = 3

# Shuffling restores the independent error if at most this fraction of the difference remains.
_BACK = 0.1
# A smaller fraction of the energy makes no practical difference and may be the spread of small
# matrices.
_NOTICEABLE = 0.03


def verdict(
    total: Totals,
    epsilon: float,
    each: Sequence[MatrixError] = (),
    matrices: Mapping[str, Matrix] = MappingProxyType({}),
) -> str:
    """One paragraph: are the increments normal and independent, and which adapter is best?

    Args:
        total: Totals over the increments.
        epsilon: Total variation that still counts as normal.
        each: Errors of the increments, one by one.
        matrices: Their statistics, by name.
    """
    if total.median_tv is None:
        return "No matrix could be analysed."
    normal = total.matrices - total.not_normal
    parts = [_normality(normal, total.matrices, epsilon, total.median_tv), _spectrum(total)]
    errors = errors_by_rank(total)
    if errors:
        parts.append(_dependence(next(iter(errors.values()))["R"]))
        first, *others = (_winner(mine, r) for r, mine in errors.items())
        r = next(iter(errors))
        here = [one for one in each if one.r == r]
        at = [one for one in here if one.method == "D"]
        parts += [first, *_disagreements(here), _basis(errors[r]), *_suited(at, matrices), *others]
        if min(SHOWN, key=lambda method: errors[r][method].error) == "S":
            parts.append("An extraction by entries stores them in PEFT's format SHiRA.")
        parts.append("(These are the best that each could do; LoCA's assumes perfect locations.)")
    return " ".join(parts)


def errors_by_rank(total: Totals) -> dict[int, dict[str, MeanError]]:
    """Mean errors by rank, in the given order, and by method."""
    found: dict[int, dict[str, MeanError]] = {}
    for error in total.errors:
        found.setdefault(error.r, {})[error.method] = error
    return found


def _winner(errors: Mapping[str, MeanError], r: int) -> str:
    retained = {method: 1 - errors[method].error for method in SHOWN}
    best, *others = sorted(retained, key=lambda method: -retained[method])
    *rest, last = (f"{ADAPTERS[method]} {retained[method]:.0%}" for method in others)
    found = f"{ADAPTERS[best]} {verb(best)} {retained[best]:.0%} of the energy"
    return f"At the budget of r = {r}, {found}, {', '.join(rest)} and {last}."


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


def _disagreements(errors: Sequence[MatrixError]) -> Iterator[str]:
    """A sentence on which form retains most in most matrices, if an accounting changes that."""
    found = {field: _most_often_best(errors, field) for field in ("error", *_ACCOUNTINGS)}
    method, count = found.pop("error")
    others = [
        f"{_ACCOUNTINGS[field]}, {ADAPTERS[other]} would in {most}"
        for field, (other, most) in found.items()
        if other != method
    ]
    if others:
        total = len({one.name for one in errors})
        text = f"In {count} of {total} matrices {ADAPTERS[method]} {verb(method)} the most; "
        yield f"{text}{'; '.join(others)}."


def _most_often_best(errors: Sequence[MatrixError], field: str) -> tuple[str, int]:
    """The form with the smallest error in most matrices, and in how many; "" if there is none."""
    best: dict[str, MatrixError] = {}
    for one in errors:
        error = getattr(one, field)
        if one.bits_error is not None and (
            one.name not in best or error < getattr(best[one.name], field)
        ):
            best[one.name] = one
    return next(iter(Counter(one.method for one in best.values()).most_common(1)), ("", 0))


def verb(form: str) -> str:
    """The verb that follows the words for a form."""
    return "retain" if form == "S" else "retains"


def _suited(errors: Sequence[MatrixError], matrices: Mapping[str, Matrix]) -> Iterator[str]:
    """A sentence on the matrices that the DCT suits, and why."""
    gains = {}
    for one in errors:
        if one.axes_shuffled_error is None or one.spectral_error is None:
            continue
        if one.spectral_error - one.error >= _NOTICEABLE:
            gains[one] = one.spectral_error - one.error
    if not gains:
        return
    best = sorted(gains, key=lambda one: -gains[one])
    names = [
        f"{one.name.removesuffix('.weight')} ({_reason(one, matrices[one.name])})"
        for one in best[:_NAMED]
    ]
    if len(best) > _NAMED:
        names.append(f"{len(best) - _NAMED} more")
    *first, last = names
    listed = f"{', '.join(first)} and {last}" if first else last
    most = f"{100 * gains[best[0]]:.0f}"
    yield (
        f"In {len(best)} of {len(errors)} matrices the DCT retains at least "
        f"{100 * _NOTICEABLE:.0f} points more than an unrelated basis, up to {most}: {listed}."
    )


def _reason(one: MatrixError, matrix: Matrix) -> str:
    """What gives the DCT the largest part of its gain."""
    by_rows, by_columns = matrix.row_mean_energy or 0.0, matrix.column_mean_energy or 0.0
    constant = f"constant along its {'inputs' if by_rows > by_columns else 'outputs'}"
    worth = {
        "smooth along its inputs": (one.inputs_shuffled_error or 0.0) - one.error,
        "smooth along its outputs": (one.outputs_shuffled_error or 0.0) - one.error,
        constant: (one.spectral_error or 0.0) - (one.axes_shuffled_error or 0.0),
    }
    return max(worth, key=lambda reason: worth[reason])


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
