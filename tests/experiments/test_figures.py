"""The experiments' figures are those that are stored, and draw whatever there is."""

import math
import re
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.image import imread
from scipy.stats import sem, t

from experiments.figures.catalogue import FIGURES
from experiments.figures.comparisons import draw_comparisons
from experiments.figures.learned_increments import draw_learned_increments
from experiments.figures.low_rank import draw_low_rank
from experiments.figures.prediction import draw_prediction
from experiments.figures.runs import draw_budgets, draw_sensitivity, draw_training
from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting import figure
from loca_theory.plotting.looks import LOOKS

ROOT = Path(__file__).parents[2]
STORED = ROOT / "figures"
LABELS = [figure.label for figure in FIGURES]
TRIED = re.search(r"^matplotlib==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]


@pytest.mark.skipif(matplotlib.__version__ != TRIED, reason="others may place a text otherwise")
@pytest.mark.parametrize("label", LABELS)
def test_the_stored_pictures_are_what_the_code_draws_of_the_stored_tables(label, tmp_path):
    figure(label, STORED, tmp_path)
    drawn_image, expected = (
        imread(path) for folder in (tmp_path, STORED) for path in folder.rglob(f"{label}.png")
    )
    assert drawn_image.shape == expected.shape
    # Another processor may round the edge of a line otherwise.
    assert (np.abs(drawn_image - expected).max(axis=-1) > 0.1).sum() <= 10


def stored(name):
    return pd.read_parquet(STORED / "finetuning" / f"{name}.parquet")


def drawn(draw, *tables):
    """The figure, laid out; what cannot be drawn warns, and warnings are errors."""
    figure = draw(*tables)
    figure.draw_without_rendering()
    return figure


def shown(figure):
    return [axis for axis in figure.axes if axis.get_visible()]


def bar_ends(container):
    return [segment[:, 1] for segment in container[2][0].get_segments()]


def test_sensitivity_is_relative_to_the_task_and_has_intervals_over_tasks():
    table = stored("sensitivity-summary")
    axis = shown(drawn(draw_sensitivity, table))[0]
    scores = table[table["setting"] == "scaling"]
    scores = scores.pivot_table(index="task", columns="value", values="mean")
    relative = 100 * scores.sub(scores.mean(axis=1), axis=0)
    (container,) = axis.containers
    assert list(container[0].get_ydata()) == pytest.approx(list(relative.mean()))
    half = t.ppf(0.975, 5) * sem(relative.iloc[:, 0])
    assert np.ptp(bar_ends(container)[0]) == pytest.approx(2 * half)
    means = scores.mean()
    best, worst = means.idxmax(), means.idxmin()
    points = 100 * (means[best] - means[worst])
    assert axis.get_title("left") == f"best at {best:g}: {points:.1f} points above {worst:g}"


def test_a_setting_with_two_values_has_no_panel():
    table = stored("sensitivity-summary")
    values = table.groupby("setting")["value"].nunique()
    assert (values == 2).any()
    assert len(shown(drawn(draw_sensitivity, table))) == (values > 2).sum()


def test_a_method_has_one_colour_in_all_pictures():
    legend = figure("published", STORED).legends[0]
    labels = [text.get_text() for text in legend.get_texts()]
    colors = {
        label: to_hex(patch.get_facecolor())
        for label, patch in zip(labels, legend.get_patches(), strict=True)
    }
    assert colors == {name: to_hex(LOOKS[name].color) for name in ("LoRA", "LoCA", "entries")}


def test_margins_end_inside_the_axis_of_a_comparison():
    for axis in drawn(draw_comparisons, stored("verdicts")).axes:
        low, high = axis.get_xlim()
        for bar in axis.patches:
            assert low < bar.get_x() < bar.get_x() + bar.get_width() < high


def test_every_colour_of_the_first_steps_is_in_the_legend_below_a_title_at_the_left():
    picture = figure("first_steps", STORED)
    axis = picture.axes[0]
    named = {line.get_color() for line in axis.lines if not line.get_label().startswith("_")}
    assert named == {line.get_color() for line in axis.lines}
    assert picture._suptitle.get_ha() == "left"


def test_clusters_and_axes_of_what_comes_back_have_labels():
    axes = figure("unmerged", STORED).axes
    assert all(axis.get_ylabel() for axis in axes)
    assert [text.get_text() for text in axes[0].texts] == [f"rank {r}" for r in (4, 8, 16, 32)]


TITLES = {
    "phase": "At 5% of the coefficients LoRA retains more from 28% of the energy",
    "analysis_1": "Total variation (TV) of the entries from a normal law: at most 0.0213",
    "rounding_low_rank": "Of a change of 0.05 rounding steps, LoRA misses 75%, LoRA inside the c",
    "prediction": "Predictive without LoRA: low training loss, steps 16 to 25; accuracy of ot",
    "published": "LoRA or entries retains most of ΔW in the most matrices of a study: LoRA in 7",
    "unmerged": "In 127 of 144 layers the merged LoRA comes back with its rank",
}


@pytest.mark.parametrize("label", TITLES)
def test_a_title_is_the_message_of_the_stored_table(label):
    assert figure(label, STORED).get_suptitle().startswith(TITLES[label])


def test_the_title_of_the_losses_is_of_what_is_drawn_and_the_caption_of_all_tasks():
    picture = draw_training(stored("training_process"), stored("verdicts"))
    assert "vision: from LoCA 0.60 to random locations (V1) 0.74" in picture.get_suptitle()
    said = r"the final losses \(per cent, .* − LoCA\) differ by [+−]\d"
    assert re.search(said, picture.caption)


def test_low_rank_lies_to_the_right_of_the_cosines_in_as_many_cases_as_the_title_says():
    picture = drawn(draw_low_rank, stored("low_rank"))
    above = cases = 0
    for axis in picture.axes:
        marks = {line.get_label(): line for line in axis.lines}
        heights, cosines = (list(marks["ΔW, best cosines"].get_data()[i]) for i in (1, 0))
        low_rank = [line for label, line in marks.items() if label.startswith("ΔW, rank K/8, ")]
        cases += sum(len(line.get_xdata()) for line in low_rank)
        for line in low_rank:
            for x, y in zip(*line.get_data(), strict=True):
                beside = [c for c, height in zip(cosines, heights, strict=True) if height == y]
                above += x > max(beside)
    assert picture.get_suptitle().endswith(f"in {above} of {cases} cases")


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
    (draw_learned_increments, pd.DataFrame(), DIVERGED),
    (draw_comparisons, some("verdicts", verdict=None, draws_verdict=None), "no comparison has"),
    (draw_prediction, some("prediction", scope="other"), "no correlations of methods at one"),
]


@pytest.mark.parametrize(("draw", "table", "message"), NOTHING)
def test_nothing_to_draw(draw, table, message):
    with pytest.raises(InvalidArgumentError, match=message):
        draw(table)
