"""Statements about the paper's own scores, checked against the printed numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from loca_theory.claims import printed
from loca_theory.claims.checks._extremes import greatest, least
from loca_theory.claims.estimates import Returned

_AVERAGE = "average"
_Row = tuple[float, ...]


def lead(
    *,
    table: str,
    methods: Sequence[str] = ("LoCA",),
    over: Sequence[str] = (),
    models: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> Returned:
    """Smallest lead of a method over the best of others, over models and columns of a table.

    Args:
        table: ``glue``, ``e2e``, ``instruction`` or ``ablation``.
        methods: The method, or several that must all lead.
        over: The others; all other methods if empty.
        models: Models of the table; all if empty.
        columns: Columns of the table; all but the average if empty.

    Source: the tables of results, and the sentences on them in section 5.
    """
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
    return least(leads, "Smallest: {at}.")


def wins(
    *,
    table: str,
    over: str,
    methods: Sequence[str] = ("LoCA",),
    margin: float = 0.0,
    pooled: bool = False,
) -> Returned:
    """Fraction of the columns of a table in which a method is above another.

    Of several pairs of rows, the smallest fraction counts. A pair has the same model and, if both
    methods are printed at several budgets, the same budget.

    Args:
        table: ``glue``, ``vit`` or ``instruction``.
        over: The other method.
        methods: The method, or the method at certain budgets.
        margin: Amount by which the method may be below the other.
        pooled: Whether the columns of all pairs are counted together.

    Source: the tables of results, and the sentences on them in section 5.
    """
    won = {
        name: [a > b - margin for a, b in zip(mine, theirs, strict=True)]
        for name, mine, theirs in _pairs(table, methods, over)
    }
    if pooled:
        won = {"all": [one for each in won.values() for one in each]}
    shown = ", ".join(f"{name}: {sum(each)} of {len(each)}" for name, each in won.items())
    return min(map(statistics.mean, won.values())), f"{shown}."


def mean_lead(*, table: str, over: str) -> Returned:
    """Smallest lead of LoCA over another method in the mean of a row, over models and budgets.

    The means are computed from the columns, since one of the printed ones is wrong.

    Args:
        table: ``glue`` or ``vit``.
        over: The other method.

    Source: section 5.4, on the table vit_results.
    """
    leads = {
        name: statistics.mean(mine) - statistics.mean(theirs)
        for name, mine, theirs in _pairs(table, ["LoCA"], over)
    }
    shown = ", ".join(f"{name}: {one:.2f}" for name, one in leads.items())
    return min(leads.values()), f"{shown}."


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


def largest_gains(*, columns: Sequence[str]) -> Returned:
    """Smallest gain of LoCA over FourierFT in some columns, less the largest in all others.

    Both have 72K parameters on ViT-base.

    Args:
        columns: The columns in which the gains are said to be obvious.

    Source: section 5.4, on the table vit_results.
    """
    ((_, mine, theirs),) = _pairs("vit", ["LoCA 72K"], "FourierFT")
    names = printed.COLUMNS["vit"][: len(mine)]
    gains = {name: a - b for name, a, b in zip(names, mine, theirs, strict=True)}
    rest = max(gain for name, gain in gains.items() if name not in columns)
    shown = ", ".join(f"{name}: {gains[name]:.2f}" for name in columns)
    return min(gains[name] for name in columns) - rest, f"{shown}; others: at most {rest:.2f}."


def first_ranks(*, table: str, method: str = "LoCA") -> Returned:
    """Number of columns in which a method is above all others that adapt, the smallest of models.

    Full fine-tuning does not count.

    Args:
        table: ``e2e``.
        method: The method.

    Source: section 5.2, on the table NLG.
    """
    counts = {}
    for model, rows in printed.TABLES[table].items():
        others = [row for name, row in rows.items() if name not in ("FF", method)]
        best = [max(column) for column in zip(*others, strict=True)]
        counts[model] = sum(a > b for a, b in zip(rows[method], best, strict=True))
    shown = ", ".join(f"{model}: {count}" for model, count in counts.items())
    return min(counts.values()), f"{shown}."


def averages(*, table: str, leave_out: Sequence[str] = (), average: str = "mean") -> Returned:
    """Largest deviation of a printed mean from the mean of its row, in units of the last digit.

    A correctly rounded mean deviates by at most half a unit.

    Args:
        table: ``glue`` (one decimal) or ``vit`` (two).
        leave_out: Rows to exclude.
        average: ``mean`` or ``median``.

    Source: the columns of averages of the tables of results.
    """
    unit = 0.1 if table == "glue" else 0.01
    gaps = {
        f"{method}, {size}": abs(getattr(statistics, average)(row[:-1]) - row[-1]) / unit
        for size, rows in printed.TABLES[table].items()
        for method, row in rows.items()
        if method not in leave_out
    }
    return greatest(gaps, "{count} rows; largest for {at}.")


def marked(
    *, table: str, mark: str = "bold", rank: int = 1, leave_out: Sequence[str] = ()
) -> Returned:
    """Number of columns whose marked number is not the largest, or the one of another rank.

    Args:
        table: ``glue``, ``vit``, ``instruction`` or ``ablation``.
        mark: ``bold`` or ``underlined``.
        rank: The rank of the marked number, 1 for the largest.
        leave_out: Columns to exclude, by model and name: ``"large, EuroSAT"``.

    Source: the captions of the tables.
    """
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
    return len(wrong), "; ".join([f"{count} columns", *wrong]) + "."


def spread(*, leave_out: Sequence[str] = (), trials: int = 5) -> Returned:
    """Largest ratio of a printed standard deviation to the largest possible one.

    Of n accuracies in [0, 100] with mean m, the standard deviation is at most
    √(m (100 − m) n/(n − 1)).

    Args:
        leave_out: Columns to exclude.
        trials: n.

    Source: the table vit_results, LoCA with 144K on ViT-large.
    """
    means = printed.TABLES["vit"]["large"]["LoCA 144K"]
    ratios = {
        name: printed_sd / math.sqrt(mean * (100 - mean) * trials / (trials - 1))
        for name, mean, printed_sd in zip(
            printed.COLUMNS["vit"], means, printed.SPREADS, strict=False
        )
        if name not in leave_out
    }
    return greatest(ratios, "Largest for {at}.")
