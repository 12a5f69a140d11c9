"""Tables of what rounding leaves, and their pictures."""

from dataclasses import replace

import pytest

from loca_theory.plotting.results.rounding import draw_laws, draw_survival
from loca_theory.rounding import FORMATS, rounded_change
from loca_theory.rounding.study import RoundingStudy
from loca_theory.sweeps import Runner


@pytest.fixture(scope="module")
def result():
    study = RoundingStudy(
        formats=("bfloat16", "float16"),
        ratios=(1e-3, 1e-2),
        shape=(96, 80),
        rank=2,
        steps=(0.1, 10.0),
        draws=1,
    )
    return study.run(Runner(jobs=1))


def test_laws_are_those_of_each_format_and_ratio(result):
    assert [(row.format, row.ratio) for row in result.laws] == [
        (name, ratio) for name in ("bfloat16", "float16") for ratio in (1e-3, 1e-2)
    ]
    for row in result.laws:
        law = rounded_change(FORMATS[row.format], row.ratio)
        assert (row.changed, row.error) == (law.changed, law.error)


def test_low_rank_is_hidden_below_the_step_but_inside_the_cells(result):
    """At a tenth of a step, LoRA has little of what is stored, and the cells have the change."""
    rows = {(row.steps, row.method): row for row in result.survival}
    assert rows[10.0, "LoRA"].error < 0.01
    assert rows[0.1, "LoRA"].error > 0.5 > rows[0.1, "LoRA inside cells"].change_error
    assert rows[0.1, "LoRA inside cells"].change_error < rows[0.1, "LoRA"].change_error / 2
    assert rows[10.0, "entries"].error > 0.5 > rows[0.1, "entries"].error


def test_a_seed_is_another_draw():
    study = RoundingStudy(formats=(), shape=(24, 20), rank=1, steps=(1.0,), draws=1)
    runs = [replace(study, seed=seed).run(Runner(jobs=1)) for seed in (0, 0, 1)]
    errors = [run.survival[0].error for run in runs]
    assert errors[0] == errors[1] != errors[2]


def test_pictures_have_a_line_per_format_and_per_method(result):
    for draw, table, names in (
        (draw_laws, "laws", ["bfloat16", "float16"]),
        (draw_survival, "survival", ["LoRA", "LoCA", "entries", "LoRA inside cells"]),
    ):
        panels = draw(result.to_frame(table)).axes
        assert len(panels) == 2
        for panel in panels:
            assert [line.get_label() for line in panel.lines] == names
