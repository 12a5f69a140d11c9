"""The paper's own numbers: scores, steps, speeds and memory, checked against the printed tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from loca_theory.claims import printed
from loca_theory.claims.estimates import Named, Returned, extreme, listed
from loca_theory.claims.printed import Scores

_AVERAGE = "average"


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
    """
    leads = {}
    for model in models or printed.scores(table):
        rows = printed.scores(table)[model]
        rivals = over or [name for name in rows if name not in methods]
        for column in columns or _without_average(rows[methods[0]]):
            best, rival = max((rows[name][column], name) for name in rivals)
            for name in methods:
                where = f"{name} {rows[name][column]:g}, {rival} {best:g} ({model}, {column})"
                leads[where] = rows[name][column] - best
    return extreme(min, leads, "Smallest: {at}.")


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
    """
    won = {
        name: [ours[column] > theirs[column] - margin for column in ours]
        for name, ours, theirs in _pairs(table, methods, over)
    }
    if pooled:
        won = {"all": [is_won for columns in won.values() for is_won in columns]}
    shown = {name: f"{sum(columns)} of {len(columns)}" for name, columns in won.items()}
    return min(map(statistics.mean, won.values())), listed(shown)


def mean_lead(*, table: str, over: str) -> Returned:
    """Smallest lead of LoCA over another method in the mean of a row, over models and budgets.

    The means are computed from the columns, since one of the printed ones is wrong.

    Args:
        table: ``glue`` or ``vit``.
        over: The other method.
    """
    leads = {
        name: statistics.mean(ours.values()) - statistics.mean(theirs.values())
        for name, ours, theirs in _pairs(table, ["LoCA"], over)
    }
    return min(leads.values()), listed(leads, ".2f")


def _without_average(row: Scores) -> Scores:
    return {column: score for column, score in row.items() if column != _AVERAGE}


def _pairs(table: str, methods: Sequence[str], over: str) -> Iterator[tuple[str, Scores, Scores]]:
    """Rows of a method and of another, with the same model and budget, without the averages."""
    for model, rows in printed.scores(table).items():
        for name, row in rows.items():
            method, _, budget = name.partition(" ")
            if {name, method} & set(methods):
                rival = rows.get(f"{over} {budget}") or rows[over]
                yield f"{model}, {name}", _without_average(row), _without_average(rival)


def largest_gains(*, columns: Sequence[str]) -> Returned:
    """Smallest gain of LoCA over FourierFT in some columns, less the largest in all others.

    Both have 72K parameters on ViT-base.

    Args:
        columns: The columns in which the gains are said to be obvious.
    """
    ((_, ours, theirs),) = _pairs("vit", ["LoCA 72K"], "FourierFT")
    gains = {name: score - theirs[name] for name, score in ours.items()}
    largest = max(gain for name, gain in gains.items() if name not in columns)
    shown = ", ".join(f"{name}: {gains[name]:.2f}" for name in columns)
    note = f"{shown}; others: at most {largest:.2f}."
    return min(gains[name] for name in columns) - largest, note


def first_ranks(*, table: str, method: str = "LoCA", over: Sequence[str] = ()) -> Returned:
    """Number of columns in which a method is above all others that adapt, the smallest of models.

    Full fine-tuning does not count.

    Args:
        table: ``e2e`` or ``glue``.
        method: The method.
        over: The others; all if empty.
    """
    counts = {}
    for model, rows in printed.scores(table).items():
        names = over or [name for name in rows if name not in ("FF", "FT", method)]
        counts[model] = sum(
            score > max(rows[name][column] for name in names)
            for column, score in _without_average(rows[method]).items()
        )
    return min(counts.values()), listed(counts)


def averages(*, table: str, leave_out: Sequence[str] = (), average: str = "mean") -> Returned:
    """Largest deviation of a printed mean from the mean of its row, in units of the last digit.

    A correctly rounded mean deviates by at most half a unit.

    Args:
        table: ``glue`` (one decimal) or ``vit`` (two).
        leave_out: Rows to exclude.
        average: ``mean`` or ``median``.
    """
    unit, mean = 0.1 if table == "glue" else 0.01, getattr(statistics, average)
    gaps = {
        f"{method}, {size}": abs(mean(_without_average(row).values()) - row[_AVERAGE]) / unit
        for size, rows in printed.scores(table).items()
        for method, row in rows.items()
        if method not in leave_out
    }
    return extreme(max, gaps, "{count} rows; largest for {at}.")


def marked(
    *, table: str, mark: str = "bold", rank: int = 1, leave_out: Sequence[str] = ()
) -> Returned:
    """Number of columns whose marked number is not the largest, or the one of another rank.

    Args:
        table: ``glue``, ``vit``, ``instruction`` or ``ablation``.
        mark: ``bold`` or ``underlined``.
        rank: The rank of the marked number, 1 for the largest.
        leave_out: Columns to exclude, by model and name: ``"large, EuroSAT"``.
    """
    wrong, count = [], 0
    for model, numbers in printed.marked(table, mark).items():
        rows = printed.scores(table)[model].values()
        for name, number in numbers.items():
            if (where := f"{model}, {name}") in leave_out:
                continue
            count += 1
            right = sorted({row[name] for row in rows}, reverse=True)[rank - 1]
            if number != right:
                wrong.append(f"{where}: {number:g} instead of {right:g}")
    return len(wrong), "; ".join([f"{count} columns", *wrong]) + "."


def spread(*, leave_out: Sequence[str] = ()) -> Returned:
    """Largest ratio of a printed standard deviation to the largest possible one.

    Of five accuracies in [0, 100] with mean m, the standard deviation is at most
    √(m (100 − m) 5/4).

    Args:
        leave_out: Columns to exclude.
    """
    means, spreads = (
        printed.scores("vit", field)["large"]["LoCA 144K"] for field in ("values", "spreads")
    )
    ratios = {
        name: spread / math.sqrt(means[name] * (100 - means[name]) * 5 / 4)
        for name, spread in spreads.items()
        if name not in leave_out
    }
    return extreme(max, ratios, "Largest for {at}.")


# Tasks other than GLUE: the table of hyper-parameters, the model, and the size of the training set,
# which the paper does not print.
_ELSEWHERE = {
    "E2E": ("e2e", "GPT-2", 42_061),
    "LLaMA-7b": ("instruction", "LLaMA-7B", 52_002),
    "LLaMA-13b": ("instruction", "LLaMA-13B", 52_002),
    "Stable Diffusion": ("diffusion", "", 5000),
}


def alternating_fraction(*, tasks: Sequence[str] = ()) -> Returned:
    """B_s over all steps of training, for each GLUE task and each size of RoBERTa.

    The steps are epochs · ⌈n/32⌉ for n training samples. For MRPC, n = 3668, these are the 5750
    steps of section 5.5.

    Args:
        tasks: The tasks; all if empty.
    """
    sets = printed.GLUE_TRAINING_SETS
    return {
        f"{task}, {size}": _fraction(sets[task], printed.settings("glue", f"RoBERTa-{size}", task))
        for size in ("base", "large")
        for task in tasks or sets
    }


def _fraction(samples: int, settings: Mapping[str, Any], batches: int = 1) -> float:
    """B_s over all steps of some batches, which are printed or follow from the epochs."""
    batch = settings["batch_size"] * batches
    steps = settings.get("total_steps") or settings["epochs"] * math.ceil(samples / batch)
    return settings["alternating_steps"] / steps


def alternating_elsewhere(*, updates: bool = False) -> Named:
    """B_s over all steps of training, for E2E, Alpaca with LLaMA, and Stable Diffusion.

    Args:
        updates: Whether a step of LLaMA is an update, of 4 accumulated batches, instead of a batch.
    """
    for name, (table, model, samples) in _ELSEWHERE.items():
        settings = printed.settings(table, model)
        batches = settings.get("accumulation_steps", 1) if updates else 1
        yield name, _fraction(samples, settings, batches)


def memory(*, more: Sequence[str], less: Sequence[str]) -> Named:
    """Memory of each method less that of each other one, in MB, the smallest over the models.

    Args:
        more: Methods that take more memory: ``LoRA``, ``FourierFT``, ``LoCA-1``, sparse,
            ``LoCA-2``, by FFT, or ``LoCA-3``, by matrices, the default.
        less: Methods that take less.
    """
    for a, b in product(more, less):
        memory_of = printed.costs("memory", a, b)
        yield f"{a} less {b}", (memory_of[a] - memory_of[b]).min()


def speed(*, forms: Sequence[str]) -> Named:
    """Log ratio of LoRA's speed and FourierFT's, less that of LoCA's and FourierFT's.

    Both ratios are taken as at least 1. The table has no errors of speeds, so LoRA's lead, which
    the paper calls slight, is the scale of what is close. There is one estimate per form, the
    smallest over the models.

    Args:
        forms: Forms of LoCA, as for :func:`memory`.
    """
    for form in forms:
        speeds = printed.costs("speed", form, "LoRA", "FourierFT").itertuples(index=False)
        gaps = [abs(math.log(lora / b)) - abs(math.log(loca / b)) for loca, lora, b in speeds]
        yield form, min(gaps)
