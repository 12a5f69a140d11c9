"""Claims on fine-tunes that others published, from the table of ``experiments.published``.

Each row is a matrix at a rank and an accounting, with the fraction of its energy that LoRA, LoCA
and the largest entries retain. Its role is ``increment``, or that of a control: the weights
``base`` and ``tuned``, or the difference of two ``unrelated`` networks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from loca_theory.claims.checks.empirical import load
from loca_theory.claims.estimates import Estimate, Named, NotMeasuredError

KEY = ("study", "pair", "name", "role", "accounting", "r")
_COLUMNS = (
    *KEY,
    "package",
    "p",
    "q",
    "effective_rank",
    "concentration",
    "unevenness",
    "LoRA",
    "LoCA",
    "entries",
    "predicted",
    "normal_limit",
)


def advantage(
    *,
    results: Path | None,
    table: str,
    studies: Sequence[str],
    r: Sequence[int],
    accountings: Sequence[str],
    first: str,
    second: str,
    controls: Sequence[str] = (),
) -> Named:
    """Retained fraction of one form less that of another, mean over matrices.

    With controls, this mean for the increments less that for each control. The means count as
    exact, because these are all matrices of the studies.

    Args:
        table: Name of the table that ``python -m experiments.published`` writes.
        studies: Names of the studies.
        r: LoRA's ranks, which set the budgets.
        accountings: Names of accountings.
        first: ``LoRA``, ``LoCA`` or ``entries``.
        second: Another.
        controls: Roles of controls; a study may lack one.
    """
    rows = read(results, table, studies=studies, r=r, accountings=accountings)
    for (study, accounting, rank), group in rows.groupby(["study", "accounting", "r"]):
        means = (group[first] - group[second]).groupby(group["role"]).mean()
        name = f"{study}, {accounting}, r = {rank}"
        if not controls:
            yield name, float(means["increment"])
        for control in sorted({*controls} & {*means.index}):
            yield f"{name}, beside {control}", float(means["increment"] - means[control])


def predicted_winners(
    *, results: Path | None, table: str, studies: Sequence[str], r: Sequence[int]
) -> Named:
    """Fraction of the matrices on which the singular values alone name the better of LoRA and LoCA.

    An index costs a number.

    Args:
        table: As for :func:`advantage`.
        studies: Names of the studies.
        r: LoRA's ranks, which set the budgets.
    """
    for name, group in _increments(results, table, studies, r):
        right = (group["LoRA"] > group["LoCA"]) == (group["LoRA"] > group["predicted"])
        yield name, float(right.mean())


def basis_gain(
    *, results: Path | None, table: str, studies: Sequence[str], r: Sequence[int]
) -> Named:
    """Energy fraction that LoCA retains beyond what singular values predict, mean over matrices.

    An index costs a number.

    Args:
        table: As for :func:`advantage`.
        studies: Names of the studies.
        r: LoRA's ranks, which set the budgets.
    """
    for name, group in _increments(results, table, studies, r):
        yield name, float((group["LoCA"] - group["predicted"]).mean())


def prediction_error(
    *, results: Path | None, table: str, studies: Sequence[str], limit: float
) -> Named:
    """Largest distance of what LoCA retains from what the singular values predict, by role.

    Over all ranks and accountings of the matrices whose concentration is at most a limit.

    Args:
        table: As for :func:`advantage`.
        studies: Names of the studies whose increments count; of controls, all do.
        limit: Largest concentration (``experiments.published.measures``); 1 is that of random
            singular vectors.
    """
    rows = read(results, table)
    rows = rows[rows["concentration"] <= limit]
    rows = rows[rows["study"].isin(studies) | (rows["role"] != "increment")]
    errors = (rows["LoCA"] - rows["predicted"]).abs()
    for role, values in errors.groupby(rows["role"]):
        yield str(role), float(values.max())


def unevenness_error(
    *, results: Path | None, table: str, studies: Sequence[str], limit: float
) -> Named:
    """Largest distance of what LoCA retains from what the singular values predict, by study.

    Over all ranks, accountings and roles of the matrices whose unevenness is at most a limit.

    Args:
        table: As for :func:`advantage`.
        studies: Names of the studies.
        limit: Largest unevenness (``experiments.published.measures``); 1 is that of random
            singular vectors.
    """
    rows = read(results, table, studies=studies)
    rows = rows[rows["unevenness"] <= limit]
    errors = (rows["LoCA"] - rows["predicted"]).abs()
    for study, values in errors.groupby(rows["study"]):
        yield str(study), float(values.max())


def prediction_gain(
    *, results: Path | None, table: str, r: int, accountings: Sequence[str]
) -> Named:
    """Fraction of winners that singular values name, less that of the best baseline, over packages.

    The better of LoRA and LoCA is predicted for the matrices of one package after another. The best
    baseline is that with the largest mean over packages; the bounds are Student's, with packages as
    units.

    Args:
        table: As for :func:`advantage`.
        r: LoRA's rank, which sets the budget.
        accountings: Names of accountings.
    """
    for accounting in accountings:
        rows = read(results, table, r=[r], accountings=[accounting])
        right = named_winners(rows[rows["role"] == "increment"])
        by_package = right.groupby("package").mean()
        baselines = by_package.drop(columns="singular values")
        gains = by_package["singular values"] - baselines[baselines.mean().idxmax()]
        gain = Estimate.mean(gains.to_numpy())
        bounds = gain.interval(0.05)
        yield accounting, Estimate(gain.value, gain.standard_error, gain.n, bounds=bounds)


def named_winners(rows: pd.DataFrame) -> pd.DataFrame:
    """Whether each predictor names the better of LoRA and LoCA, by matrix.

    Two predictors fit nothing: the singular values, and the normal limit of what they say. Three
    are fitted to all other packages: the more frequent winner, the more frequent one among layers
    of that name, and a threshold of the effective rank.
    """
    wins = rows["LoRA"] > rows["LoCA"]
    is_right = pd.DataFrame(
        {
            "package": rows["package"],
            "singular values": (rows["LoRA"] > rows["predicted"]) == wins,
            "normal limit": (rows["LoRA"] > rows["normal_limit"]) == wins,
        }
    )
    layer = rows["name"].str.replace(r"\d+", "", regex=True)
    rank = rows["effective_rank"] / rows[["p", "q"]].min(axis=1)
    for package in rows["package"].unique():
        inside = rows["package"] == package
        outside = ~inside
        usual = bool(wins[outside].mean() > 0.5)
        by_layer = (wins[outside].groupby(layer[outside]).mean() > 0.5).to_dict()
        names = layer[inside]
        named = pd.Series([by_layer.get(name, usual) for name in names], names.index)
        limits = np.sort(rank[outside].to_numpy())
        below = [float(((rank[outside] <= limit) == wins[outside]).mean()) for limit in limits]
        limit = limits[int(np.argmax(below))]
        is_right.loc[inside, "more frequent winner"] = wins[inside] == usual
        is_right.loc[inside, "more frequent winner of the layer"] = named == wins[inside]
        is_right.loc[inside, "effective rank"] = (rank[inside] <= limit) == wins[inside]
    return is_right


def read(
    results: Path | None,
    table: str,
    *,
    studies: Sequence[str] | None = None,
    r: Sequence[int] | None = None,
    accountings: Sequence[str] | None = None,
) -> pd.DataFrame:
    """The rows of increments and controls of some studies, ranks and accountings."""
    rows = load(results, table, _COLUMNS, KEY)
    rows = rows[rows["role"] != "bfloat16"]
    chosen = pd.Series(data=True, index=rows.index)
    for column, values in (("study", studies), ("r", r), ("accounting", accountings)):
        if values is not None:
            chosen &= rows[column].isin(values)
    if not chosen.any():
        raise NotMeasuredError(f"{table}.parquet has no such rows.")
    return rows[chosen]


def _increments(
    results: Path | None, table: str, studies: Sequence[str], r: Sequence[int]
) -> Iterator[tuple[str, pd.DataFrame]]:
    """The increments at the paper's accounting, by study and rank."""
    rows = read(results, table, studies=studies, r=r, accountings=["paper"])
    rows = rows[rows["role"] == "increment"]
    for (study, rank), group in rows.groupby(["study", "r"]):
        yield f"{study}, r = {rank}", group
