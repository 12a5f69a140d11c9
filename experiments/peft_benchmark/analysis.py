"""Results of the published runs: correlations, models without a type, and the hypotheses."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata, t

from experiments.peft_benchmark.runs import DESIGN
from experiments.verdicts import bootstrap
from loca_theory.expressivity import METHODS, Budget
from loca_theory.sweeps import generator

TITLES = {
    "trained": "trained numbers",
    "file_size": "bytes of the file",
    "lr": "learning rate",
    "scaled_lr": "learning rate × scaling",
    "frobenius": "first step, Frobenius norm",
    "spectral": "first step, spectral norm",
    "decrease": "predicted decrease",
    "expected_error": "expected error of ΔW",
}
MODELS = {
    "numbers": ("trained",),
    "first step": ("frobenius",),
    "rate × scaling": ("scaled_lr",),
    "numbers and rate × scaling": ("trained", "scaled_lr"),
    "numbers and first step": ("trained", "frobenius"),
    "numbers and decrease": ("trained", "decrease"),
}
DRAWS = 1_000  # of types of adapter, and of permutations
_LINEAR = ("WAVEFT", "SHIRA", "C3A", "MISS")


def joined(runs: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """The runs with their first steps and expected errors, and whether the fits have them."""
    table = runs.merge(steps, on="experiment")
    table["scaled_lr"] = table["lr"] * table["config"].map(_scaling)
    errors = [expected_error(run) for _, run in table.iterrows()]
    table["expected_error"] = pd.Series(errors, table.index, dtype=float)
    table["is_fitted"] = (table["reason"] == "") & ~table["peft_type"].isin(
        DESIGN["rule"]["not_fitted"]
    )
    return table


def _scaling(config: str) -> float:
    """The factor of ΔW in the configuration: ``scaling``, or α/r."""
    settings = json.loads(config)
    if isinstance(settings.get("scaling"), int | float):
        return float(settings["scaling"])
    alpha = settings.get("lora_alpha", settings.get("alpha"))
    if not isinstance(alpha, int | float) or not settings.get("r"):
        return 1.0
    return alpha / (math.sqrt(settings["r"]) if settings.get("use_rslora") else settings["r"])


def expected_error(run: Mapping[str, Any] | pd.Series) -> float | None:
    """Expected error of ΔW with independent entries, over the adapted layers, where it is known."""
    task, kind = DESIGN["tasks"][run["task"]], run["peft_type"]
    settings = json.loads(run["config"])
    named = settings.get("target_modules") or []
    shapes = [shape for name, shape in task["shapes"].items() if name in named]
    if not shapes:
        return None
    entries = [p * q for p, q in shapes]
    fraction = run["trained"] / (task["copies"] * sum(entries))
    if kind in _LINEAR:
        return 1 - fraction
    if kind == "FOURIERFT":
        return 1 - (1 - (1 - fraction) ** 2) / 2
    is_changed = settings.get("use_dora") or settings.get("use_bdlora")
    if kind != "LORA" or settings.get("init_lora_weights") is not True or is_changed:
        return None
    errors = [METHODS["LoRA"].expected_errors([Budget(p, q, settings["r"])])[0] for p, q in shapes]
    return float(np.average(errors, weights=entries))


def fitted(table: pd.DataFrame, task: str) -> pd.DataFrame:
    """The runs of a task that the fits have."""
    return table[table["is_fitted"] & (table["task"] == task)]


def correlations(table: pd.DataFrame, task: str) -> pd.DataFrame:
    """Spearman's correlations of each predictor with each outcome, with 95% intervals over types.

    The second half are those of the runs with many trained numbers.
    """
    rows, runs_of_task = [], fitted(table, task)
    are_many = runs_of_task["trained"] > DESIGN["rule"]["many"]
    groups = {"all": runs_of_task, "many numbers": runs_of_task[are_many]}
    for group, runs in groups.items():
        for outcome in DESIGN["tasks"][task]["outcomes"]:
            for predictor, title in TITLES.items():
                complete = runs.dropna(subset=[predictor, outcome])
                if len(complete) < 8:
                    continue
                statistic = partial(_correlation, predictor=predictor, outcome=outcome)
                value, low, high = estimated(complete[[predictor, outcome, "peft_type"]], statistic)
                row = {"runs": group, "outcome": outcome, "predictor": title, "n": len(complete)}
                rows.append({**row, "spearman": value, "low": low, "high": high})
    return pd.DataFrame(rows)


def _correlation(runs: pd.DataFrame, predictor: str, outcome: str) -> float:
    return _rank(runs[predictor], runs[outcome])


def differences(table: pd.DataFrame, task: str) -> pd.DataFrame:
    """By how much the correlations of steps with the loss exceed that of the trained numbers."""
    runs, rows = fitted(table, task).dropna(subset=["train_loss"]), []
    for predictor in ("frobenius", "spectral", "decrease"):
        columns = [predictor, "trained", "train_loss", "peft_type"]
        value, low, high = estimated(runs[columns], partial(_difference, predictor=predictor))
        row = {"predictor": TITLES[predictor], "n": len(runs), "difference": value}
        rows.append({**row, "low": low, "high": high})
    return pd.DataFrame(rows)


def _difference(runs: pd.DataFrame, predictor: str) -> float:
    return _correlation(runs, predictor, "train_loss") - _correlation(runs, "trained", "train_loss")


def _rank(x: Any, y: Any) -> float:
    """Spearman's correlation; scipy's takes ten times as long, most of it for p-values."""
    ranks = np.array([rankdata(x), rankdata(y)])
    ranks -= ranks.mean(axis=1, keepdims=True)
    variances = np.square(ranks).sum(axis=1)
    return float(ranks[0] @ ranks[1] / np.sqrt(variances.prod())) if variances.all() else math.nan


def estimated(
    runs: pd.DataFrame, statistic: Callable[[pd.DataFrame], float]
) -> tuple[float, float, float]:
    """A statistic with its 95% interval, from types of adapter drawn with replacement."""
    rows = np.arange(len(runs))
    groups = [rows[runs["peft_type"] == kind] for kind in sorted(runs["peft_type"].unique())]

    def drawn(rng: np.random.Generator) -> float:
        chosen = rng.integers(len(groups), size=len(groups))
        return statistic(runs.iloc[np.concatenate([groups[i] for i in chosen])])

    return statistic(runs), *bootstrap(drawn, DRAWS, "peft-benchmark.types")


def _logarithms(runs: pd.DataFrame, predictors: Sequence[str]) -> np.ndarray:
    return np.column_stack([np.ones(len(runs)), *(np.log10(runs[name]) for name in predictors)])


def fit(runs: pd.DataFrame, predictors: Sequence[str], outcome: str) -> np.ndarray:
    """Coefficients of a linear model in logarithms."""
    return np.linalg.lstsq(_logarithms(runs, predictors), runs[outcome], rcond=None)[0]


def left_out(runs: pd.DataFrame, predictors: Sequence[str], outcome: str) -> np.ndarray:
    """Predictions of each run by the runs of the other types of adapter."""
    predicted = np.empty(len(runs))
    for kind in runs["peft_type"].unique():
        is_kind = (runs["peft_type"] == kind).to_numpy()
        coefficients = fit(runs[~is_kind], predictors, outcome)
        predicted[is_kind] = _logarithms(runs[is_kind], predictors) @ coefficients
    return predicted


def error_left_out(runs: pd.DataFrame, predictors: Sequence[str], outcome: str) -> float:
    """Root of the mean square of the errors of :func:`left_out`."""
    return math.sqrt(np.mean((runs[outcome] - left_out(runs, predictors, outcome)) ** 2))


def models(table: pd.DataFrame, task: str, outcome: str) -> pd.DataFrame:
    """How well linear models in logarithms predict an outcome, with each type left out in turn."""
    runs = fitted(table, task).dropna(subset=[outcome])
    of_runs, rows = runs[outcome], []
    values = of_runs.to_numpy()
    for title, predictors in MODELS.items():
        inside = _logarithms(runs, predictors) @ fit(runs, predictors, outcome)
        outside = left_out(runs, predictors, outcome)
        residual = np.sum((values - inside) ** 2) / np.sum((values - values.mean()) ** 2)
        rows.append(_model(title, values, outside, 1 - residual, _rank(outside, values)))
    means = [np.delete(values, i).mean() for i in range(len(values))]
    rows.append(_model("the mean of the others", values, means, 0.0, math.nan))
    of_type = of_runs.groupby(runs["peft_type"])
    size, mean = of_type.transform("size"), of_type.transform("mean")
    if (several := size > 1).any():
        means = ((mean * size - of_runs) / (size - 1))[several]
        rank = _rank(means, of_runs[several])
        rows.append(_model("the mean of its type", of_runs[several], means, math.nan, rank))
    return pd.DataFrame(rows)


def _model(title: str, values: Any, outside: Any, r2: float, rank: float) -> dict[str, Any]:
    """How well a model predicts values; ``outside`` are its predictions with a type left out."""
    error = math.sqrt(np.mean((values - outside) ** 2))
    return {
        "model": title,
        "n": len(values),
        "R²": r2,
        "error, type left out": error,
        "spearman, type left out": rank,
    }


def hypotheses(table: pd.DataFrame) -> pd.DataFrame:
    """The three hypotheses of the design, on image generation."""
    images, texts = fitted(table, "image-gen"), fitted(table, "MetaMathQA")
    loss = images["train_loss"].to_numpy()
    step = _rank(images["frobenius"], loss)
    rng = generator(0, "peft-benchmark.permutations")
    draws = [_rank(images["frobenius"], rng.permutation(loss)) for _ in range(DRAWS)]
    p_value = (1 + sum(draw <= step for draw in draws)) / (1 + len(draws))
    error, with_decrease = (
        error_left_out(images, MODELS[name], "train_loss")
        for name in ("numbers", "numbers and decrease")
    )
    predictors = MODELS["numbers and decrease"]
    coefficients = fit(texts, predictors, "train_loss")

    def gain(runs: pd.DataFrame) -> float:
        by_both = _rank(_logarithms(runs, predictors) @ coefficients, runs["train_loss"])
        return by_both - _rank(-runs["trained"], runs["train_loss"])

    value, low, high = estimated(images, gain)
    level = DESIGN["hypotheses"]["level"]
    is_better = with_decrease <= (1 - DESIGN["hypotheses"]["least_gain"]) * error
    return pd.DataFrame(
        [
            ("step", step, f"p = {p_value:.4f}", p_value <= level),
            ("beyond", 1 - with_decrease / error, f"{error:.4f} → {with_decrease:.4f}", is_better),
            ("transfer", value, f"{low:.2f} to {high:.2f}", low > 0),
        ],
        columns=["hypothesis", "value", "beside", "holds"],
    )


def predictions(table: pd.DataFrame, candidates: pd.DataFrame) -> pd.DataFrame:
    """Predicted losses of runs that are not in the table, with their intervals."""
    runs, predictors = fitted(table, "MetaMathQA"), MODELS["numbers and decrease"]
    coefficients = fit(runs, predictors, "train_loss")
    half = error_left_out(runs, predictors, "train_loss") * t.isf(
        (1 - DESIGN["predictions"]["level"]) / 2, len(runs) - 3
    )
    value = _logarithms(candidates, predictors) @ coefficients
    return candidates.assign(train_loss=value, low=value - half, high=value + half)
