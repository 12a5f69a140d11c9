"""The predictors of a real quick fine-tune, and the tables of the command."""

import pytest
from click.testing import CliRunner

from experiments.finetuning.prediction import forecast
from experiments.finetuning.prediction.predictors import PREDICTORS
from experiments.finetuning.protocol import Configuration, point
from experiments.finetuning.settings import settings
from experiments.finetuning.tasks import prepare
from experiments.finetuning.training import compute
from experiments.prediction import ADAPTERS, figure_rows, main

TASK = "small-digits"


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """Full fine-tunes of two seeds as a point, its results, and the folder of the tasks."""
    folder = tmp_path_factory.mktemp("prediction")
    chosen = settings(TASK, quick=True)
    prepared = prepare(TASK, folder, quick=True)
    wanted = {"seeds": [0, 1], "ranks": [1, 2], "pool": 0}

    def point_at(rate):
        configuration = Configuration(TASK, "full", 1)
        return point(
            configuration, chosen, prepared, rate=rate, seeds=[0, 1], device="cpu", analyse=wanted
        )

    return point_at, compute(point_at(1e-3), folder)["runs"], folder


def test_the_predictors_are_those_of_the_full_fine_tune_of_the_seed(full):
    point_at, runs, folder = full
    wanted = [Configuration(TASK, name, r) for name in ("lora", "loca", "loca-v2") for r in (1, 2)]
    rows = forecast.compute(forecast.forecast(point_at(1e-3), 1, wanted), folder)["rows"]
    of = {(row["method"], row["r"]): row for row in rows}
    assert set(of) == {(one.method, one.r) for one in wanted}
    errors = {
        (one["accounting"], one["method"], one["r"]): one["error"]
        for one in runs[1]["increments"]["errors"]
    }
    early = {one.name for one in PREDICTORS.values() if one.is_early}
    for r in (1, 2):
        # Runs that are trained together differ from a run alone by rounding.
        want = 1 - errors["paper", "R", r]
        assert of["lora", r]["retained_energy"] == pytest.approx(want, rel=1e-3)
        want = 1 - errors["trainable", "D", r]
        assert of["loca", r]["retained_energy"] == pytest.approx(want, rel=1e-3)
        numbers = {key: of["loca", r][key] for key in set(PREDICTORS) - early}
        assert numbers == {key: of["loca-v2", r][key] for key in numbers}
        assert all(value > 0 for value in numbers.values())
        # Four layers of 128 r components.
        assert numbers.pop("effective_dimension") < 4 * 128 * r
        assert all(value < 1 for value in numbers.values())
    for name in ("weighted_energy", "gradient_energy", "predicted_decrease"):
        assert of["loca", 1][name] < of["loca", 2][name]


def test_a_full_fine_tune_that_diverged_predicts_nothing(full):
    point_at, _, folder = full
    wanted = [Configuration(TASK, "lora", 1)]
    one = forecast.forecast(point_at(1e30), 0, wanted)
    assert forecast.compute(one, folder) == {"rows": []}


def test_the_figure_has_a_row_per_predictor_and_adapter():
    runs, predictions = [], []
    for number, method in enumerate(ADAPTERS):
        key = {"task": TASK, "method": method, "r": 1}
        own = {one.name: number for one in PREDICTORS.values() if not one.is_early}
        predictions.append({**key, "seed": 0, **own})
        for seed in (0, 1):
            run = {"title": method, "measure": "accuracy", "metric": number / 10 + seed / 100}
            early = {"loss_10": 5.0 - number, "loss_25": None, "diverged": False}
            runs.append({**key, **run, **early, "seed": seed, "trained": 1, "stored": 1})
    correlations = [
        {"predictor": name, "scope": "methods at one budget", "tasks": part, "chosen": False}
        | {"correlation": 1.0, "low": low, "high": 1.0}
        for name in PREDICTORS
        for part, low in (("all", 0.5), ("judgement", 0.25))
    ]
    rows = figure_rows(runs, predictions, correlations)
    assert len(rows) == (len(PREDICTORS) - 1) * len(ADAPTERS)
    one = next(r for r in rows if (r["predictor"], r["method"]) == ("loss_10", ADAPTERS[3]))
    assert one["value"] == -2.0
    assert one["mean"] == pytest.approx(0.305)
    assert (one["low"], one["judged_low"]) == (0.5, 0.25)


def test_a_task_with_large_layers_is_refused_in_one_line(tmp_path):
    result = CliRunner().invoke(main, ["--quick", "--out", str(tmp_path), "--task", "text"])
    assert result.exit_code == 2
    assert "--task must be one of " in result.output
    assert "not text: the predictors need layers of at most" in result.output


@pytest.mark.deep
def test_the_command_runs(tmp_path):
    given = ["--quick", "--out", str(tmp_path), "-j", "1", "--device", "cpu", "-q"]
    result = CliRunner().invoke(main, [*given, "--task", TASK])
    assert result.exit_code == 0, result.output
    assert "what predicts the better adapter: methods at one budget" in result.output
    found = {path.name for path in (tmp_path / "quick").iterdir()}
    tables = ("", "-predictors", "-correlations", "-pairs", "-errors")
    assert {f"prediction-{TASK}{table}.parquet" for table in tables} <= found
    assert f"prediction-{TASK}.pdf" in found
