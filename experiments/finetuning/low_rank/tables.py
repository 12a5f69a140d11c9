"""Tables of full fine-tunes in which one factor varies at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from experiments.finetuning.low_rank.fine_tunes import ALL, Case, Training
from experiments.finetuning.low_rank.spectra import KINDS
from experiments.finetuning.statistics import Row, grouped, interval

# The task, the seed and the result of a run.
Done = Mapping[str, Any]
# Stands for an optimiser in rows of the controls, matrices of independent normal entries.
INDEPENDENT = "independent"
# The statistics of a matrix that are averaged, and whether they are divided by min(p, q).
STATISTICS = {"rank_50": True, "rank_90": True, "rank_99": True, "effective_rank": True,
              "relative_norm": False, "tv": False, "mp_distance": False,
              "accuracy": False}  # fmt: skip
_RETAINED = ("retained", "independent", "threshold", "cosine", "cosine_predicted", "predicted",
             "low_rank")  # fmt: skip
LABELS = ("task", "optimizer", "rate", "steps", "batch", "examples")


def matrix_rows(training: Training | None, run: Done) -> tuple[list[Row], list[Row]]:
    """Rows of the matrices of a run, and rows of its matrices and ranks."""
    labels = dict.fromkeys(LABELS) | {"task": run["task"], "optimizer": INDEPENDENT}
    labels |= asdict(training) if training else {}
    labels |= {name: run[name] for name in ("examples", "seed", "accuracy", "diverged")}
    matrices: list[Row] = []
    ranks: list[Row] = []
    for entry in run["matrices"]:
        own = labels | {key: value for key, value in entry.items() if key != "ranks"}
        matrices.append(own)
        names = (*LABELS, "seed", "name", "kind", "p", "q")
        ranks += [{**{name: own[name] for name in names}, **row} for row in entry["ranks"]]
    return matrices, ranks


def statistics_rows(matrices: Iterable[Row]) -> list[Row]:
    """Means of the statistics over the matrices of a run, and intervals over seeds."""
    found = []
    for key, rows in grouped(matrices, LABELS).items():
        for kind in (ALL, *KINDS):
            mine = [row for row in rows if kind in (ALL, row["kind"])]
            for name, is_rank in STATISTICS.items():
                values = [
                    (row["seed"], row[name] / (min(row["p"], row["q"]) if is_rank else 1))
                    for row in mine
                    if row[name] is not None
                ]
                if values:
                    line = {"kind": kind, "statistic": name, "missing": len(mine) - len(values)}
                    labels = dict(zip(LABELS, key, strict=True))
                    found.append(labels | line | _over_seeds(values))
    return found


def factor_rows(cases: Sequence[Case], runs: Mapping[Any, Sequence[Done]]) -> list[Row]:
    """What low rank retains by factor, value, optimiser and rank: means over a run's matrices."""
    found: list[Row] = []
    for case in cases:
        own = runs[case.training]
        good = [run for run in own if not run["diverged"]]
        for kind in (ALL, *KINDS) if case.factor == "optimizer" else (ALL,):
            rows = [
                {"seed": run["seed"], "K": min(entry["p"], entry["q"]), **row}
                for run in good
                for entry in run["matrices"]
                if kind in (ALL, entry["kind"])
                for row in entry["ranks"]
            ]
            value = case.value
            if case.factor == "examples" and value is None and good:
                value = good[0]["examples"]
            line = {
                "task": own[0]["task"],
                "factor": case.factor if kind == ALL else "kind",
                "label": case.label if kind == ALL else kind,
                "value": value,
                "optimizer": case.training.optimizer,
                "rate": case.training.rate,
                "accuracy": _mean(run["accuracy"] for run in good),
                "diverged": len(own) - len(good),
            }
            for (k, r), mine in grouped(rows, ("K", "r")).items():
                means = {name: _mean(row[name] for row in mine) for name in _RETAINED}
                over_seeds = _over_seeds([(row["seed"], row["retained"]) for row in mine])
                del over_seeds["mean"]
                found.append(line | {"K": k, "r": r} | means | over_seeds)
            if not rows and kind == ALL:
                found.append(line | {"retained": None})
    return found


def prediction(ranks: Iterable[Row]) -> Row:
    """How well the singular values alone predict what the best cosine coefficients retain."""
    rows = [row for row in ranks if row["optimizer"] != INDEPENDENT]
    # What the cosine basis is worth beyond the prediction.
    excess = [row["cosine"] - row["cosine_predicted"] for row in rows]
    return {
        "count": len(rows),
        "right": sum(row["predicted"] == row["low_rank"] for row in rows),
        "excess": _mean(excess),
        "error": _mean(map(abs, excess)),
    }


def _over_seeds(pairs: Iterable[tuple[int, float]]) -> Row:
    """Mean and interval of the means of the seeds."""
    by_seed: dict[int, list[float]] = {}
    for seed, value in pairs:
        by_seed.setdefault(seed, []).append(value)
    mean, low, high = interval([sum(values) / len(values) for values in by_seed.values()])
    return {"mean": mean, "low": low, "high": high, "seeds": len(by_seed)}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else None
