"""Means over seeds with intervals, and differences between methods paired by seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from experiments.tables import Row, print_table
from experiments.verdicts import holm, student

_PERCENT = ["mean", "low", "high", "difference", "difference_low", "difference_high"]


def group_by(rows: Iterable[Row], names: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Group rows by their values in the columns ``names``."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def summary(
    rows: Iterable[Row], by: Sequence[str], *, reference: Mapping[str, Any] | None = None
) -> list[Row]:
    """Mean and interval of each group, and its difference from another group on the same seeds.

    Diverged runs are counted, and excluded from the means. The group to compare with equals this
    one in ``by`` except for the values in ``reference``; the p-values of Student's paired test are
    adjusted by Holm's method over all groups.
    """
    groups = group_by(rows, by)
    lines: list[Row] = []
    for key, members in groups.items():
        good = _metrics(members)
        mean, low, high = student(list(good.values()))[:3] if good else (None, None, None)
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
    adjusted = holm([line["p_value"] for line in tested]).tolist()
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
    return dict(zip(names, student(differences), strict=True))


def print_summary(
    lines: Sequence[Mapping[str, Any]], *, title: str, columns: Sequence[str], note: str = ""
) -> None:
    """Print means with intervals, and differences from the reference if the lines have them."""
    table = pd.DataFrame(lines)
    percent = [name for name in _PERCENT if name in table]
    table[percent] = 100 * table[percent].astype(float)
    right = ["trained", *percent, "p_value", "seeds", "diverged"]
    right = [name for name in right if name in table]
    rows = table[[*columns, *right]].itertuples(index=False)
    seeds = "intervals are over seeds: the test set and the pretrained model are always the same"
    note = f"{note}\n{seeds}" if note else seeds
    print_table(f"{title}, in percent", columns, right, rows, note)
