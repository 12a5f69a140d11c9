"""The transcribed tables and their schema, without the paper."""

from itertools import chain

import pytest

from experiments.paper import TABLES, load
from loca_theory.errors import InvalidArgumentError

POSITIVE = ("learning_rate", "scaling", "batch_size", "epochs", "_steps", "rank", "parameters",
            "frequency_components", "max_length", "speed", "memory")  # fmt: skip
BELOW_ONE = ("learning_rate", "weight_decay", "warmup_ratio", "dropout", "label_smoothing")
WHOLE = ("_steps", "epochs", "batch_size", "frequency_components", "parameters", "seeds")


def numbers(table, words):
    """Every number of the fields with one of these words in their name."""
    for row in table.rows:
        for name, value in row.values.items():
            if any(word in name for word in words):
                yield from value if isinstance(value, tuple) else (value,)


def test_every_label_of_the_paper_is_there_once():
    labels = [load(name).table.label for name in TABLES if load(name).table.label]
    assert len(labels) == len(set(labels)) == 11


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_numbers_that_can_be(name):
    table = load(name)
    assert table.table.title
    assert (table.table.kind == "text") == (not table.table.label)
    assert set(chain.from_iterable(row.values for row in table.rows)) == set(table.fields)
    assert all(number > 0 for number in numbers(table, POSITIVE))
    assert all(0 <= number < 1 for number in numbers(table, BELOW_ONE))
    assert all(type(number) is int for number in numbers(table, WHOLE))
    for row in table.rows:
        assert {*row.spreads} <= {*row.values}
        for field in row.values:
            assert table.fields[field].unit != "%" or 0 < row.values[field] < 100
        for field, spread in row.spreads.items():
            # The one standard deviation that cannot be is explained beside it.
            assert 0 <= spread < 2 or field in row.notes


def test_a_narrower_row_wins_and_common_ones_count():
    settings = load("vit_hyperparameters").settings(model="ViT-large", method="LoRA")
    assert (settings["rank"], settings["learning_rate_head"]) == (16, 1e-3)
    assert settings["seeds"] == (2020, 2021, 2022, 2023, 2024)
    settings = load("diffusion_hyperparameters").settings(method="LoCA")
    assert settings["alternating_steps"] < settings["total_steps"]
    assert "alternating_steps" not in load("diffusion_hyperparameters").settings(method="FourierFT")


def test_unknown_names():
    with pytest.raises(InvalidArgumentError, match="there is no table 'nothing': choose one of"):
        load("nothing")
    with pytest.raises(InvalidArgumentError, match="glue_results has no method 'LORA'"):
        load("glue_results").settings(method="LORA")
    with pytest.raises(InvalidArgumentError, match="has no size 'base': it has model, method"):
        load("glue_results").settings(size="base")
