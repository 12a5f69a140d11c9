"""The experiments' figures draw whatever there is, without a warning, at the values given."""

import math

import numpy as np
import pandas as pd
import pytest

from experiments.figures.comparisons import draw_comparisons
from experiments.figures.low_rank import draw_low_rank
from experiments.figures.patterns import draw_patterns
from experiments.figures.prediction import draw_prediction
from experiments.figures.published import STUDIES, draw_published
from experiments.figures.runs import draw_budgets, draw_sensitivity, draw_training
from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.canvas import BLUE, GREY

METHODS = ("lora", "loca", "some-other")


def drawn(draw, lines):
    """The figure, laid out; what cannot be drawn warns, and warnings are errors."""
    figure = draw(pd.DataFrame(lines))
    figure.draw_without_rendering()
    return figure


def shown(figure):
    return [axis for axis in figure.axes if axis.get_visible()]


def titles(figure):
    return [axis.get_title("left") for axis in shown(figure)]


def run(method, mean=0.7, r=2, spread=0.1, **more):
    low, high = (None, None) if mean is None else (mean - spread, mean + spread)
    return {"task": "digits", "method": method, "title": method.upper(), "r": r, "mean": mean,
            "low": low, "high": high, **more}  # fmt: skip


RUNS = [run(m, 0.6 + r / 20, r=r) for m in METHODS for r in (1, 2, 4)]
FRAME = [run("full", 0.9, r=None), run("linear-probing", 0.4, r=math.nan)]


def test_budgets_are_shown_in_per_cent_at_their_values():
    lines = [run("lora", 0.6, r=1), run("lora", 0.8, r=4), run("loca", 0.7, r=1)]
    figure = drawn(draw_budgets, lines)
    assert figure.get_suptitle() == "LoCA is ahead of LoRA at 1 of 1 budgets of 1 tasks"
    container, _ = figure.axes[0].containers
    assert list(container[0].get_ydata()) == pytest.approx([60, 80])
    first, last = container[0].get_xdata()  # a little beside the budgets, to keep marks apart
    assert (first, last) == (pytest.approx(1, rel=0.03), pytest.approx(4 * first))


def setting(name, value, method="lora", **more):
    more = {"mean": 0.5 + value / 40, "setting": name, "label": name, "value": value, **more}
    return run(method, **more)


SETTINGS = [
    setting(name, value, method)
    for name, values in {"scaling": (0.5, 2), "alternating": (0, 0.2), "rate": (0.01,)}.items()
    for method in METHODS[:2]
    for value in values
]


def test_sensitivity_is_relative_to_the_task_and_has_intervals_over_tasks():
    gains = {"a": 0.02, "b": 0.06}
    lines = [
        setting("scaling", value, task=task, mean=0.5 + sign * gain, high=1.0)
        for task, gain in gains.items()
        for value, sign in ((1, -1), (2, 1))
    ]
    (axis,) = shown(drawn(draw_sensitivity, lines))
    means, _, (bars,) = axis.containers[0]
    assert list(means.get_ydata()) == pytest.approx([-4, 4])
    assert axis.get_title("left") == "best at 2: 8.0 points above 1"
    # Student's interval of two values: t = 12.706, and their standard error is 2.
    assert np.ptp(bars.get_segments()[1][:, 1]) == pytest.approx(2 * 12.706 * 2, rel=1e-4)


def look(method, seed, step, value=0.5):
    return {"task": "digits", "method": method, "title": method.upper(), "seed": seed,
            "step": step, "validation_loss": value}  # fmt: skip


LOOKS = [look(m, s, step, step / 40) for m in METHODS for s in (0, 1) for step in (10, 20)]


def test_training_has_means_standard_errors_and_the_loss_of_guessing():
    lines = [{**look("loca", seed, 10, seed), "task": "vision"} for seed in (0, 2)]
    (axis,) = drawn(draw_training, lines).axes
    assert list(axis.lines[0].get_ydata()) == [1]
    band = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((0, 2))
    (level,) = [one for one in axis.lines if one.get_label() == "guessing"]
    assert level.get_ydata()[0] == pytest.approx(math.log(5))


