"""The tables of the page on learning rates: computed, stored, and printed if the page has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.peft_benchmark import analysis, predicted
from experiments.peft_benchmark.runs import DESIGN
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.tables import StoredTable, store_rows, store_tables

NAME, FITTED = "learning-rates", "fitted-runs"
_TABLES = ("correlations", "differences", "models", "hypotheses", "predictions")
_TASKS = {"MetaMathQA": "text", "image-gen": "images"}
_STEP = "first step, Frobenius norm"
_ASKED = ("trained numbers", _STEP, "learning rate × scaling")
_HYPOTHESES = {
    "step": "the longer the first step, the lower the loss: Spearman's correlation",
    "beyond": "beside the trained numbers, the predicted decrease lowers the error by 5%: fraction",
    "transfer": "the text runs' model orders the losses better than the numbers do: difference",
}
_COLUMNS = ["task", "experiment", "peft_type", *analysis.TITLES, "train_loss", "accuracy", "dino"]


def compute(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Compute all tables of the page from the runs with their first steps."""
    tasks = DESIGN["tasks"]
    pairs = [(task, outcome) for task in tasks for outcome in tasks[task]["outcomes"]]
    correlations = [analysis.correlations(table, task).assign(task=task) for task in tasks]
    differences = [analysis.differences(table, task).assign(task=task) for task in tasks]
    models = [
        analysis.models(table, task, outcome).assign(task=task, outcome=outcome)
        for task, outcome in pairs
    ]
    predictions = analysis.predictions(table, predicted.candidates())
    return {
        "correlations": pd.concat(correlations, ignore_index=True),
        "differences": pd.concat(differences, ignore_index=True),
        "models": pd.concat(models, ignore_index=True),
        "hypotheses": analysis.hypotheses(table),
        "predictions": predictions.assign(date=str(DESIGN["predictions"]["date"])),
    }


def store(table: pd.DataFrame, tables: Mapping[str, pd.DataFrame], folder: Path) -> None:
    """Store the runs that were fitted and the tables of the page."""
    about = manifest(grid={"draws": analysis.DRAWS}, seed=0)
    fitted = table.loc[table["is_fitted"], _COLUMNS]
    store_rows(fitted.reset_index(drop=True), about, folder, FITTED)
    store_tables(dict(tables), about, folder, NAME)


def stored(folder: Path) -> dict[str, pd.DataFrame]:
    """The tables of the page, as they are stored."""
    path = folder / f"{NAME}.parquet"
    return {name: StoredTable(path, name).read() for name in _TABLES}


def printed(tables: Mapping[str, pd.DataFrame]) -> str:
    """The tables that the page shows in Markdown, with an empty line between two of them."""
    parts = (
        _answer(tables["correlations"], tables["differences"], tables["models"]),
        _hypotheses(tables["hypotheses"]),
        _predictions(tables["predictions"]),
    )
    return "\n\n".join(parts)


def _markdown(header: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *(["---:"] * (len(header) - 1))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")


def _with_interval(row: Any, name: str = "spearman") -> str:
    return f"{_signed(row[name])} ({_signed(row['low'])} to {_signed(row['high'])})"


def _answer(correlations: pd.DataFrame, differences: pd.DataFrame, models: pd.DataFrame) -> str:
    """What orders the losses, and how much a model gains by the first step."""
    header, columns = ["final training loss and …"], []
    for task, title in _TASKS.items():
        is_all = (correlations["task"] == task) & (correlations["runs"] == "all")
        by_loss = correlations[is_all & (correlations["outcome"] == "train_loss")]
        by_loss = by_loss.set_index("predictor")
        header.append(f"{title}, {by_loss['n'].max()} runs")
        is_loss = (models["task"] == task) & (models["outcome"] == "train_loss")
        errors = models[is_loss].set_index("model")["error, type left out"]
        change = f"{errors['numbers']:.3f} → {errors['numbers and first step']:.3f}"
        cells = [_with_interval(by_loss.loc[title]) for title in _ASKED]
        of_task = differences[differences["task"] == task].set_index("predictor")
        cells.append(_with_interval(of_task.loc[_STEP], "difference"))
        columns.append([*cells, change])
    titles = [f"{title}: rank correlation" for title in _ASKED]
    titles.append("correlation of the first step minus that of the trained numbers")
    titles.append("error of a model by the numbers → with the first step")
    return _markdown(header, [list(cells) for cells in zip(titles, *columns, strict=True)])


def _hypotheses(table: pd.DataFrame) -> str:
    """The hypotheses that were fixed before, and whether they hold."""
    rows = []
    for _, row in table.iterrows():
        beside = str(row["beside"]).replace("-", "−")
        outcome = "holds" if row["holds"] else "does not hold"
        title = _HYPOTHESES[str(row["hypothesis"])]
        rows.append([title, _signed(row["value"]), beside, outcome])
    return _markdown(["on image generation", "value", "p, errors or interval", "outcome"], rows)


def _predictions(table: pd.DataFrame) -> str:
    """Runs that nobody has published, and the losses that the model of the text runs gives them."""
    header = ["adapter", "rate", "trained numbers", "first step", "loss", "90% interval"]
    rows = []
    for _, row in table.iterrows():
        sizes = [f"{row['lr']:g}", f"{row['trained']:,.0f}", f"{row['frobenius']:.2g}"]
        loss = [f"{row['train_loss']:.2f}", f"{row['low']:.2f} to {row['high']:.2f}"]
        rows.append([row["adapter"], *sizes, *loss])
    return _markdown(header, rows)
