"""Claims on fine-tuning with adapters, measured from the stored tables of experiments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from loca_theory.claims.measurement import Estimate, Measurement, Setting
from loca_theory.errors import ResourceError
from loca_theory.sweeps import find_tables

_LOWER_IS_BETTER = ("bits per byte",)
_RUN = ("task", "method", "r", "seed")
_COLUMNS = (*_RUN, "measure", "metric", "diverged")


def load(
    results: Path | None, pattern: str, columns: Sequence[str], key: Sequence[str]
) -> pd.DataFrame | None:
    """Read all tables whose names match a pattern and which have some columns.

    A run that is in two tables counts once. If no table is found, the result is None.

    Args:
        results: Folder of the tables.
        pattern: Pattern of the tables' names.
        columns: Columns that a table needs.
        key: Columns that identify a run.

    Raises:
        ResourceError: a table cannot be read, or two tables disagree on a run.
    """
    found, names = [], []
    for path in find_tables(results, [pattern]):
        try:
            table = pd.read_parquet(path)
        except (OSError, ValueError) as error:
            msg = f"{path} cannot be read ({type(error).__name__}); delete it and make it again"
            raise ResourceError(msg) from error
        if set(columns) <= set(table.columns):
            found.append(table[list(columns)])
            names.append(str(path))
    if not found:
        return None
    rows = pd.concat(found, ignore_index=True)
    # Lists cannot be hashed, so rows are compared as text.
    rows = rows.loc[~rows.astype(str).duplicated()]
    if rows.duplicated(list(key)).any():
        run = rows[rows.duplicated(list(key))].iloc[0][list(key)]
        msg = f"{' and '.join(names)} disagree on the run {', '.join(map(str, run))}; "
        msg += "give a folder that has only one of them"
        raise ResourceError(msg)
    return rows


def _scores(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with an additional column ``score``; a larger score is better.

    A run that diverged gets the worst score of its task.
    """
    sign = np.where(rows["measure"].isin(_LOWER_IS_BETTER), -1.0, 1.0)
    signed = pd.Series(sign * rows["metric"].to_numpy(dtype=np.float64), index=rows.index)
    scores = signed.mask(rows["diverged"].astype(bool))
    worst = scores.groupby(rows["task"]).transform("min")
    return rows.assign(score=scores.fillna(worst))


def _diverged(rows: pd.DataFrame, methods: Sequence[str]) -> str:
    mine = rows[rows["method"].isin(methods)]
    fractions = mine.groupby("method")["diverged"].agg(["sum", "size"])
    return ", ".join(f"{name}: {row['sum']} of {row['size']}" for name, row in fractions.iterrows())


def advantage(
    setting: Setting, *, table: str, method: str, over: str, smallest: int = 0
) -> Measurement:
    """Mean relative difference of two methods, paired by seed, over tasks and budgets.

    It is positive if the first method is better. A run that diverged counts as the worst of its
    task.

    Args:
        setting: Has the folder of the tables.
        table: Pattern of the tables' names.
        method: The method that the paper claims to be at least as good.
        over: The method to compare with.
        smallest: Number of budgets of each task to use, the smallest first; 0 for all.

    Source: the paper's tables of results.
    """

    def pairs(mine: pd.DataFrame) -> list[tuple[str, pd.Series, pd.Series]]:
        both = mine[mine["method"].isin([method, over])]
        counts = both.groupby("r")["method"].nunique()
        budgets = sorted(counts.index[counts == 2])
        return [
            (f"r = {r:g}", _by_seed(both, method, r), _by_seed(both, over, r))
            for r in budgets[: smallest or None]
        ]

    return _compared(setting, table, (method, over), pairs)


def with_fewer(
    setting: Setting, *, table: str, method: str, r: float, over: str, over_r: float
) -> Measurement:
    """Mean relative difference of a method at a small budget and another at a large one.

    Pairing and signs are those of :func:`advantage`.

    Args:
        setting: Has the folder of the tables.
        table: Pattern of the tables' names.
        method: The method with few parameters.
        r: Its budget, as the rank at which LoRA has as many parameters.
        over: The method to compare with.
        over_r: The budget of that method.

    Source: "comparable or superior results to LoRA-family methods" with fewer parameters.
    """
    return _compared(
        setting,
        table,
        (method, over),
        lambda mine: [
            (
                f"r = {r:g} against {over_r:g}",
                _by_seed(mine, method, r),
                _by_seed(mine, over, over_r),
            )
        ],
    )


def _by_seed(rows: pd.DataFrame, method: str, r: float) -> pd.Series:
    mine = rows[(rows["method"] == method) & (rows["r"] == r)]
    return mine.set_index("seed")["score"]


