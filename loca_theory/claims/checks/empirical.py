"""Claims on real models, decided from the stored tables of experiments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from loca_theory.claims.measurement import Measurement, Part, Setting
from loca_theory.errors import ResourceError
from loca_theory.sweeps import find_tables

_HALF = float(stats.norm.ppf(0.975))
_LOWER_IS_BETTER = ("bits per byte",)


def _load(setting: Setting, pattern: str, columns: Sequence[str]) -> pd.DataFrame | None:
    """All rows of the tables whose names fit the pattern and which have the columns."""
    found = []
    for path in find_tables(setting.results, [pattern]):
        try:
            table = pd.read_parquet(path)
        except (OSError, ValueError) as error:
            msg = f"{path} cannot be read ({type(error).__name__}); delete it and make it again"
            raise ResourceError(msg) from error
        if set(columns) <= set(table.columns):
            found.append(table)
    return pd.concat(found, ignore_index=True) if found else None


def advantage(
    setting: Setting, *, table: str, method: str, over: str, relative: bool = True
) -> Measurement:
    """Mean difference of two methods over seeds, paired, a part a task and budget.

    Positive where the first is better; diverged runs and seeds that only one of them has are left
    out.

    Args:
        setting: Where the tables are.
        table: Pattern of their names.
        method: The method that the paper holds to be at least as good.
        over: The other one.
        relative: Divide by the mean of the other.

    Source: the paper's tables of results.
    """
    columns = ("task", "method", "r", "seed", "measure", "metric", "diverged")
    rows = _load(setting, table, columns)
    if rows is None:
        return Measurement.missing(f"There is no table {table}.parquet.")
    good = rows[~rows["diverged"].astype(bool)].drop_duplicates(["task", "method", "r", "seed"])
    parts = []
    for (task, r), mine in good.groupby(["task", "r"], dropna=False):
        wide = mine.pivot_table(index="seed", columns="method", values="metric")
        if not {method, over} <= set(wide.columns):
            continue
        pairs = wide[[method, over]].dropna()
        if len(pairs) < 2:
            continue
        sign = -1.0 if mine["measure"].iloc[0] in _LOWER_IS_BETTER else 1.0
        gaps = sign * (pairs[method] - pairs[over]).to_numpy()
        scale = float(pairs[over].mean()) if relative else 1.0
        parts.append(Part.mean(gaps / scale, f"{task}, r = {r:g}"))
    if not parts:
        return Measurement.missing(f"No table {table}.parquet has both {method} and {over}.")
    return _pooled(parts)


def _pooled(parts: Sequence[Part]) -> Measurement:
    """One part for all: their mean, so that the number of comparisons is fixed beforehand.

    Budgets share their seeds; the error is that of equal errors fully correlated, at most.
    """
    values = np.array([part.value for part in parts])
    errors = np.array([part.standard_error for part in parts])
    n = min(part.n for part in parts)
    error = float(errors.mean())
    shown = "; ".join(f"{part.name}: {part.value:+.4f} ± {part.standard_error:.4f}"
                      for part in parts)  # fmt: skip
    return Measurement.of(Part("mean over tasks and budgets", float(values.mean()), error, n),
                          f"{shown}.")  # fmt: skip


def best_setting(
    setting: Setting, *, table: str, column: str, low: float, high: float
) -> Measurement:
    """Mean of LoCA within a range of a setting less that outside, relative, paired by seed.

    Args:
        setting: Where the tables are.
        table: Pattern of their names.
        column: The setting that varies, ``scaling`` or ``alternating``.
        low: Lower end of the range.
        high: Upper end.

    Source: the paragraph on α and B_s, and the figure parameter_sen.
    """
    columns = ("task", "method", "seed", "measure", "metric", "diverged", "setting", "value")
    rows = _load(setting, table, columns)
    if rows is None:
        return Measurement.missing(f"There is no table {table}.parquet.")
    varied = (rows["setting"] == column) & (rows["method"] == "loca")
    good = rows[varied & ~rows["diverged"].astype(bool)]
    good = good.assign(inside=good["value"].between(low - 1e-9, high + 1e-9))
    parts = []
    for task, mine in good.groupby("task"):
        wide = mine.pivot_table(index="seed", columns="inside", values="metric").dropna()
        if wide.shape[1] < 2 or len(wide) < 2:
            continue
        sign = -1.0 if mine["measure"].iloc[0] in _LOWER_IS_BETTER else 1.0
        gaps = sign * (wide[True] - wide[False]).to_numpy() / float(wide[False].mean())
        parts.append(Part.mean(gaps, str(task)))
    if not parts:
        return Measurement.missing(f"No table {table}.parquet varies {column}.")
    return _pooled(parts)


def increments(setting: Setting, *, table: str, column: str) -> Measurement:
    """Median of a statistic over the matrices of a full fine-tune that are not embeddings.

    The error is that of a median of independent matrices.

    Args:
        setting: Where the tables are.
        table: Pattern of their names, as ``loca-theory analyze`` writes them.
        column: ``tv``, ``tv_p_value_as_printed``, ``mp_distance``, ``outlier_mass``, ….

    Source: Fig. 1 of the paper.
    """
    rows = _load(setting, table, ("kind", column))
    if rows is None:
        return Measurement.missing(f"There is no table {table}.parquet.")
    values = rows.loc[rows["kind"] != "embedding", column].dropna().to_numpy(dtype=float)
    if len(values) < 2:
        return Measurement.missing(f"{table}.parquet has no {column}.")
    n = len(values)
    spread = float(np.subtract(*np.percentile(values, [75, 25]))) / (2 * _QUARTILE)
    error = max(1.2533 * spread / np.sqrt(n), float(np.finfo(float).eps))
    note = f"{n} matrices, {values.min():.4g} to {values.max():.4g}."
    return Measurement.of(Part(f"median {column}", float(np.median(values)), error, n), note)


_QUARTILE = float(stats.norm.ppf(0.75))


def speed(setting: Setting, *, table: str, rival: str) -> Measurement:
    """Steps a second over LoRA's, the smallest over the models measured.

    Source: the table complexity, and the sentence that times are closer than the orders.
    """
    rows = _load(setting, table, ("model", "rival", "of_lora"))
    if rows is None:
        return Measurement.missing(f"There is no table {table}.parquet.")
    mine = rows.loc[rows["rival"] == rival, "of_lora"].dropna()
    if mine.empty:
        return Measurement.missing(f"{table}.parquet has no {rival}.")
    return Measurement.exact(float(mine.min()), f"Measured on {len(mine)} models.")
