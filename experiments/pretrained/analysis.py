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

from experiments.pretrained.runs import FIRST, Design, tasks_in, tasks_of_kinds
from experiments.tables import Row
from experiments.verdicts import LOSS, holm, points, sign_p_values, student, verdict_by_test
from loca_theory.claims.rules import Verdict

# Columns of the table of verdicts that another design fills.
_UNUSED = ("kinds_low", "kinds_high", "draws_error", "draws_low", "draws_high", "draws_verdict")


def complete(rows: Sequence[Row], methods: Sequence[str], design: Design = FIRST) -> list[Row]:
    """The rows of methods on the tasks of kinds, with the seeds that all of them have."""
    tasks = {*tasks_of_kinds(design)}
    chosen = [row for row in rows if not row["tunes"] and row["method"] in methods]
    chosen = [row for row in chosen if row["task"] in tasks]
    tasks &= {*tasks_in(chosen[0]["setting"], design)} if chosen else set()
    required = set(product(tasks, methods))
    have = {
        seed: {(row["task"], row["method"]) for row in chosen if row["seed"] == seed}
        for seed in {row["seed"] for row in chosen}
    }
    return [row for row in chosen if have.get(row["seed"]) == required]


def score_table(rows: Sequence[Row], measure: str = "metric") -> pd.DataFrame:
    """Scores in points by task and seed (rows) and method (columns)."""
    table = pd.DataFrame(rows)
    table["score"] = points(table[measure], table["task"], measure)
    return table.pivot_table(index=["task", "seed"], columns="method", values="score")


def by_kind(of_task: pd.DataFrame, design: Design = FIRST) -> pd.DataFrame:
    """Means over the tasks of each kind, from a row for each task."""
    kinds = {
        kind: [task for task in tasks if task in of_task.index]
        for kind, tasks in design["kinds"].items()
    }
    return pd.DataFrame({k: of_task.loc[tasks].mean() for k, tasks in kinds.items() if tasks}).T


def points_per_unit(design: Design) -> pd.Series:
    """Points in the unit of each kind's differences: 1, or what ``units`` of the design says."""
    return pd.Series({kind: design.get("units", {}).get(kind, 1.0) for kind in design["kinds"]})


def compare(
    rows: Sequence[Row], methods: Sequence[str], measure: str = "metric", design: Design = FIRST
) -> pd.DataFrame:
    """Compare methods with the reference on the seeds that are complete."""
    reference, lines = design["reference"], {}
    for method in methods:
        chosen = complete(rows, (method, reference), design)
        if not chosen:
            continue
        scores = score_table(chosen, measure)
        paired = (scores[method] - scores[reference]).reset_index(name="difference")
        paired = paired.pivot_table(index="task", columns="seed", values="difference")
        kinds = by_kind(paired, design)
        kinds = kinds.div(points_per_unit(design)[kinds.index], axis=0)
        of_kind, of_seed = kinds.mean(axis=1), kinds.mean()
        mean, low, high, p_value = student(of_kind)
        line: Row = {"seeds": len(of_seed), "difference": mean, "low": low, "high": high}
        line |= {"half": (high - low) / 2, "student": p_value}
        line["signs"] = float(sign_p_values(of_kind))
        line["seed_error"] = of_seed.std(ddof=1) / math.sqrt(len(of_seed))
        is_loss = measure.startswith(LOSS)
        line["text_error"] = math.nan if is_loss else _text_error(chosen, method, design)
        of_task = {f"task {task}": value for task, value in paired.mean(axis=1).items()}
        lines[method] = {**line, **of_kind, **of_task}
    return pd.DataFrame(lines).T


def primary(rows: Sequence[Row], design: Design = FIRST) -> pd.DataFrame:
    """The primary comparisons, with p-values adjusted over them."""
    table = compare(rows, design["primary"], design=design)
    for test in ("signs", "student") if len(table) else ():
        table.insert(0, f"{test}_holm", holm(table[test]))
    return table


