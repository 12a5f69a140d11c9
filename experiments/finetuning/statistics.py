"""Means over seeds with intervals, and differences between methods paired by seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import ttest_1samp

Row = dict[str, Any]
LEVEL = 0.95


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    r"""Mean and Student's interval, :math:`\bar x \pm t_{n-1, 0.975}\, s / \sqrt n`.

    Args:
        values: One value per seed; the interval of a single value is unbounded.

    Returns:
        Mean, lower and upper end.
    """
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, -math.inf, math.inf
    if np.ptp(values) == 0:
        return mean, mean, mean
    ends = ttest_1samp(values, 0.0).confidence_interval(LEVEL)
    return mean, float(ends.low), float(ends.high)


def paired_p_value(differences: Sequence[float]) -> float:
    """Two-sided p-value of Student's test that the mean difference is 0.

    The p-value is 1 if all differences are 0, or if there is only one pair.
    """
    if len(differences) < 2 or not np.any(differences):
        return 1.0
    if np.ptp(differences) == 0:
        return 0.0
    return float(ttest_1samp(differences, 0.0).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm-adjusted p-values, which control the family-wise error rate.

    Source: Holm, Scandinavian Journal of Statistics 6, 1979.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, highest = [0.0] * len(p_values), 0.0
    for position, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - position) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def summary(
    rows: Iterable[Mapping[str, Any]],
    by: Sequence[str],
    *,
    reference: Mapping[str, Any] | None = None,
) -> list[Row]:
    """Mean and interval of each group, and its difference from another group on the same seeds.

    Diverged runs are counted but excluded from the means, so the mean of a method does not show
    that it diverges: look at ``diverged`` first.

    Args:
        rows: Rows of runs with ``seed``, ``metric`` and ``diverged``.
        by: Columns that define a group.
        reference: Values of some of these columns in the group to compare with; in the other
            columns it has the values of the group itself.

    Returns:
        One row per group, with ``mean``, ``low``, ``high``, ``seeds``, ``diverged`` and, if there
        is a reference, ``difference``, ``difference_low``, ``difference_high`` and ``p_value`` (of
        Student's paired test, adjusted by Holm's method over all groups).
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for entry in rows:
        groups.setdefault(tuple(entry[name] for name in by), []).append(entry)
    found: list[Row] = []
    for key, members in groups.items():
        good = {m["seed"]: m["metric"] for m in members if not m["diverged"]}
        mean, low, high = interval(list(good.values())) if good else (None, None, None)
        line: Row = dict(zip(by, key, strict=True))
        line |= {name: members[0][name] for name in ("title", "measure", "trained", "stored")}
        line |= {"mean": mean, "low": low, "high": high}
        line |= {"seeds": len(good), "diverged": len(members) - len(good)}
        if reference is not None:
            compared = tuple({**line, **reference}[name] for name in by)
            other = groups.get(compared, []) if compared != key else []
            line |= _difference(good, {m["seed"]: m["metric"] for m in other if not m["diverged"]})
        found.append(line)
    if reference is not None:
        tested = [line for line in found if line["p_value"] is not None]
        adjusted = holm([line["p_value"] for line in tested])
        for line, p_value in zip(tested, adjusted, strict=True):
            line["p_value"] = p_value
    return found


def _difference(mine: Mapping[int, float], other: Mapping[int, float]) -> Row:
    differences = [mine[seed] - other[seed] for seed in mine if seed in other]
    if len(differences) < 2:
        return dict.fromkeys(("difference", "difference_low", "difference_high", "p_value"))
    mean, low, high = interval(differences)
    return {
        "difference": mean,
        "difference_low": low,
        "difference_high": high,
        "p_value": paired_p_value(differences),
    }
