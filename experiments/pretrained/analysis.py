r"""Differences between methods over kinds of tasks.

The difference of a kind is the mean over its tasks and seeds of paired differences. With K kinds of
mean :math:`\bar d` and standard deviation s, Student's interval is
:math:`\bar d \pm t_{K-1, 0.975}\, s / \sqrt K`. The exact test of no difference changes the signs
of the kinds in all :math:`2^K` ways, which are equally likely if differences are symmetric.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import permutation_test

from experiments.finetuning.statistics import Row, holm, interval, paired_p_value
from experiments.pretrained.runs import read_design, tasks_of

LEVEL = 0.05
LOSS = "loss"
# Columns of the table of verdicts that another design fills.
_UNUSED = ("kinds_low", "kinds_high", "draws_error", "draws_low", "draws_high", "draws_verdict")


def complete(rows: Sequence[Row], methods: Sequence[str]) -> list[Row]:
    """The rows of methods, with the seeds that every task has of all of them, in one setting."""
    mine = [row for row in rows if not row["tunes"] and row["method"] in methods]
    every = set(product(tasks_of(mine[0]["setting"]), methods)) if mine else set()
    have = {seed: {(row["task"], row["method"]) for row in mine if row["seed"] == seed}
            for seed in {row["seed"] for row in mine}}  # fmt: skip
    return [row for row in mine if have.get(row["seed"]) == every]


def scores(rows: Sequence[Row], measure: str = "metric") -> pd.DataFrame:
    """Scores by task and seed (rows) and method (columns); of a run that diverged, the worst."""
    table = pd.DataFrame(rows)
    values: Any = table[measure].astype(float)
    values = -100 * np.log(values) if measure.startswith(LOSS) else 100 * values
    table["score"] = values.fillna(values.groupby(table["task"]).transform("min"))
    return table.pivot_table(index=["task", "seed"], columns="method", values="score")


def by_kind(of_task: pd.DataFrame) -> pd.DataFrame:
    """Means over the tasks of each kind, from a row for each task."""
    kinds = {
        kind: [task for task in tasks if task in of_task.index]
        for kind, tasks in read_design()["kinds"].items()
    }
    return pd.DataFrame({k: of_task.loc[tasks].mean() for k, tasks in kinds.items() if tasks}).T


def compare(rows: Sequence[Row], methods: Sequence[str], measure: str = "metric") -> pd.DataFrame:
    """Compare methods with the reference on the seeds that are complete."""
    reference, lines = read_design()["reference"], {}
    for method in methods:
        mine = complete(rows, (method, reference))
        if not mine:
            continue
        found = scores(mine, measure)
        paired = (found[method] - found[reference]).reset_index(name="difference")
        paired = paired.pivot_table(index="task", columns="seed", values="difference")
        of_kind, of_seed = by_kind(paired).mean(axis=1), by_kind(paired).mean()
        mean, low, high = interval(of_kind.tolist())
        lines[method] = {
            "seeds": len(of_seed), "difference": mean, "low": low, "high": high,
            "half": (high - low) / 2,
            "student": paired_p_value(of_kind.tolist()), "signs": float(
                permutation_test((of_kind,), np.mean, permutation_type="samples").pvalue),
            "seed_error": of_seed.std(ddof=1) / math.sqrt(len(of_seed)),
            "text_error": math.nan if measure.startswith(LOSS) else _text_error(mine, method),
            **of_kind, **{f"task {task}": value for task, value in paired.mean(axis=1).items()},
        }  # fmt: skip
    return pd.DataFrame(lines).T


def primary(rows: Sequence[Row]) -> pd.DataFrame:
    """The primary comparisons, with p-values adjusted over them."""
    table = compare(rows, read_design()["primary"])
    for test in ("signs", "student") if len(table) else ():
        table.insert(0, f"{test}_holm", holm(table[test].tolist()))
    return table


def verdicts(rows: Sequence[Row]) -> list[Row]:
    """Rows of the table of verdicts, on whether a method does better than the reference."""
    main = primary([row for row in rows if row["setting"] == "main"])
    if len(main) and (main["seeds"] < read_design()["seeds"]).any():
        return []  # not complete
    random = [row for row in rows if row["setting"] == "random"]
    best = [{**row, "method": "best"} for row in rows if row["setting"] == "best"]
    lines = [*main.iterrows(), *compare([*random, *best], ["best"]).iterrows()]
    return [_verdict(str(method), line) for method, line in lines]


def without_each_kind(rows: Sequence[Row]) -> pd.DataFrame:
    """Mean and interval of the primary comparisons over all kinds but one, by that kind."""
    table = compare(rows, read_design()["primary"])
    of_kinds = table[[one for one in table if one in read_design()["kinds"]]].astype(float)

    def others(line: pd.Series) -> pd.Series:
        found = {kind: interval(line.drop(kind).tolist()) for kind in line.index}
        return pd.Series({k: "{:.2f} ({:.2f} to {:.2f})".format(*one) for k, one in found.items()})

    return of_kinds.apply(others, axis=1)


def _verdict(method: str, line: pd.Series) -> Row:
    kinds, margin = line[line.index.isin(read_design()["kinds"])].dropna(), read_design()["margin"]
    within, fixed = margin > max(-line["low"], line["high"]), 1.96 * line["seed_error"]
    word = "equivalent within a margin" if within else "inconclusive"
    if line.get("student_holm", line["student"]) <= LEVEL:
        word = "supported" if line["difference"] > 0 else "not supported"
    return {
        "comparison": f"pretrained-{method.removeprefix('loca-')}", "verdict": word,
        "measure": "the task's own score", "margin": margin,
        "seeds": int(line["seeds"]), **{name: line[name] for name in ("difference", "low", "high")},
        "standard_error": kinds.std(ddof=1) / math.sqrt(len(kinds)),
        "fixed_low": line["difference"] - fixed, "fixed_high": line["difference"] + fixed,
        "tasks": len(kinds), "pairs": len(kinds) * int(line["seeds"]),
        **dict.fromkeys(_UNUSED, math.nan),
    }  # fmt: skip


def _text_error(rows: Sequence[Row], method: str) -> float:
    """Standard error from the choice of test examples, from the differences on parts of them."""
    table = pd.DataFrame(rows).dropna(subset="parts")
    by_side = table.groupby(["task", table["method"] == method])["parts"]
    means: Any = by_side.apply(lambda own: np.mean(own.tolist(), axis=0))
    differences = 100 * (means.xs(True, level=1) - means.xs(False, level=1))
    variances = differences.map(lambda one: one.var(ddof=1) / len(one))
    kinds = (variances.reindex(tasks).dropna() for tasks in read_design()["kinds"].values())
    of_kinds = [own.sum() / len(own) ** 2 for own in kinds if len(own)]
    return math.sqrt(sum(of_kinds)) / len(of_kinds)


def gains(rows: Sequence[Row], methods: Sequence[str]) -> pd.DataFrame:
    """Mean scores by kind and method, and in the last row fractions of (full − probe)."""
    found = {one: scores(mine)[one].groupby("task").mean()
             for one in methods if (mine := complete(rows, [one]))}  # fmt: skip
    table = by_kind(pd.DataFrame(found)) if found else pd.DataFrame()
    probe = read_design()["tuning"]["probe"]
    if {probe, "full"} <= set(table):
        overall = table.mean()
        table.loc["gain"] = (overall - overall[probe]) / (overall["full"] - overall[probe])
    return table
