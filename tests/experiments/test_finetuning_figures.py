"""The figures draw whatever there is, without a warning."""

import math

import numpy as np
import pytest

from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.finetuning import draw_budgets, draw_sensitivity, draw_training
from loca_theory.plotting.patterns import draw_patterns
from loca_theory.plotting.prediction import draw_prediction

METHODS = ("lora", "loca", "some-other")


def line(method, mean=0.7, r=2, spread=0.1, **more):
    ends = (
        {"low": None, "high": None}
        if mean is None
        else {"low": mean - spread, "high": mean + spread}
    )
    return {
        "task": "digits",
        "method": method,
        "title": method.upper(),
        "r": r,
        "measure": "accuracy",
        "mean": mean,
        **ends,
        **more,
    }


def drawn(figure):
    """The figure, laid out; what cannot be drawn warns, and warnings are errors."""
    figure.draw_without_rendering()
    return figure


LINES = [line(m, 0.6 + r / 20, r=r) for m in METHODS for r in (1, 2, 4)]
FRAME = [line("full", 0.9, r=None), line("linear-probing", 0.4, r=math.nan)]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(LINES + FRAME, id="all"),
        pytest.param(LINES[:1], id="one method at one budget"),
        pytest.param([line("lora", spread=math.inf, r=r) for r in (1, 2)], id="one seed"),
        pytest.param([*LINES, line("vera", None)], id="a missing mean"),
        pytest.param([*LINES, {**line("lora"), "task": "text"}], id="two tasks"),
    ],
)
def test_budgets(lines):
    figure = drawn(draw_budgets(lines))
    tasks = dict.fromkeys(entry["task"] for entry in lines)
    assert [axis.get_title("left") for axis in figure.axes] == list(tasks)


def test_budgets_are_shown_in_per_cent_at_their_values():
    figure = drawn(draw_budgets([line("lora", 0.6, r=1), line("lora", 0.8, r=4)]))
    (container,) = figure.axes[0].containers
    assert list(container[0].get_ydata()) == pytest.approx([60, 80])
    assert list(container[0].get_xdata()) == pytest.approx([1, 4])


def test_budgets_of_a_task_where_all_diverged():
    with pytest.raises(InvalidArgumentError, match="every run diverged"):
        draw_budgets([line("lora", None)])
    lines = [line("lora", None), line("lora", 0.5, task="text"), line("loca", None, task="text")]
    assert len(drawn(draw_budgets(lines)).axes) == 1


SETTINGS = [
    line(m, 0.5 + value / 40, setting=setting, label=setting, value=value)
    for setting, values in {
        "scaling": (0.5, 2.0),
        "alternating": (0.0, 0.2),
        "rate": (1e-2,),
    }.items()
    for m in METHODS[:2]
    for value in values
]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(SETTINGS, id="three settings"),
        pytest.param(SETTINGS[:1], id="a single value"),
        pytest.param(
            [*SETTINGS, line("loca", None, setting="rate", label="rate", value=0.1)], id="missing"
        ),
    ],
)
def test_sensitivity(lines):
    shown = [a for a in drawn(draw_sensitivity(lines)).axes if a.get_visible()]
    assert len(shown) == len({entry["setting"] for entry in lines})


def look(method, seed, step, value=0.5):
    return {
        "task": "digits",
        "method": method,
        "title": method.upper(),
        "seed": seed,
        "step": step,
        "measure": "accuracy",
        "validation_loss": value,
        "validation": value,
    }


LOOKS = [look(m, s, step, step / 40) for m in METHODS for s in (0, 1) for step in (10, 20)]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(LOOKS, id="all"),
        pytest.param([entry for entry in LOOKS if entry["seed"] == 0], id="one seed"),
        pytest.param([*LOOKS, look("loca", 2, 10, None)], id="a look at a diverged run"),
        pytest.param([look("loca", 0, 10, None), look("loca", 0, 20)], id="none at a step"),
    ],
)
def test_training(lines):
    assert len(drawn(draw_training(lines)).axes) == 1


@pytest.mark.parametrize("value", [0.0, 1e-3])
@pytest.mark.parametrize("methods", [("full",), ("full", "lora", "strange")])
def test_patterns(value, methods):
    lines = [
        {"title": method, "layer": layer, "values": values}
        for method in methods
        for layer in ("a.3.query.weight", "head.weight")
        for values in ([value, -value], [0.0, 2 * value])
    ]
    figure = drawn(draw_patterns(lines))
    assert len(figure.axes) == 2 * len(methods)
    for axis in figure.axes:
        np.testing.assert_array_equal(
            axis.images[0].get_array(), [[value, -value], [0.0, 2 * value]]
        )


def test_patterns_of_nothing():
    with pytest.raises(InvalidArgumentError, match="every run diverged"):
        draw_patterns([])


def prediction(name, chosen, scope="methods at one budget"):
    more = {"predictor": name, "title": name.title(), "scope": scope, "chosen": chosen}
    return [
        {**more, "tasks": part, "correlation": value, "low": value - 0.5, "high": value + 0.25}
        for part, value in (("all", 0.25), ("choice", 0.0), ("judgement", 0.125))
    ]


def test_prediction():
    without = "methods at one budget, without LoRA"
    lines = [*prediction("energy", chosen=False), *prediction("loss", chosen=True)]
    lines += [*prediction("energy", True, without), *prediction("loss", True, "other")]
    figure = drawn(draw_prediction(lines))
    first, second = figure.axes
    assert [axis.get_title("left") for axis in figure.axes] == ["All adapters", "Without LoRA"]
    assert [label.get_text() for label in first.get_yticklabels()] == ["Energy", "Loss"]
    dots = {dot.get_label(): list(dot.get_xdata()) for dot in first.lines}
    assert dots["all tasks, 95% interval"] == [0.25, 0.25]
    assert dots["kinds not used to choose"] == [0.125, 0.125]
    assert [len(axis.patches) for axis in (first, second)] == [1, 1]


def test_one_task_without_intervals_can_be_drawn():
    (line, *_) = prediction("energy", chosen=False)
    drawn(draw_prediction([line | {"low": -math.inf, "high": math.inf}]))


def test_prediction_of_nothing():
    with pytest.raises(InvalidArgumentError, match="no correlations of methods at one budget"):
        draw_prediction(prediction("energy", True, "methods and budgets"))
