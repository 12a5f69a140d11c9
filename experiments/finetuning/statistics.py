"""Means over seeds with intervals, and differences between methods paired by seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import ttest_1samp

Row = dict[str, Any]
LEVEL = 0.95


def grouped(rows: Iterable[Row], names: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by their values in some columns."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    r"""Mean and Student's interval, :math:`\bar x \pm t_{n-1, 0.975}\, s / \sqrt n`."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, -math.inf, math.inf
    if np.ptp(values) == 0:
        return mean, mean, mean
    ends = ttest_1samp(values, 0.0).confidence_interval(LEVEL)
    return mean, float(ends.low), float(ends.high)


def paired_p_value(differences: Sequence[float]) -> float:
    """Two-sided p-value of Student's test that the mean difference is 0; 1 for a single pair."""
    if len(differences) < 2 or not np.any(differences):
        return 1.0
    if np.ptp(differences) == 0:
        return 0.0
    return float(ttest_1samp(differences, 0.0).pvalue)


def sign_p_values(differences: ArrayLike) -> np.ndarray:
    """Two-sided p-values, over the last axis, of the exact test that changes signs."""
    values = np.asarray(differences, dtype=float)
    signs = np.array(list(product((1, -1), repeat=values.shape[-1])))
    sums, observed = values @ signs.T, values.sum(-1, keepdims=True)
    return np.mean(np.abs(sums) >= np.abs(observed) * (1 - 1e-12), axis=-1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm-adjusted p-values, which control the family-wise error rate.

    Source: Holm, Scandinavian Journal of Statistics 6, 1979.
    """
    order = np.argsort(p_values, kind="stable")
    steps = np.arange(len(order), 0, -1) * np.asarray(p_values, dtype=float)[order]
    adjusted = np.empty(len(order))
    adjusted[order] = np.maximum.accumulate(steps).clip(max=1.0)
    return adjusted.tolist()


def summary(
    rows: Iterable[Row], by: Sequence[str], *, reference: Mapping[str, Any] | None = None
) -> list[Row]:
    """Mean and interval of each group, and its difference from another group on the same seeds.

    Diverged runs are counted, and excluded from the means. The group to compare with has the values
    of ``reference``, and in other columns those of the group itself; the p-values of Student's
    paired test are adjusted by Holm's method over all groups.
    """
    groups = grouped(rows, by)
    lines: list[Row] = []
    for key, members in groups.items():
        good = _metrics(members)
        mean, low, high = interval(list(good.values())) if good else (None, None, None)
        line: Row = dict(zip(by, key, strict=True))
        line |= {name: members[0][name] for name in ("title", "measure", "trained", "stored")}
        line |= {"mean": mean, "low": low, "high": high}
        line |= {"seeds": len(good), "diverged": len(members) - len(good)}
        if reference is not None:
            compared = tuple({**line, **reference}[name] for name in by)
            other = _metrics(groups.get(compared, [])) if compared != key else {}
            line |= _difference([good[seed] - other[seed] for seed in good if seed in other])
        lines.append(line)
    tested = [line for line in lines if line.get("p_value") is not None]
    adjusted = holm([line["p_value"] for line in tested])
    for line, p_value in zip(tested, adjusted, strict=True):
        line["p_value"] = p_value
    return lines


def _metrics(members: Iterable[Row]) -> dict[int, float]:
    """The metric by seed."""
    return {row["seed"]: row["metric"] for row in members if not row["diverged"]}


def _difference(differences: Sequence[float]) -> Row:
    names = ("difference", "difference_low", "difference_high", "p_value")
    if len(differences) < 2:
        return dict.fromkeys(names)
    values = (*interval(differences), paired_p_value(differences))
    return dict(zip(names, values, strict=True))
