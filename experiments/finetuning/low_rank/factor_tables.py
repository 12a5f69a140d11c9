"""Tables of full fine-tunes in which one factor varies at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.finetuning.low_rank.factors import ALL, Case
from experiments.finetuning.low_rank.full import Training
from experiments.finetuning.low_rank.spectra import KINDS
from experiments.finetuning.statistics import interval
from loca_theory.sweeps.store import Point

Row = dict[str, Any]
Done = tuple[Point, Mapping[str, Any]]
"""A run and its result."""

INDEPENDENT = "independent"
"""Stands for an optimiser in rows of the controls, matrices of independent normal entries."""

# The statistics of a matrix that are averaged, and whether they are divided by min(p, q).
STATISTICS = {"rank_50": True, "rank_90": True, "rank_99": True, "effective_rank": True,
              "relative_norm": False, "tv": False, "mp_distance": False,
              "accuracy": False}  # fmt: skip
_RETAINED = ("retained", "independent", "threshold", "cosine", "cosine_predicted", "predicted",
             "low_rank")  # fmt: skip
_LABELS = ("task", "optimizer", "rate", "steps", "batch", "examples")


def labels(run: Point, result: Mapping[str, Any]) -> Row:
    """Columns that say which run a row belongs to."""
    training: Mapping[str, Any] = run.parameters["training"] or {}
    return {
        "task": run.parameters["task"],
        "optimizer": training.get("optimizer", INDEPENDENT),
        **{name: training.get(name) for name in ("rate", "steps", "batch")},
        "examples": result["examples"],
        "seed": run.parameters["seed"],
        "accuracy": result["accuracy"],
        "diverged": result["diverged"],
    }


def matrix_rows(run: Point, result: Mapping[str, Any]) -> tuple[list[Row], list[Row]]:
    """Rows of the matrices of a run, and rows of its matrices and ranks."""
    matrices: list[Row] = []
    ranks: list[Row] = []
    for entry in result["matrices"]:
        own = labels(run, result) | {key: value for key, value in entry.items() if key != "ranks"}
        matrices.append(own)
        names = (*_LABELS, "seed", "name", "kind", "p", "q")
        ranks += [{**{name: own[name] for name in names}, **row} for row in entry["ranks"]]
    return matrices, ranks


def statistics_rows(matrices: Iterable[Row]) -> list[Row]:
    """Means of the statistics over the matrices of a run, and intervals over seeds.

    Args:
        matrices: Rows of matrices; see :func:`matrix_rows`.

    Returns:
        For each training, each kind of layer and ``all``, and each statistic, ``mean``, ``low``,
        ``high``, ``seeds``, and ``missing``, the number of matrices that do not have the statistic,
        such as a spectrum without a Marchenko–Pastur bulk. Ranks are in units of min(p, q).
    """
    by_training: dict[tuple[Any, ...], list[Row]] = {}
    for row in matrices:
        by_training.setdefault(tuple(row[name] for name in _LABELS), []).append(row)
    found = []
    for key, rows in by_training.items():
        for kind in (ALL, *KINDS):
            mine = [row for row in rows if kind in (ALL, row["kind"])]
            for name, is_rank in STATISTICS.items():
                known = [row for row in mine if row[name] is not None]
                if not known:
                    continue
                values = _by_seed(
                    (row["seed"], row[name] / (min(row["p"], row["q"]) if is_rank else 1))
                    for row in known
                )
                line = {"kind": kind, "statistic": name, "missing": len(mine) - len(known)}
                found.append(dict(zip(_LABELS, key, strict=True)) | line | _with_interval(values))
    return found


def factor_rows(cases: Sequence[Case], runs: Mapping[Training, Sequence[Done]]) -> list[Row]:
    """What low rank retains by factor, value, optimiser and rank: means over the matrices of a run.

    The factor ``kind`` has the kinds of layers in the default trainings.

    Args:
        cases: The cases of one task.
        runs: The runs of each training, one per seed, with their results.

    Returns:
        One row per case and rank, with the interval of ``retained`` over seeds (``low``, ``high``),
        the means of the other columns of
        :func:`~experiments.finetuning.low_rank.spectra.rank_rows`, K = min(p, q), ``accuracy``,
        and the numbers of ``seeds`` and ``diverged`` runs.
    """
    found: list[Row] = []
    for case in cases:
        own = runs[case.training]
        kinds = [ALL, *KINDS] if case.factor == "optimizer" else [ALL]
        good = [(run, result) for run, result in own if not result["diverged"]]
        for kind in kinds:
            rows = [
                {"seed": run.parameters["seed"], "K": min(entry["p"], entry["q"]), **row}
                for run, result in good
                for entry in result["matrices"]
                if kind in (ALL, entry["kind"])
                for row in entry["ranks"]
            ]
            value = case.value
            if case.factor == "examples" and value is None and good:
                value = good[0][1]["examples"]
            line = {
                "task": own[0][0].parameters["task"],
                "factor": case.factor if kind == ALL else "kind",
                "label": case.label if kind == ALL else kind,
                "value": value,
                "optimizer": case.training.optimizer,
                "rate": case.training.rate,
                "accuracy": _mean(result["accuracy"] for _, result in good),
                "diverged": len(own) - len(good),
            }
            missing = [{"retained": None}] if kind == ALL else []
            found += [line | row for row in _by_rank(rows) or missing]
    return found


def prediction(ranks: Iterable[Row]) -> Row:
    """How well the singular values alone predict what the best cosine coefficients retain.

    Args:
        ranks: Rows of matrices and ranks; see :func:`matrix_rows`. Controls are left out.

    Returns:
        ``count`` of rows; ``right``, how many of them have the better of low rank and coefficients
        predicted; ``excess``, the mean of the fraction that the coefficients retain less its
        prediction: what the cosine basis is worth; ``error``, the mean of its modulus.
    """
    rows = [row for row in ranks if row["optimizer"] != INDEPENDENT]
    excess = [row["cosine"] - row["cosine_predicted"] for row in rows]
    return {
        "count": len(rows),
        "right": sum(row["predicted"] == row["low_rank"] for row in rows),
        "excess": _mean(excess),
        "error": _mean(map(abs, excess)),
    }


def _by_rank(rows: Sequence[Row]) -> list[Row]:
    by_rank: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        by_rank.setdefault((row["K"], row["r"]), []).append(row)
    return [
        {"K": k, "r": r}
        | {name: _mean(row[name] for row in mine) for name in _RETAINED}
        | {
            key: value
            for key, value in _with_interval(
                _by_seed((row["seed"], row["retained"]) for row in mine)
            ).items()
            if key != "mean"
        }
        for (k, r), mine in by_rank.items()
    ]


def _by_seed(pairs: Iterable[tuple[int, float]]) -> list[float]:
    """The mean of each seed."""
    by_seed: dict[int, list[float]] = {}
    for seed, value in pairs:
        by_seed.setdefault(seed, []).append(value)
    return [sum(values) / len(values) for values in by_seed.values()]


def _with_interval(values: Sequence[float]) -> Row:
    mean, low, high = interval(values)
    return {"mean": mean, "low": low, "high": high, "seeds": len(values)}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else None