def _compared(
    setting: Setting,
    table: str,
    methods: tuple[str, str],
    pairs: Callable[[pd.DataFrame], list[tuple[str, pd.Series, pd.Series]]],
) -> Measurement:
    rows = load(setting.results, table, _COLUMNS, _RUN)
    if rows is None:
        return Measurement.missing(f"There is no table {table}.parquet.")
    parts = []
    for task, mine in _scores(rows).groupby("task"):
        for name, first, second in pairs(mine):
            seeds = first.index.intersection(second.index)
            if len(seeds) < 2:
                continue
            gaps = (first[seeds] - second[seeds]).to_numpy() / abs(float(second[seeds].mean()))
            parts.append(Estimate.mean(gaps, f"{task}, {name}"))
    if not parts:
        return Measurement.missing(f"No table {table}.parquet has both {' and '.join(methods)}.")
    return _pooled(parts, f"Diverged: {_diverged(rows, methods)}.")


def _pooled(parts: Sequence[Estimate], note: str) -> Measurement:
    """The mean of all estimates as one, so that the number of comparisons is fixed beforehand.

    Budgets share their seeds, so the standard error is the one for full correlation, which is an
    upper bound.
    """
    values = np.array([part.value for part in parts])
    errors = np.array([part.standard_error for part in parts])
    n = min(part.n for part in parts)
    error = float(errors.mean())
    shown = "; ".join(f"{part.name}: {part.value:+.4f} ± {part.standard_error:.4f}"
                      for part in parts)  # fmt: skip
    return Measurement.of(Estimate("mean over tasks and budgets", float(values.mean()), error, n),
                          f"{shown}. {note}")  # fmt: skip


def best_setting(
    setting: Setting, *, table: str, column: str, low: float, high: float
) -> Measurement:
    """Relative difference of LoCA's mean score inside a range of a setting and outside it.

    Scores are paired by seed. A run that diverged counts as the worst of its task.

    Args:
        setting: Has the folder of the tables.
        table: Pattern of the tables' names.
        column: The setting that varies, ``scaling`` or ``alternating``.
        low: Lower end of the range.
        high: Upper end.

    Source: the paragraph on α and B_s, and the figure parameter_sen.
    """
    key = ("task", "method", "seed", "setting", "value")
    rows = load(setting.results, table, (*key, "measure", "metric", "diverged"), key)
    if rows is None:
        return Measurement.missing(f"There is no table {table}.parquet.")
    varied = _scores(rows[(rows["setting"] == column) & (rows["method"] == "loca")])
    varied = varied.assign(inside=varied["value"].between(low - 1e-9, high + 1e-9))
    parts = []
    for task, mine in varied.groupby("task"):
        wide = mine.pivot_table(index="seed", columns="inside", values="score").dropna()
        if wide.shape[1] < 2 or len(wide) < 2:
            continue
        gaps = (wide[True] - wide[False]).to_numpy() / abs(float(wide[False].mean()))
        parts.append(Estimate.mean(gaps, str(task)))
    if not parts:
        return Measurement.missing(f"No table {table}.parquet varies {column}.")
    return _pooled(parts, f"Diverged: {_diverged(varied, ['loca'])}.")


def speed(setting: Setting, *, table: str, rival: str) -> Measurement:
    """Steps per second relative to LoRA's, the smallest over the models measured.

    The table has one measurement per model without a standard error, so the value counts as exact.

    Args:
        setting: Has the folder of the tables.
        table: Pattern of the tables' names.
        rival: The form of LoCA.

    Source: the table complexity, and the sentence that times are closer than the orders.
    """
    rows = load(setting.results, table, ("model", "rival", "of_lora"), ("model", "rival"))
    if rows is None:
        return Measurement.missing(f"There is no table {table}.parquet.")
    mine = rows.loc[rows["rival"] == rival, "of_lora"].dropna()
    if mine.empty:
        return Measurement.missing(f"{table}.parquet has no {rival}.")
    return Measurement.exact(float(mine.min()), f"Models measured: {len(mine)}.")


def training(setting: Setting, *, table: str, method: str, over: str = "") -> Measurement:
    """Decrease of the validation loss, as a mean over the runs of all tasks and seeds.

    Args:
        setting: Has the folder of the tables.
        table: Pattern of the tables' names.
        method: The method that learns locations.
        over: Method to compare with. If given, the value is how much lower the last loss is than
            this method's with the same seed, relative to the latter. Otherwise it is the fraction
            of steps from record to record in which the loss falls.

    Source: the figure training_process and the paragraph on the estimated gradients.
    """
    key = ("task", "method", "seed", "step")
    rows = load(setting.results, table, (*key, "validation_loss"), key)
    if rows is None or not {method, over or method} <= set(rows["method"]):
        return Measurement.missing(f"There is no table {table}.parquet with {method}.")
    runs = rows.sort_values("step").groupby(["method", "task", "seed"])["validation_loss"]
    if over:
        ends = runs.last().reset_index()
        last = ends.pivot_table("validation_loss", ["task", "seed"], "method")
        found = ((last[over] - last[method]) / last[over]).dropna().tolist()
    else:
        found = [
            float((np.diff(losses.to_numpy(dtype=np.float64)) < 0).mean())
            for (name, *_), losses in runs
            if name == method
        ]
    return Measurement.of(Estimate.mean(found, "mean over runs"), f"{len(found)} runs.")
