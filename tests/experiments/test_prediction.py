"""The predictors of a real quick fine-tune, and the tables of the command."""

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.fft import dctn
from scipy.stats import spearmanr

from experiments.finetuning.prediction.predictors import TITLES, compute, forecast
from experiments.finetuning.prediction.rank_correlation import rank_correlation
from experiments.finetuning.protocol import Configuration, point
from experiments.finetuning.run_tables import read_runs
from experiments.finetuning.settings import settings
from experiments.finetuning.tasks.prepared import opened, prepare
from experiments.finetuning.training import Group
from experiments.prediction import COLUMNS, main, usable

TASK = "small-digits"


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """Full fine-tunes of two seeds as a point, and the folder of the tasks."""
    folder = tmp_path_factory.mktemp("prediction")
    chosen = settings(TASK, quick=True)
    prepared = prepare(TASK, folder, quick=True)

    def point_at(rate):
        configuration = Configuration(TASK, "full", 1)
        return point(configuration, chosen, prepared, rate=rate, seeds=[0, 1], device="cpu")

    return point_at, folder


def test_the_predictors_are_those_of_the_full_fine_tune_of_the_seed(full):
    point_at, folder = full
    wanted = [Configuration(TASK, name, r) for name in ("lora", "loca", "loca-v2") for r in (1, 2)]
    rows = compute(forecast(point_at(1e-3), 1, wanted), folder)["rows"]
    of = {(row["method"], row["r"]): row for row in rows}
    assert set(of) == {(one.method, one.r) for one in wanted}
    with opened(point_at(1e-3).parameters, folder) as (prepared, splits, device):
        group = Group(dict(point_at(1e-3).parameters), prepared, splits, device)
        group.train()
        increments = [one.double().numpy() for one in group.runs[1].increments().values()]
    total = sum((w**2).sum() for w in increments)
    for r in (1, 2):
        # Runs that are trained together differ from a run alone by rounding.
        low_rank = sum((np.linalg.svd(w, compute_uv=False)[:r] ** 2).sum() for w in increments)
        assert of["lora", r]["retained_energy"] == pytest.approx(low_rank / total, rel=1e-3)
        cosines = [np.sort(dctn(w, norm="ortho") ** 2, axis=None)[-sum(w.shape) * r :].sum()
                   for w in increments]  # fmt: skip
        assert of["loca", r]["retained_energy"] == pytest.approx(sum(cosines) / total, rel=1e-3)
        early = {"loss_10", "loss_25"}
        numbers = {key: of["loca", r][key] for key in set(TITLES) - early}
        assert numbers == {key: of["loca-v2", r][key] for key in numbers}
        assert all(value > 0 for value in numbers.values())
        # Four layers of 128 r components.
        assert numbers.pop("effective_dimension") < 4 * 128 * r
        assert all(value < 1 for value in numbers.values())
    for name in ("weighted_energy", "gradient_energy", "predicted_decrease"):
        assert of["loca", 1][name] < of["loca", 2][name]


def test_a_full_fine_tune_that_diverged_predicts_nothing(full):
    point_at, folder = full
    wanted = [Configuration(TASK, "lora", 1)]
    one = forecast(point_at(1e30), 0, wanted)
    assert compute(one, folder) == {"rows": []}


def table(path, task, methods, r=1, *, rate=0.01, **columns):
    """A table of runs of methods on two seeds; those of ``full`` have no budget."""
    names = ("metric", "loss", "scaling", "alternating", "location_rate", "loss_10", "loss_25")
    rows = [
        {"task": task, "method": method, "title": method, "r": None if method == "full" else r,
         "rate": rate, "seed": seed, "measure": "accuracy", "diverged": False, "trained": 1,
         "stored": 1, **dict.fromkeys(names, len(method) + seed / 10), **columns}
        for method in methods for seed in (0, 1)
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(path)


def read(folder, tasks):
    return usable(read_runs(folder, COLUMNS, tuned=True), tasks)


def test_a_task_needs_full_fine_tunes_and_three_adapters_at_one_budget(tmp_path):
    table(tmp_path / "a.parquet", "a", ("lora", "loca", "dora"))
    table(tmp_path / "b.parquet", "b", ("lora", "loca", "full"))
    table(tmp_path / "b-4.parquet", "b", ("dora", "c3a"), 4)
    rates, runs = read(tmp_path, ["a", "b", "c"])
    assert (rates, len(runs)) == ({}, 0)


def test_refusals_are_one_line_that_names_the_commands_that_make_tables(tmp_path):
    def error(*more):
        result = CliRunner().invoke(main, ["--out", str(tmp_path), *more])
        assert (result.exit_code, result.output.count("\n")) == (2 if more else 1, 1)
        return result.output

    assert "--task cannot be text: the predictors need layers" in error("--task", "text")
    assert "has no table of runs; make them with python -m" in error()
    table(tmp_path / "comparison-digits.parquet", "digits", ("lora", "loca", "dora"))
    assert "3 adapters at one budget of any small task; make them with python -m" in error()


def test_the_command_runs_its_own_full_fine_tunes_only(session):
    """It needs the tables, but no stored runs."""
    folder = session.folder
    folder.mkdir()
    adapters = ("lora", "loca", "loca-v1", "full")
    table(folder / "comparison-digits.parquet", "digits", adapters, 2, rate=0.003)
    given = ["--quick", "--out", str(session.out), "-j", "1", "--device", "cpu"]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert "what predicts the better adapter: methods at one budget" in lines
    names = {path.name for path in folder.iterdir()}
    assert {"prediction.pdf", "prediction.parquet", "prediction-predictors.parquet"} <= names
    done = [path.name.partition("@")[0] for path in (session.out / "runs").iterdir()]
    assert done == ["prediction"] * 2


def test_rank_correlations_are_spearmans():
    """Also of ties, and 0 of equal values; their means over tasks are those that are stored."""
    x, y = np.random.default_rng(0).integers(5, size=(2, 9)).astype(float)
    assert rank_correlation(x, y) == pytest.approx(spearmanr(x, y).statistic)
    assert rank_correlation(x, np.ones(9)) == 0