def verdicts(rows: Sequence[Row]) -> list[Row]:
    """Rows of the table of verdicts, on whether a method does better than the reference."""
    main = primary([row for row in rows if row["setting"] == "main"])
    if len(main) and (main["seeds"] < FIRST["seeds"]).any():
        return []  # not complete
    random = [row for row in rows if row["setting"] == "random"]
    best = [{**row, "method": "best"} for row in rows if row["setting"] == "best"]
    lines = [*main.iterrows(), *compare([*random, *best], ["best"]).iterrows()]
    return [_row(str(method), line) for method, line in lines]


def without_each_kind(rows: Sequence[Row], design: Design = FIRST) -> pd.DataFrame:
    """Mean and interval of the primary comparisons over all kinds but one, by that kind."""
    table = compare(rows, design["primary"], design=design)
    of_kinds = table[[kind for kind in table if kind in design["kinds"]]].astype(float)

    def others(line: pd.Series) -> pd.Series:
        intervals = {kind: student(line.drop(kind)) for kind in line.index}
        form = "{0:.2f} ({1:.2f} to {2:.2f})"
        return pd.Series({kind: form.format(*ends) for kind, ends in intervals.items()})

    return of_kinds.apply(others, axis=1)


def verdict(line: pd.Series, margin: float, *in_other_units: tuple[pd.Series, float]) -> Verdict:
    """The verdict on a comparison, which can have intervals and margins in other units too."""
    p_value = line.get("student_holm", line["student"])
    lines = ((line, margin), *in_other_units)
    intervals = [(of_unit["low"], of_unit["high"], within) for of_unit, within in lines]
    return verdict_by_test(line["difference"], p_value, *intervals)


def _row(method: str, line: pd.Series) -> Row:
    kinds, margin = line[line.index.isin(FIRST["kinds"])].dropna(), FIRST["margin"]
    fixed = 1.96 * line["seed_error"]
    return {
        "comparison": f"pretrained-{method.removeprefix('loca-')}",
        "verdict": verdict(line, margin).value,
        "measure": "the task's own score",
        "margin": margin,
        "seeds": int(line["seeds"]),
        **{name: line[name] for name in ("difference", "low", "high")},
        "standard_error": kinds.std(ddof=1) / math.sqrt(len(kinds)),
        "fixed_low": line["difference"] - fixed,
        "fixed_high": line["difference"] + fixed,
        "tasks": len(kinds),
        "pairs": len(kinds) * int(line["seeds"]),
        **dict.fromkeys(_UNUSED, math.nan),
    }


def _text_error(rows: Sequence[Row], method: str, design: Design) -> float:
    """Standard error from the choice of test examples, from the differences on parts of them."""
    table = pd.DataFrame(rows).dropna(subset="parts")
    by_side = table.groupby(["task", table["method"] == method])["parts"]
    means: Any = by_side.apply(lambda parts: np.mean(parts.tolist(), axis=0))
    differences = 100 * (means.xs(True, level=1) - means.xs(False, level=1))
    variances = differences.map(lambda values: values.var(ddof=1) / len(values))
    kinds = {kind: variances.reindex(tasks).dropna() for kind, tasks in design["kinds"].items()}
    of_kinds = [
        of_kind.sum() / (len(of_kind) * points_per_unit(design)[kind]) ** 2
        for kind, of_kind in kinds.items()
        if len(of_kind)
    ]
    return math.sqrt(sum(of_kinds)) / len(of_kinds)


def gains(rows: Sequence[Row], methods: Sequence[str], design: Design = FIRST) -> pd.DataFrame:
    """Mean scores by kind and method, and in the last row fractions of (full − probe)."""
    complete_rows = {method: complete(rows, [method], design) for method in methods}
    scores = {method: score_table(done)[method] for method, done in complete_rows.items() if done}
    means = {method: values.groupby("task").mean() for method, values in scores.items()}
    table = by_kind(pd.DataFrame(means), design) if means else pd.DataFrame()
    probe = design["tuning"]["probe"]
    if {probe, "full"} <= set(table):
        overall = table.mean()
        table.loc["gain"] = (overall - overall[probe]) / (overall["full"] - overall[probe])
    return table
