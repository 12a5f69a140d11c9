"""Statements about the paper's own scores, checked against the printed numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from loca_theory.claims import printed
from loca_theory.claims.measurement import Measurement, Setting

_AVERAGE = "average"
_Row = tuple[float, ...]


def lead(
    setting: Setting,
    *,
    table: str,
    methods: Sequence[str] = ("LoCA",),
    over: Sequence[str] = (),
    models: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> Measurement:
    """Smallest lead of a method over the best of others, over models and columns of a table.

    Args:
        setting: Not used.
        table: ``glue``, ``e2e``, ``instruction`` or ``ablation``.
        methods: The method, or several that must all lead.
        over: The others; all other methods if empty.
        models: Models of the table; all if empty.
        columns: Columns of the table; all but the average if empty.

    Source: the tables of results, and the sentences on them in section 5.
    """
    del setting
    leads = {}
    for model in models or printed.TABLES[table]:
        rows = printed.TABLES[table][model]
        others = over or [name for name in rows if name not in methods]
        for k, column in enumerate(printed.COLUMNS[table]):
            if column == _AVERAGE or (columns and column not in columns):
                continue
            best, rival = max((rows[name][k], name) for name in others)
            for name in methods:
                where = f"{name} {rows[name][k]:g}, {rival} {best:g} ({model}, {column})"
                leads[where] = rows[name][k] - best
    least = min(leads, key=lambda where: leads[where])
    return Measurement.exact(leads[least], f"Smallest: {least}.")


def wins(
    setting: Setting,
    *,
    table: str,
    over: str,
    methods: Sequence[str] = ("LoCA",),
    margin: float = 0.0,
    pooled: bool = False,
) -> Measurement:
    """Fraction of the columns of a table in which a method is above another.

    Of several pairs of rows, the smallest fraction counts. A pair has the same model and, if both
    methods are printed at several budgets, the same budget.

    Args:
        setting: Not used.
        table: ``glue``, ``vit`` or ``instruction``.
        over: The other method.
        methods: The method, or the method at certain budgets.
        margin: Amount by which the method may be below the other.
        pooled: Whether the columns of all pairs are counted together.

    Source: the tables of results, and the sentences on them in section 5.
    """
    del setting
    won = {
        name: [a > b - margin for a, b in zip(mine, theirs, strict=True)]
        for name, mine, theirs in _pairs(table, methods, over)
    }
    if pooled:
        won = {"all": [one for each in won.values() for one in each]}
    shown = ", ".join(f"{name}: {sum(each)} of {len(each)}" for name, each in won.items())
    return Measurement.exact(min(map(statistics.mean, won.values())), f"{shown}.")


def mean_lead(setting: Setting, *, table: str, over: str) -> Measurement:
    """Smallest lead of LoCA over another method in the mean of a row, over models and budgets.

    The means are computed from the columns, since one of the printed ones is wrong.

    Args:
        setting: Not used.
        table: ``glue`` or ``vit``.
        over: The other method.

    Source: section 5.4, on the table vit_results.
    """
    del setting
    leads = {
        name: statistics.mean(mine) - statistics.mean(theirs)
        for name, mine, theirs in _pairs(table, ["LoCA"], over)
    }
    shown = ", ".join(f"{name}: {one:.2f}" for name, one in leads.items())
    return Measurement.exact(min(leads.values()), f"{shown}.")


def _pairs(table: str, methods: Sequence[str], over: str) -> Iterator[tuple[str, _Row, _Row]]:
    """Rows of a method and of another, with the same model and budget, without the averages."""
    scores = [k for k, column in enumerate(printed.COLUMNS[table]) if column != _AVERAGE]
    for model, rows in printed.TABLES[table].items():
        for name, row in rows.items():
            method, _, budget = name.partition(" ")
            if not {name, method} & set(methods):
                continue
            rival = rows.get(f"{over} {budget}") or rows[over]
            mine, theirs = (tuple(one[k] for k in scores) for one in (row, rival))
            yield f"{model}, {name}", mine, theirs


def largest_gains(setting: Setting, *, columns: Sequence[str]) -> Measurement:
    """Smallest gain of LoCA over FourierFT in some columns, less the largest in all others.

    Both have 72K parameters on ViT-base.

    Args:
        setting: Not used.
        columns: The columns in which the gains are said to be obvious.

    Source: section 5.4, on the table vit_results.
    """
    del setting
    ((_, mine, theirs),) = _pairs("vit", ["LoCA 72K"], "FourierFT")
    names = printed.COLUMNS["vit"][: len(mine)]
    gains = {name: a - b for name, a, b in zip(names, mine, theirs, strict=True)}
    rest = max(gain for name, gain in gains.items() if name not in columns)
    shown = ", ".join(f"{name}: {gains[name]:.2f}" for name in columns)
    return Measurement.exact(
        min(gains[name] for name in columns) - rest, f"{shown}; others: at most {rest:.2f}."
    )


def first_ranks(setting: Setting, *, table: str, method: str = "LoCA") -> Measurement:
    """Number of columns in which a method is above all others that adapt, the smallest of models.

    Full fine-tuning does not count.

    Args:
        setting: Not used.
        table: ``e2e``.
        method: The method.

    Source: section 5.2, on the table NLG.
    """
    del setting
    counts = {}
    for model, rows in printed.TABLES[table].items():
        others = [row for name, row in rows.items() if name not in ("FF", method)]
        best = [max(column) for column in zip(*others, strict=True)]
        counts[model] = sum(a > b for a, b in zip(rows[method], best, strict=True))
    shown = ", ".join(f"{model}: {count}" for model, count in counts.items())
    return Measurement.exact(min(counts.values()), f"{shown}.")


def averages(
    setting: Setting, *, table: str, leave_out: Sequence[str] = (), average: str = "mean"
) -> Measurement:
    """Largest deviation of a printed mean from the mean of its row, in units of the last digit.

    A correctly rounded mean deviates by at most half a unit.

    Args:
        setting: Not used.
        table: ``glue`` (one decimal) or ``vit`` (two).
        leave_out: Rows to exclude.
        average: ``mean`` or ``median``.

    Source: the columns of averages of the tables of results.
    """
    del setting
    unit = 0.1 if table == "glue" else 0.01
    gaps = {
        f"{method}, {size}": abs(getattr(statistics, average)(row[:-1]) - row[-1]) / unit
        for size, rows in printed.TABLES[table].items()
        for method, row in rows.items()
        if method not in leave_out
    }
    worst = max(gaps, key=lambda name: gaps[name])
    return Measurement.exact(gaps[worst], f"{len(gaps)} rows; largest for {worst}.")


def marked(
    setting: Setting,
    *,
    table: str,
    mark: str = "bold",
    rank: int = 1,
    leave_out: Sequence[str] = (),
) -> Measurement:
    """Number of columns whose marked number is not the largest, or the one of another rank.

    Args:
        setting: Not used.
        table: ``glue``, ``vit``, ``instruction`` or ``ablation``.
        mark: ``bold`` or ``underlined``.
        rank: The rank of the marked number, 1 for the largest.
        leave_out: Columns to exclude, by model and name: ``"large, EuroSAT"``.

    Source: the captions of the tables.
    """
    del setting
    wrong, count = [], 0
    for model, numbers in printed.MARKED[mark][table].items():
        columns = zip(*printed.TABLES[table][model].values(), strict=True)
        names = printed.COLUMNS[table]
        for name, number, column in zip(names, numbers, columns, strict=True):
            if (where := f"{model}, {name}") in leave_out:
                continue
            count += 1
            right = sorted(set(column), reverse=True)[rank - 1]
            if number != right:
                wrong.append(f"{where}: {number:g} instead of {right:g}")
    return Measurement.exact(len(wrong), "; ".join([f"{count} columns", *wrong]) + ".")


def spread(setting: Setting, *, leave_out: Sequence[str] = (), trials: int = 5) -> Measurement:
    """Largest ratio of a printed standard deviation to the largest possible one.

    Of n accuracies in [0, 100] with mean m, the standard deviation is at most
    √(m (100 − m) n/(n − 1)).

    Args:
        setting: Not used.
        leave_out: Columns to exclude.
        trials: n.

    Source: the table vit_results, LoCA with 144K on ViT-large.
    """
    del setting
    means = printed.TABLES["vit"]["large"]["LoCA 144K"]
    ratios = {
        name: printed_sd / math.sqrt(mean * (100 - mean) * trials / (trials - 1))
        for name, mean, printed_sd in zip(
            printed.COLUMNS["vit"], means, printed.SPREADS, strict=False
        )
        if name not in leave_out
    }
    worst = max(ratios, key=lambda name: ratios[name])
    return Measurement.exact(ratios[worst], f"Largest for {worst}.")