def test_training_says_what_many_tasks_found():
    few = compared("few", measure="loss")
    many = compared("V1, random locations − LoCA", measure="loss", difference=1.5, **VARIANTS)
    verdicts = pd.DataFrame([few, many, compared("accuracy", **VARIANTS)])
    figure = draw_training(pd.DataFrame(LOOKS), verdicts)
    found = "2 kinds of tasks, 4 variants, %:\nrandom locations (V1) − LoCA is +1.5: better"
    assert figure.get_suptitle() == f"Single tasks. Final loss over {found}"


@pytest.mark.parametrize(("methods", "value"), [(("full",), 0.0), (("full", "strange"), 1e-3)])
def test_patterns(value, methods):
    rows = [[value, -value], [0.0, 2 * value]]
    lines = [
        {"title": method, "layer": layer, "values": values}
        for method in methods
        for layer in ("a.3.query.weight", "a.4.query.weight", "head.weight")
        for values in rows
    ]
    figure = drawn(draw_patterns, lines)
    assert len(figure.axes) == 2 * len(methods)
    for axis in figure.axes:
        np.testing.assert_array_equal(axis.images[0].get_array(), rows)
        assert axis.get_xlabel() == f"{bool(value):.0%}"  # energy of the largest directions
    assert [axis.get_ylabel() for axis in figure.axes if axis.get_ylabel()] == [
        "layer 3\nquery", "head",
    ]  # fmt: skip


def predicted(name, scope="methods at one budget", reach=0.5):
    more = {"predictor": name, "title": name.title(), "scope": scope}
    return [
        {**more, "tasks": part, "correlation": value, "low": value - reach, "high": value + reach}
        for part, value in (("all", 0.25), ("choice", 0.0), ("judgement", 0.125))
    ]


def test_prediction():
    """The correlations over all tasks; those whose intervals are without 0 are coloured."""
    without = "methods at one budget, without LoRA"
    lines = [*predicted("energy", reach=0.2), *predicted("loss", reach=math.inf)]
    lines += [*predicted("energy", without), *predicted("loss", "other")]
    figure = drawn(draw_prediction, lines)
    first, _ = figure.axes
    assert titles(figure) == [
        "All adapters: 1 of 2 differ from 0", "Without LoRA: 0 of 1 differ from 0",
    ]  # fmt: skip
    assert [label.get_text() for label in first.get_yticklabels()] == ["Energy", "Loss"]
    dots = {
        line.get_color(): list(line.get_xdata()) for line in first.lines if line.get_marker() == "o"
    }
    assert dots == {GREY: [0.25], BLUE: [0.25]}


def compared(title, verdict="supported", measure="accuracy", **more):
    return {
        "title": title, "measure": measure, "margin": 0.5,
        "verdict": verdict, "difference": 0.4, "low": 0.1, "high": 0.7,
        "task_differences": [0.2, 0.6], "task_names": ["a", "b"], "tasks": 2,
        "draws_verdict": None, "draws_low": math.nan, "draws_high": math.nan, **more,
    }  # fmt: skip


# Two kinds of tasks with two variants each.
VARIANTS = {
    "tasks": 4, "task_names": ["a-1", "a-2", "b-1", "b-2"],
    "task_differences": [0.1, 0.3, -0.5, 0.1],
}  # fmt: skip
COMPARED = [
    compared("A − B"),
    compared("A − C", "equivalent within a margin", difference=-0.1, low=-0.3, high=0.1),
    compared("loss of A − B", "inconclusive", measure="loss", low=-1.0, margin=5.0),
    compared("A − D", "not supported", tasks=1, low=-2.0, high=-0.3),
]
UNDECIDED = compared("A − E", None, difference=None, low=None, high=None, task_differences=None)


