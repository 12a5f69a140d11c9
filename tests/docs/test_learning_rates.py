"""Numbers of the page on learning rates are those of the stored tables."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.peft_benchmark import analysis, page, predicted, runs
from experiments.peft_benchmark.__main__ import STORED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "learning-rates.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())


@pytest.fixture(scope="module")
def published():
    return runs.stored_runs(STORED)


@pytest.fixture(scope="module")
def table(published):
    return analysis.joined(published, runs.stored_steps(STORED))


@pytest.fixture(scope="module")
def tables():
    return page.stored(STORED)


def test_the_tables_are_those_that_the_command_stores(tables):
    printed = page.printed(tables).split("\n\n")
    assert len(printed) == 3
    for markdown in printed:
        assert markdown in PAGE


def test_the_stored_tables_are_those_of_the_stored_runs(table, tables):
    """All but the intervals, which take a minute."""
    fitted = table[table["is_fitted"]]
    for _, row in tables["correlations"].iterrows():
        columns = [next(key for key, name in analysis.TITLES.items() if name == row["predictor"])]
        of_task = fitted[fitted["task"] == row["task"]]
        if row["runs"] != "all":
            of_task = of_task[of_task["trained"] > 4e6]
        ranks = of_task[[*columns, row["outcome"]]].dropna().rank()
        assert row["n"] == len(ranks)
        assert row["spearman"] == pytest.approx(ranks.corr().iloc[0, 1])
    models = tables["models"]
    for (task, outcome), stored in models.groupby(["task", "outcome"], sort=False):
        computed = analysis.models(table, task, outcome)
        pd.testing.assert_frame_equal(
            stored[computed.columns].reset_index(drop=True), computed, check_dtype=False
        )
    computed = analysis.predictions(table, predicted.candidates())
    stored = tables["predictions"][list(computed.columns)]
    pd.testing.assert_frame_equal(stored, computed, check_dtype=False)
    stored = pd.read_parquet(STORED / f"{page.FITTED}.parquet")
    columns = ["experiment", "trained", "frobenius", "train_loss"]
    pd.testing.assert_frame_equal(stored[columns], fitted[columns].reset_index(drop=True))


def test_no_hypothesis_holds(table, tables):
    assert not tables["hypotheses"]["holds"].any()
    pd.testing.assert_frame_equal(
        tables["hypotheses"], analysis.hypotheses(table), check_dtype=False
    )
    assert "None of three hypotheses, fixed before, holds" in WORDS


def test_that_one_predictor_is_better_than_the_other_is_not_shown(table, tables):
    rows = tables["differences"]
    rows = rows[rows["predictor"] == "first step, Frobenius norm"].set_index("task")
    assert ((rows["low"] < 0) & (rows["high"] > 0)).all()
    for task, row in rows.iterrows():
        ranks = table[table["is_fitted"] & (table["task"] == task)]
        ranks = ranks[["frobenius", "trained", "train_loss"]].rank().corr()["train_loss"]
        assert row["difference"] == pytest.approx(ranks["frobenius"] - ranks["trained"])
        assert abs(ranks["trained"]) > abs(ranks["frobenius"])
    assert "the difference between the two correlations is not shown" in WORDS


def test_sentences_are_those_of_the_runs(published, table, tables):
    fitted = table[table["is_fitted"]]
    counts = fitted["task"].value_counts()
    text, images = counts["MetaMathQA"], counts["image-gen"]
    lora = published[(published["peft_type"] == "LORA") & (published["task"] == "MetaMathQA")]
    assert (len(lora), set(lora["lr"])) == (8, {1e-4})
    predictions = tables["predictions"]
    half = (predictions["high"] - predictions["low"]) / 2
    assert np.ptp(half) < 1e-9
    losses = fitted.loc[fitted["task"] == "MetaMathQA", "train_loss"]
    several = fitted[fitted["task"] == "MetaMathQA"].groupby("peft_type")["lr"].nunique()
    correlations = tables["correlations"].query("runs != 'all' and outcome == 'train_loss'")
    correlations = correlations.set_index(["predictor", "task"])
    large = correlations.loc[["trained numbers", "first step, Frobenius norm"]]
    assert ((large["low"] < 0) & (large["high"] > 0)).all()
    numbers, images_numbers, step, images_step = (
        f"{value:.2f}".replace("-", "−") for value in large["spearman"]
    )
    for sentence in (
        f"{len(fitted)} of {len(published)} runs are fitted, {text} of text and {images} of images",
        "All eight LoRA runs on text have one rate, 1e-4",
        f"{(several > 1).sum()} of {len(several)} types have several rates",
        (
            f"correlations are {numbers} and {images_numbers} for the numbers, {step} and "
            f"{images_step} for the step (text, images), and each interval contains 0"
        ),
        f"half of one is {half.iloc[0]:.2f}",
        f"a standard deviation of {losses.std():.2f}",
        f"Predictions of {predictions['date'].iloc[0]}",
    ):
        assert sentence in WORDS, sentence
    assert len(predictions) == 8
