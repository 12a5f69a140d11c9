"""Rank correlations against scipy, and what the choice and the intervals do on made-up runs."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from experiments.finetuning.prediction.rank_correlation import (
    OTHER_SEEDS,
    cells,
    correlations,
    mean_correlation,
)

METHODS, SEEDS = ("lora", "loca", "fourierft", "shira"), range(6)
SIGNS = {"good": 1, "bad": 1, "loss": -1}
TASKS = ("d", "a", "c", "b")


def made_up(noise=0.5, tasks=TASKS, ranks=(1, 2)):
    """Runs that reach ``good`` plus noise; ``bad`` is unrelated; a loss falls as the metric grows.

    Seeds share a part of the noise, as the seeds of real runs do.
    """
    rng = np.random.default_rng(0)
    runs, predictions = [], []
    for task in tasks:
        for r in ranks:
            shared = rng.standard_normal(len(SEEDS))
            for number, method in enumerate(METHODS):
                key = {"task": task, "method": method, "r": r}
                good = number + 10 * r
                predictions += [
                    {**key, "seed": seed, "good": good + seed, "bad": rng.standard_normal()}
                    for seed in (0, 1)
                ]
                for seed in SEEDS:
                    metric = good + shared[seed] + noise * rng.standard_normal()
                    loss = 5 - metric + noise * rng.standard_normal()
                    run = {"seed": seed, "metric": metric, "loss": loss, "diverged": False}
                    runs.append({**key, **run})
    return runs, predictions


def test_cells_put_runs_and_predictions_together():
    runs, predictions = made_up()
    runs[0] |= {"metric": None, "loss": None, "diverged": True}
    runs.append({**runs[-1], "method": "unknown"})
    found = {(one.task, one.r): one for one in cells(runs, predictions, SIGNS)}
    assert set(found) == {(task, r) for task in TASKS for r in (1, 2)}
    cell = found["d", 1]
    assert cell.methods == METHODS
    # A diverged run is the worst of its task.
    assert cell.reached[0, 0] == min(x["metric"] for x in runs[1:] if x["task"] == "d")
    assert np.isnan(cell.predicted["loss"][0, 0])
    assert cell.reached[1, 2] == runs[len(SEEDS) + 2]["metric"]
    assert cell.predicted["good"][:, 0] == pytest.approx([10.5, 11.5, 12.5, 13.5])
    assert cell.predicted["loss"][1, 2] == -runs[len(SEEDS) + 2]["loss"]
    together = cells(runs, predictions, SIGNS, by_budget=False)
    assert [(one.task, one.r, len(one.methods)) for one in together] == [
        (task, None, 2 * len(METHODS)) for task in TASKS
    ]


def test_a_task_on_which_all_diverged_and_a_lone_pair_are_left_out():
    runs, predictions = made_up(ranks=(1,))
    for run in runs:
        if run["task"] == "a":
            run |= {"metric": None, "loss": None, "diverged": True}
    runs = [run for run in runs if run["task"] != "b" or run["method"] in METHODS[:2]]
    assert [one.task for one in cells(runs, predictions, SIGNS)] == ["d", "c"]


def test_the_mean_correlation_is_over_budgets_and_then_tasks():
    runs, predictions = made_up(noise=3.0)
    runs = [run for run in runs if (run["task"], run["r"]) != ("a", 2)]
    found = cells(runs, predictions, SIGNS)
    by_task = {}
    for one in found:
        means = -one.predicted["loss"].mean(1)
        by_task.setdefault(one.task, []).append(spearmanr(-means, one.reached.mean(1)).statistic)
    want = np.mean([np.mean(values) for values in by_task.values()])
    correlation, low, high = mean_correlation(found, "loss")
    assert correlation == pytest.approx(want)
    assert low < correlation < high


def test_other_seeds_predict_what_is_not_noise():
    runs, predictions = made_up(noise=0.1)
    found = correlations(runs, predictions, SIGNS)
    known = [one["correlation"] for one in found if one["predictor"] == OTHER_SEEDS]
    assert min(known) == 1
    rng = np.random.default_rng(1)
    for run in runs:
        run["metric"] = rng.standard_normal()
    found = correlations(runs, predictions, SIGNS)
    whole = {o["scope"]: o for o in found if (o["predictor"], o["tasks"]) == (OTHER_SEEDS, "all")}
    # The mean of 8 correlations of 4 independent pairs has the standard deviation 1/√(3·8).
    assert abs(whole["methods at one budget"]["correlation"]) < 4 / 24**0.5