def test_comparisons_of_the_largest_design_have_their_verdicts_beside_them():
    figure = drawn(draw_comparisons, [UNDECIDED, *COMPARED[::-1]])
    title = "The first method is better in 1 of 3 comparisons, over 2 kinds of tasks"
    assert figure.get_suptitle() == title
    labels = [[tick.get_text() for tick in axis.get_yticklabels()] for axis in figure.axes]
    assert labels == [["A − B", "A − C"], ["loss of A − B"]]
    texts = [[text.get_text() for text in axis.texts] for axis in figure.axes]
    assert texts == [
        ["+0.4: better", "−0.1: the same within ±0.5"], ["+0.4: undecided"],
    ]  # fmt: skip
    heights = [text.get_position()[1] for text in figure.axes[0].texts]
    assert heights == [1, 0], "the best verdicts first"
    (axis,) = draw_comparisons(pd.DataFrame([*COMPARED, UNDECIDED]), largest=False).axes
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["A − D"]


def test_bounds_margin_and_tasks_of_a_comparison_are_at_their_values():
    axis = drawn(draw_comparisons, COMPARED[:2]).axes[0]
    tasks, bounds, mean = [one for one in axis.lines if 1 <= one.get_ydata()[0] < 1.5][:3]
    assert [list(one.get_xdata()) for one in (tasks, bounds, mean)] == [
        [0.2, 0.6], [0.1, 0.7], [0.4],
    ]  # fmt: skip
    bar = axis.patches[0]
    assert (bar.get_x(), bar.get_width()) == (-0.5, 1.0)
    assert set(tasks.get_ydata()).isdisjoint(bounds.get_ydata()), "a few tasks are not hidden"


def test_variants_are_drawn_by_kind_with_the_bounds_by_draws():
    by_draws = {"draws_verdict": "not supported", "draws_low": -0.2, "draws_high": 1.0}
    line = compared("A, q − V5, b w", **VARIANTS, **by_draws)
    figure = drawn(draw_comparisons, [*COMPARED, line])
    (axis,) = figure.axes
    assert [text.get_text() for text in axis.texts] == ["+0.4: not better by 0.5"]
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["A, q − b w (V5)"]
    assert figure.get_suptitle().endswith("over 2 kinds of tasks, 4 variants")
    kinds, bounds = axis.lines[:2]
    assert [list(one.get_xdata()) for one in (kinds, bounds)] == [
        pytest.approx([0.2, -0.2]), [-0.2, 1.0],
    ]  # fmt: skip


def test_published_has_the_means_and_who_retains_most_in_how_many():
    def table(study, retained):
        """Three matrices at the rank and accounting that are drawn, and others that are not."""
        return pd.DataFrame(
            {"study": study, "pair": "", "name": f"layer {i}", "r": r, "accounting": accounting,
             "method": method, "retained": value if (r, accounting) == (4, "paper") else 0.9}
            for i in range(3)
            for r in (2, 4)
            for accounting in ("paper", "bits")
            for method, value in {**retained, "F2": 0.95}.items()
        )  # fmt: skip

    (axis,) = draw_published(
        table("ani", {"R": 0.2, "D": 0.25, "S": 0.3}), table("sre", {"R": 0.5, "D": 0.1, "S": 0.2})
    ).axes
    dots = [(line.get_ydata()[0], line.get_xdata()[0]) for line in axis.lines
            if line.get_marker() == "o" and len(line.get_xdata())]  # fmt: skip
    values = [value for row, value in sorted(dots)]
    assert values == pytest.approx([0.2, 0.25, 0.3, 0.5, 0.1, 0.2])
    labels = [text.get_text() for text in axis.get_yticklabels()]
    assert labels == [STUDIES["ani"], STUDIES["sre"]]
    counts = [text.get_text() for text in axis.texts]
    assert counts == ["0", "0", "3", "of 3", "3", "0", "0", "of 3", "retains most in"]


RANKS = (1, 2, 4, 8, 16)
ENERGIES = {"SGD": 0.8, "Adam": 0.5, "AdamW": 0.4}
VALUES = {
    "optimizer": [(None, None)],
    "kind": [("query", None), ("MLP in", None)],
    "rate": [("0.1", 0.1), ("1", 1.0)],
    "steps": [("50", 50), ("200", 200)],
    "batch": [("8", 8), ("32", 32)],
    "examples": [("50", 50), ("all", 750)],
}


def retained(optimizer, factor, value, r):
    return ENERGIES[optimizer] + 0.01 * r - (0.1 if (factor, value) == ("steps", 200) else 0)


