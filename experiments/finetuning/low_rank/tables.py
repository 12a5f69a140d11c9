"""Tables of full fine-tunes in which one factor varies at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple
from typing import Any

import pandas as pd

from experiments.finetuning.low_rank.fine_tunes import ALL, Case, Training
from experiments.finetuning.low_rank.spectra import KINDS
from experiments.finetuning.statistics import Row, grouped, interval

# Stands for an optimiser in rows of the controls, matrices of independent normal entries.
INDEPENDENT = "independent"
# The statistics of a matrix that are averaged, and whether they are divided by min(p, q).
STATISTICS = {"rank_50": True, "rank_90": True, "rank_99": True, "effective_rank": True,
              "relative_norm": False, "tv": False, "mp_distance": False,
              "accuracy": False}  # fmt: skip
_RETAINED = ["retained", "independent", "threshold", "cosine", "cosine_predicted", "predicted",
             "low_rank"]  # fmt: skip
LABELS = ("task", "optimizer", "rate", "steps", "batch", "examples")


def matrix_rows(
    task: str, training: Training | None, seed: int, result: Mapping[str, Any]
) -> tuple[list[Row], list[Row]]:
    """Rows of the matrices of a run, and rows of its matrices and ranks."""
    labels = dict.fromkeys(LABELS) | {"task": task, "optimizer": INDEPENDENT}
    labels |= asdict(training) if training else {}
    labels |= {"seed": seed, "accuracy": result["accuracy"], "diverged": result["diverged"]}
    matrices: list[Row] = []
    ranks: list[Row] = []
    for entry in result["matrices"]:
        own = labels | {key: value for key, value in entry.items() if key != "ranks"}
        matrices.append(own)
        names = (*LABELS, "seed", "name", "kind", "p", "q")
        ranks += [{**{name: own[name] for name in names}, **row} for row in entry["ranks"]]
    return matrices, ranks


def statistics_rows(matrices: Iterable[Row]) -> list[Row]:
    """Means of the statistics over the matrices of a run, and intervals over seeds."""
    found = []
    for key, rows in grouped(matrices, LABELS).items():
        table = pd.DataFrame(rows)
        for kind in (ALL, *KINDS):
            mine = table[table["kind"].eq(kind) | (kind == ALL)]
            for name, is_rank in STATISTICS.items():
                size = mine[["p", "q"]].min(axis=1) if is_rank else 1
                values = (mine[name].astype(float) / size).dropna()
                line = {"kind": kind, "statistic": name, "missing": len(mine) - len(values)}
                if len(values):
                    labels = dict(zip(LABELS, key, strict=True))
                    found.append(labels | line | _over_seeds(values, mine["seed"]))
    return found


def factor_rows(
    task: str, cases: Sequence[Case], matrices: Iterable[Row], ranks: Iterable[Row], seeds: int
) -> list[Row]:
    """What low rank retains by factor, value, optimiser and rank: means over a run's matrices."""
    accuracies = grouped(matrices, LABELS)
    of_training = grouped(ranks, LABELS)
    found: list[Row] = []
    for case in cases:
        key = (task, *astuple(case.training))
        accuracy = {row["seed"]: row["accuracy"] for row in accuracies.get(key, [])}
        line = {
            "task": task, "factor": case.factor, "label": case.label, "value": case.value,
            "optimizer": case.training.optimizer, "rate": case.training.rate,
            "accuracy": sum(accuracy.values()) / len(accuracy) if accuracy else None,
            "diverged": seeds - len(accuracy),
        }  # fmt: skip
        if key not in of_training:
            found.append(line | {"retained": None})
            continue
        rows = pd.DataFrame(of_training[key])
        rows["K"] = rows[["p", "q"]].min(axis=1)
        for kind in (ALL, *KINDS) if case.factor == "optimizer" else (ALL,):
            own = line if kind == ALL else line | {"factor": "kind", "label": kind}
            of_kind = rows[rows["kind"].eq(kind) | (kind == ALL)]
            for (k, r), mine in of_kind.groupby(["K", "r"], sort=False):
                over_seeds = _over_seeds(mine["retained"], mine["seed"])
                del over_seeds["mean"]
                means = {name: _mean(mine[name].dropna()) for name in _RETAINED}
                found.append(own | {"K": k, "r": r} | means | over_seeds)
    return found


def _over_seeds(values: pd.Series, seeds: pd.Series) -> Row:
    """Mean and interval of the means of the seeds."""
    means = values.groupby(seeds).agg(_mean)
    mean, low, high = interval([*means])
    return {"mean": mean, "low": low, "high": high, "seeds": len(means)}


def _mean(values: pd.Series) -> float | None:
    return sum(values.astype(float)) / len(values) if len(values) else None
