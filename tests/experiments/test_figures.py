"""The experiments' figures have the values of the stored tables, and draw whatever there is."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import sem, t

from experiments.figures.comparisons import draw_comparisons
from experiments.figures.low_rank import draw_low_rank
from experiments.figures.patterns import draw_patterns
from experiments.figures.prediction import draw_prediction
from experiments.figures.published import STUDIES, draw_published
from experiments.figures.runs import draw_budgets, draw_sensitivity, draw_training
from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.canvas import BLUE

FIGURES = Path(__file__).parents[2] / "figures"


def stored(name, folder="finetuning"):
    return pd.read_parquet(FIGURES / folder / f"{name}.parquet")


def drawn(draw, *tables):
    """The figure, laid out; what cannot be drawn warns, and warnings are errors."""
    figure = draw(*tables)
    figure.draw_without_rendering()
    return figure


def shown(figure):
    return [axis for axis in figure.axes if axis.get_visible()]


def bar_ends(container):
    return [segment[:, 1] for segment in container[2][0].get_segments()]


def test_budgets_are_shown_in_per_cent_at_their_values():
    table = stored("budgets-summary")
    figure = drawn(draw_budgets, table)
    means = table.pivot_table(index=["task", "r"], columns="method", values="mean")
    ahead = (means["loca"] > means["lora"]).sum()
    title = f"LoCA is ahead of LoRA at {ahead} of {len(means)} budgets of 6 tasks"
    assert figure.get_suptitle() == title
    first = table[(table["task"] == "digits") & (table["method"] == "lora")]
    container = figure.axes[0].containers[0]
    assert list(container[0].get_ydata()) == pytest.approx(list(100 * first["mean"]))
    assert bar_ends(container)[0] == pytest.approx(100 * first[["low", "high"]].to_numpy()[0])
    shifts = container[0].get_xdata() / first["r"].to_numpy()  # which keep marks apart
    assert shifts == pytest.approx(shifts[0])
    assert shifts[0] == pytest.approx(1, rel=0.06)


def test_sensitivity_is_relative_to_the_task_and_has_intervals_over_tasks():
    table = stored("sensitivity-summary")
    axis = shown(drawn(draw_sensitivity, table))[0]
    mine = table[table["setting"] == "scaling"]
    mine = mine.pivot_table(index="task", columns="value", values="mean")
    relative = 100 * mine.sub(mine.mean(axis=1), axis=0)
    (container,) = axis.containers
    assert list(container[0].get_ydata()) == pytest.approx(list(relative.mean()))
    half = t.ppf(0.975, 5) * sem(relative.iloc[:, 0])
    assert np.ptp(bar_ends(container)[0]) == pytest.approx(2 * half)
    means = mine.mean()
    best, worst = means.idxmax(), means.idxmin()
    points = 100 * (means[best] - means[worst])
    assert axis.get_title("left") == f"best at {best:g}: {points:.1f} points above {worst:g}"


def test_training_has_means_standard_errors_and_the_loss_of_guessing():
    table, verdicts = stored("training_process"), stored("verdicts")
    figure = drawn(draw_training, table, verdicts)
    axis = figure.axes[0]
    mine = table[(table["task"] == "vision") & (table["method"] == "loca-v1")]
    losses = mine.pivot_table(index="seed", columns="step", values="validation_loss")
    assert list(axis.lines[0].get_ydata()) == pytest.approx(list(losses.mean()))
    band = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx((losses.mean() + losses.sem()).max())
    (level,) = [one for one in axis.lines if one.get_label() == "guessing"]
    assert level.get_ydata()[0] == pytest.approx(math.log(5))
    found = verdicts.set_index("comparison").loc["many-loss", "difference"]
    assert figure.get_suptitle() == (
        "Single tasks. Final loss over 6 kinds of tasks, 48 variants, %:\n"
        f"random locations (V1) − LoCA is {found:+.1f}: the same within ±5"
    )


def test_patterns_have_the_energy_of_their_largest_directions():
    table = stored("visualization_W")
    figure = drawn(draw_patterns, table)
    assert len(figure.axes) == 2 * 5
    for axis, (_, rows) in zip(figure.axes, table.groupby("title", sort=False), strict=False):
        picture = np.array(rows[rows["layer"] == table["layer"][0]]["values"].tolist())
        np.testing.assert_array_equal(axis.images[0].get_array(), picture)
        energies = np.linalg.svd(picture, compute_uv=False) ** 2
        assert axis.get_xlabel() == f"{energies[:4].sum() / energies.sum():.0%}"
    labels = [axis.get_ylabel() for axis in figure.axes if axis.get_ylabel()]
    assert labels == ["layer 0\nquery", "layer 5\nvalue"]
    blank = table.assign(values=[0.0 * one for one in table["values"]])
    assert drawn(draw_patterns, blank).axes[0].get_xlabel() == "0%"


def test_predictors_whose_intervals_are_without_0_are_coloured():
    table = stored("prediction")
    table.loc[0, ["low", "high"]] = -math.inf, math.inf
    figure = drawn(draw_prediction, table)
    scopes = {"All adapters": "methods at one budget",
              "Without LoRA": "methods at one budget, without LoRA"}  # fmt: skip
    for axis, (title, scope) in zip(figure.axes, scopes.items(), strict=True):
        rows = table[(table["scope"] == scope) & (table["tasks"] == "all")]
        differs = rows[rows["low"] * rows["high"] > 0]
        said = f"{title}: {len(differs)} of {len(rows)} differ from 0"
        assert axis.get_title("left") == said
        (dots,) = [one for one in axis.lines
                   if one.get_marker() == "o" and one.get_color() == BLUE]  # fmt: skip
        assert list(dots.get_xdata()) == list(differs["correlation"])


def test_comparisons_have_the_verdicts_and_bounds_by_draws_beside_them():
    table = stored("verdicts")
    figure = drawn(draw_comparisons, table)
    found = "1 of 5 comparisons, over 6 kinds of tasks, 48 variants"
    assert figure.get_suptitle() == f"The first method is better in {found}"
    axis, other = figure.axes
    rows = table.set_index("title")
    titles = [tick.get_text() for tick in axis.get_yticklabels()]
    # The best verdicts first.
    assert titles == ["LoCA − LoRA", "LoCA − random locations (V1)",
                      "LoCA, reselect − random locations (V1)", "LoCA − FourierFT"]  # fmt: skip
    assert other.get_yticklabels()[0].get_text() == "random locations (V1) − LoCA"
    row = rows[rows["tasks"] == 48].loc["LoCA − LoRA"]
    assert axis.texts[0].get_text() == f"{row['difference']:+.1f}: better"
    kinds, bounds, mean = axis.lines[:3]
    differences = np.reshape(row["task_differences"], (6, 8)).mean(1)
    assert sorted(kinds.get_xdata()) == pytest.approx(sorted(differences))
    assert list(bounds.get_xdata()) == [row["draws_low"], row["draws_high"]]
    assert list(mean.get_xdata()) == [row["difference"]]
    assert (axis.patches[0].get_x(), axis.patches[0].get_width()) == (-0.5, 1.0)
    assert set(kinds.get_ydata()).isdisjoint(bounds.get_ydata()), "a few tasks are not hidden"
    axis, _ = draw_comparisons(table, largest=False).axes
    assert len(axis.get_yticklabels()) == 40 - 5 - 2 - 1


def test_published_has_the_means_and_who_retains_most_in_how_many():
    tables = [stored(f"{study}-retained", "published") for study in ("ani", "sre")]
    (axis,) = drawn(draw_published, *tables).axes
    labels = [text.get_text() for text in axis.get_yticklabels()]
    assert labels == [STUDIES["ani"], STUDIES["sre"]]
    texts = [text.get_text() for text in axis.texts]
    dots = [line.get_xdata()[0] for line in axis.lines
            if line.get_marker() == "o" and len(line.get_xdata())]  # fmt: skip
    for number, table in enumerate(tables):
        table = table[(table["r"] == 4) & (table["accounting"] == "paper")]
        wide = table.pivot_table(index=["pair", "name"], columns="method", values="retained")
        wide = wide[["R", "D", "S"]]
        assert dots[3 * number :][:3] == pytest.approx(list(wide.mean()))
        counts = [f"{(wide.idxmax(axis=1) == one).sum()}" for one in wide]
        assert texts[4 * number :][:4] == [*counts, f"of {len(wide)}"]


def test_low_rank_is_at_an_eighth_beside_its_references():
    table = stored("low_rank")
    axis = drawn(draw_low_rank, table).axes[0]
    mine = table[(table["task"] == "digits") & (table["r"] == table["K"] / 8)]
    labels = [label.get_text() for label in axis.get_yticklabels()]
    line = next(one for one in axis.lines if one.get_label() == "AdamW")
    found = {labels[int(y)]: x for x, y in zip(*line.get_data(), strict=True)}
    for factor, label, title in (("rate", "1", "learning rate × 1"), ("steps", "200", "200 steps")):
        is_one = (mine["factor"] == factor) & (mine["label"] == label)
        (row,) = mine[is_one & (mine["optimizer"] == "AdamW")].to_dict("records")
        assert found[title] == row["retained"]
    independent, cosines = [one for one in axis.lines if one.get_marker() == "|"]
    assert set(independent.get_xdata()) == {*mine["independent"]}
    assert set(cosines.get_xdata()) == {*mine["threshold"]}
    always = drawn(draw_low_rank, table.assign(threshold=0.0)).get_suptitle()
    count = int(always.split()[-2])
    assert always.endswith(f"in {count} of {count} cases")


def some(name, count=None, **changed):
    return stored(name).head(count).assign(**changed)


EMPTY = {"mean": None, "low": None, "high": None}
# Tables of single methods, tasks, seeds and settings, without a budget, and of runs that diverged.
WHATEVER = [
    (draw_budgets, some("budgets-summary", 14, r=None)),
    (draw_budgets, pd.concat([some("budgets-summary", 9, **EMPTY), stored("budgets-summary")])),
    (draw_sensitivity, some("sensitivity-summary", 6, high=math.inf)),
    (draw_training, some("training_process", 1, validation_loss=None)),
    (draw_low_rank, some("low_rank", low=-math.inf, high=math.inf)),
]


@pytest.mark.parametrize(("draw", "table"), WHATEVER)
def test_whatever_there_is_is_drawn(draw, table):
    panels = table["setting" if draw is draw_sensitivity else "task"].nunique()
    assert len(shown(drawn(draw, table))) == panels


DIVERGED = "every run diverged"
NOTHING = [
    (draw_budgets, some("budgets-summary", **EMPTY), DIVERGED),
    (draw_sensitivity, some("sensitivity-summary", **EMPTY), DIVERGED),
    (draw_low_rank, some("low_rank", retained=None), DIVERGED),
    (draw_training, pd.DataFrame(), DIVERGED),
    (draw_patterns, pd.DataFrame(), DIVERGED),
    (draw_comparisons, some("verdicts", verdict=None, draws_verdict=None), "no comparison has"),
    (draw_prediction, some("prediction", scope="other"), "no correlations of methods at one"),
]


@pytest.mark.parametrize(("draw", "table", "message"), NOTHING)
def test_nothing_to_draw(draw, table, message):
    with pytest.raises(InvalidArgumentError, match=message):
        draw(table)