def spectra(task="digits", factors=tuple(VALUES), k=64):
    """Rows of the figure of low rank."""
    return [
        {"task": task, "factor": factor, "label": label or optimizer, "value": value,
         "optimizer": optimizer, "K": k, "r": r, "retained": energy, "low": energy - 0.02,
         "high": energy + 0.02, "independent": 0.05 + 0.02 * r, "threshold": 0.1 + 0.03 * r,
         "accuracy": 0.5 + energy / 10}
        for factor in factors
        for label, value in VALUES[factor]
        for optimizer in ENERGIES
        for r in RANKS
        for energy in [retained(optimizer, factor, value, r)]
    ]  # fmt: skip


def points(axis, optimizer):
    """The energies of an optimiser, by the label of the row."""
    labels = [label.get_text() for label in axis.figure.axes[0].get_yticklabels()]
    line = next(one for one in axis.lines if one.get_label() == optimizer)
    return {labels[int(y)]: x for x, y in zip(*line.get_data(), strict=True)}


def test_low_rank_is_at_an_eighth_beside_its_references():
    figure = drawn(draw_low_rank, spectra())
    (axis,) = figure.axes
    found = points(axis, "AdamW")
    assert found["learning rate × 1"] == pytest.approx(retained("AdamW", "rate", 1.0, 8))
    assert found["200 steps"] == pytest.approx(retained("AdamW", "steps", 200, 8))
    independent, cosines = [one for one in axis.lines if one.get_marker() == "|"]
    assert set(independent.get_xdata()) == {0.05 + 0.02 * 8}
    assert list(set(cosines.get_xdata())) == [pytest.approx(0.1 + 0.03 * 8)]
    # AdamW alone comes near: 0.48 at 8, and 0.38 at 200 steps, beside 0.34.
    assert figure.get_suptitle().endswith("in 33 of 33 cases")
    lines = [{**one, "threshold": 0.5} for one in spectra()]
    assert drawn(draw_low_rank, lines).get_suptitle().endswith("in 21 of 33 cases")


# Tables of single methods, tasks, seeds and settings, and with runs that diverged.
WHATEVER = [
    (draw_budgets, RUNS + FRAME),
    (draw_budgets, RUNS[:1]),
    (draw_budgets, [run("lora", spread=math.inf), run("lora", task="text"), run("vera", None)]),
    (draw_budgets, [run("lora", None), run("lora", task="text")]),
    (draw_sensitivity, SETTINGS),
    (draw_sensitivity, [SETTINGS[0], setting("rate", 0.1, mean=None)]),
    (draw_training, [*LOOKS, look("loca", 2, 10, None)]),
    (draw_training, [look("loca", 0, 10, None), look("loca", 0, 20)]),
    (draw_training, [look("loca", 0, 10, None)]),
    (draw_low_rank, [{**one, "low": -np.inf, "high": np.inf} for one in spectra()]),
    (draw_low_rank, [one for one in spectra() if one["optimizer"] == "SGD"]),
    (draw_low_rank, [*spectra(), {**spectra()[-1], "value": None, "retained": None}]),
]


@pytest.mark.parametrize(("draw", "lines"), WHATEVER)
def test_whatever_there_is_is_drawn(draw, lines):
    known = [one for one in lines if one.get("mean", one.get("retained", 0)) is not None]
    panels = {one["setting" if draw is draw_sensitivity else "task"] for one in known}
    assert len(shown(drawn(draw, lines))) == len(panels)


DIVERGED = "every run diverged"
NOTHING = [
    (draw_budgets, [run("lora", None)], DIVERGED),
    (draw_sensitivity, [setting("rate", 0.1, mean=None)], DIVERGED),
    (draw_training, [], DIVERGED),
    (draw_patterns, [], DIVERGED),
    (draw_low_rank, [{**one, "retained": None} for one in spectra()], DIVERGED),
    (draw_comparisons, [UNDECIDED], "no comparison has a verdict yet"),
    (draw_prediction, predicted("energy", "other"), "no correlations of methods at one"),
]


@pytest.mark.parametrize(("draw", "lines", "message"), NOTHING)
def test_nothing_to_draw(draw, lines, message):
    with pytest.raises(InvalidArgumentError, match=message):
        draw(pd.DataFrame(lines))
