"""The tables of differences by kind on the page on fine-tuning are those of the stored runs."""

import re
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from experiments.finetuning.comparisons.differences import random_choice_of
from experiments.pretrained import analysis
from experiments.pretrained.runs import FIRST, stored

ROOT = Path(__file__).parents[2]
ROWS = {
    "LoCA − V1": "many-loca",
    "LoCA, reselect − V1": "many-reselect",
    "V1 − LoCA, loss": "many-loss",
    "LoCA − LoRA": "many-lora",
    "LoCA − FourierFT": "many-fourierft",
}
ABOUT_IMAGES = ("digits", "turned", "small-digits")


@pytest.fixture(scope="module")
def verdicts():
    table = pd.read_parquet(ROOT / "figures" / "finetuning" / "verdicts.parquet")
    return table.set_index("comparison")


@pytest.fixture(scope="module")
def page():
    return (ROOT / "docs" / "fine-tuning.md").read_text(encoding="utf-8")


def kind_of(task):
    return task.rpartition("-")[0]


def bounds_by_draws(differences, tasks, level):
    """Student's bounds of the mean with the cluster-robust standard error over draws."""
    mean = np.mean(differences)
    sums = pd.Series(differences - mean).groupby(list(map(random_choice_of, tasks))).sum()
    count = len(sums)
    error = np.sqrt(count / (count - 1) * np.square(sums).sum()) / len(tasks)
    width = t.isf(level, count - 1) * error
    return mean - width, mean + width


def numbers(text):
    return [float(number.replace("−", "-")) for number in re.findall(r"−?\d+\.\d+", text)]


@pytest.mark.parametrize(("title", "name"), ROWS.items())
def test_a_row_has_the_stored_differences_and_bounds(page, verdicts, title, name):
    (line,) = re.findall(rf"^\| {re.escape(title)} \|(.*)\|$", page, re.MULTILINE)
    row = verdicts.loc[name]
    tasks, differences = list(row["task_names"]), np.array(row["task_differences"])
    kinds = [
        np.mean([differences[tasks.index(task)] for task in group])
        for _, group in groupby(tasks, kind_of)
    ]
    level = 0.05 / sum(verdicts["family"] == row["family"])
    expected = [
        row["difference"],
        *bounds_by_draws(differences, tasks, level),
        row["kinds_low"],
        row["kinds_high"],
        min(kinds),
        max(kinds),
    ]
    assert numbers(line) == pytest.approx(expected, abs=0.00501)


def test_the_variants_hold_as_many_draws_as_the_page_says(verdicts):
    tasks = list(verdicts.loc["many-loca", "task_names"])
    assert len({(kind_of(task), random_choice_of(task)) for task in tasks}) == 41
    assert len({random_choice_of(task) for task in tasks}) == 25


def test_the_loss_by_images_and_texts_is_the_stored_one(page, verdicts):
    row = verdicts.loc["many-loss"]
    tasks, differences = list(row["task_names"]), np.array(row["task_differences"])
    expected = []
    for images in (True, False):
        chosen = [i for i, task in enumerate(tasks) if (kind_of(task) in ABOUT_IMAGES) == images]
        bounds = bounds_by_draws(differences[chosen], [tasks[i] for i in chosen], 0.05 / 3)
        expected += [differences[chosen].mean(), *bounds]
    (line,) = re.findall(r"shown on images only\*\*: (.*?) on texts", page, re.DOTALL)
    assert numbers(line) == pytest.approx(expected, abs=0.0501)


def test_the_table_of_the_pretrained_model_is_that_of_the_stored_runs(page):
    runs = [
        run for run in stored(ROOT / "figures" / "pretrained").values() if run["setting"] == "main"
    ]
    methods = ["loca", "loca-reselect", "lora", "full", "linear-probing"]
    of_v1 = analysis.gains(runs, ["loca-v1"])["loca-v1"]
    table = analysis.compare(runs, methods).T[methods]
    for kind in FIRST["kinds"]:
        (line,) = re.findall(rf"^\| {kind} \|(.*)\|$", page, re.MULTILINE)
        assert numbers(line) == pytest.approx([of_v1[kind], *table.loc[kind]], abs=0.0501)
    (line,) = re.findall(r"^\| \*\*mean\*\* \|(.*)\|$", page, re.MULTILINE)
    expected = [of_v1.mean(), *table.loc["difference"]]
    assert numbers(line) == pytest.approx(expected, abs=0.0501)
    (line,) = re.findall(r"^\| 95% interval \|(.*)\|$", page, re.MULTILINE)
    expected = [end for method in methods for end in table.loc[["low", "high"], method]]
    assert numbers(line) == pytest.approx(expected, abs=0.0501)
