"""The transcribed tables and their schema, without the paper."""

from itertools import chain

import pytest
from click.testing import CliRunner

from experiments.paper import TABLES, load, main, parse
from loca_theory.errors import InvalidArgumentError

# Training examples of the GLUE tasks, which the paper does not print.
GLUE_SIZES = {"CoLA": 8551, "MNLI": 392_702, "MRPC": 3668, "QNLI": 104_743, "QQP": 363_846,
              "RTE": 2490, "SST-2": 67_349, "STS-B": 5749}  # fmt: skip

MINIMAL = 'table = { label = "", title = "", kind = "text" }\nfields = { a = { printed = "a" } }\n'
each_table = pytest.mark.parametrize("name", TABLES)


def numbers(table, word):
    """Every number of the fields with this word in their name."""
    for row in table.rows:
        for name, value in row.values.items():
            if word in name:
                yield from value if isinstance(value, tuple) else (value,)


# The transcribed tables.


def test_every_label_of_the_paper_is_there_once():
    labels = [load(name).table.label for name in TABLES if load(name).table.label]
    assert len(labels) == len(set(labels)) == 11


@each_table
def test_a_table_says_what_it_is(name):
    table = load(name)
    assert table.table.title
    assert table.rows
    assert (table.table.kind == "text") == (not table.table.label)
    used = set(chain.from_iterable(row.values for row in table.rows))
    assert used == set(table.fields)


POSITIVE = ("learning_rate", "scaling", "batch_size", "epochs", "_steps", "rank", "parameters",
            "frequency_components", "max_length", "speed", "memory")  # fmt: skip


@each_table
def test_what_must_be_positive_is(name):
    assert all(number > 0 for word in POSITIVE for number in numbers(load(name), word))


@each_table
def test_learning_rates_and_fractions_are_below_one(name):
    table = load(name)
    words = ("learning_rate", "weight_decay", "warmup_ratio", "dropout", "label_smoothing")
    assert all(0 <= number < 1 for word in words for number in numbers(table, word))


@each_table
def test_counts_are_whole(name):
    table = load(name)
    words = ("_steps", "epochs", "batch_size", "frequency_components", "parameters", "seeds")
    assert all(type(number) is int for word in words for number in numbers(table, word))


@each_table
def test_percentages_and_spreads(name):
    table = load(name)
    for row in table.rows:
        for field in row.values:
            if table.fields[field].unit == "%":
                assert 0 < row.values[field] < 100
        for field, spread in row.spreads.items():
            # The one standard deviation that cannot be is explained beside it.
            assert 0 <= spread < 2 or field in row.notes


@pytest.mark.parametrize("name", ["glue_results", "vit_results"])
def test_averages_are_those_of_the_printed_values(name):
    odd = []
    for row in load(name).rows:
        scores = [v for key, v in row.values.items() if key not in ("parameters", "average")]
        digits = 1 if name == "glue_results" else 2
        within = abs(sum(scores) / len(scores) - row.values["average"]) <= 0.5001 * 10**-digits
        if not within:
            odd.append(row)
    assert all("average" in row.notes for row in odd)


@pytest.mark.parametrize("model", ["RoBERTa-base", "RoBERTa-large"])
@pytest.mark.parametrize("task", GLUE_SIZES)
def test_alternation_ends_before_training_on_glue(model, task):
    settings = load("glue_hyperparameters").settings(model=model, method="LoCA", task=task)
    steps = -(-GLUE_SIZES[task] // settings["batch_size"]) * settings["epochs"]
    assert settings["alternating_steps"] < steps
    if (model, task) == ("RoBERTa-base", "MRPC"):
        assert (
            steps == load("stated").settings(model=model, method="LoCA", task=task)["total_steps"]
        )


def test_alternation_ends_before_training_on_stable_diffusion():
    settings = load("diffusion_hyperparameters").settings(method="LoCA")
    assert settings["alternating_steps"] < settings["total_steps"]
    assert "alternating_steps" not in load("diffusion_hyperparameters").settings(method="FourierFT")


@pytest.mark.parametrize(
    ("results", "model", "matrices", "components"),
    [
        ("e2e_results", "GPT-2 medium", 2 * 24, 1000),
        ("e2e_results", "GPT-2 large", 2 * 36, 1000),
        ("glue_results", "RoBERTa-base", 2 * 12, 1000),
        ("glue_results", "RoBERTa-large", 2 * 24, 1000),
        ("vit_results", "ViT-base", 2 * 12, 3000),
        ("vit_results", "ViT-large", 2 * 24, 3000),
        ("instruction_results", "LLaMA1-7b", 2 * 32, 150_000),
        ("instruction_results", "LLaMA2-13b", 2 * 40, 150_000),
    ],
)
def test_parameters_are_components_times_matrices(results, model, matrices, components):
    row = load(results).select(model=model, method="LoCA")[0]
    assert row.parameters == matrices * components


def test_a_narrower_row_wins_and_common_ones_count():
    settings = load("vit_hyperparameters").settings(model="ViT-large", method="LoRA")
    assert (settings["rank"], settings["learning_rate_head"]) == (16, 1e-3)
    assert settings["seeds"] == (2020, 2021, 2022, 2023, 2024)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = ", "broken.toml is not TOML"),
        ("rows = []", "broken.toml: table: Field required"),
        (MINIMAL + "rows = [{ model = 'x' }]", "rows: 0: values: Field required"),
        (MINIMAL + "rows = [{ values = { b = 1 } }]", "row 1: 'b' is not among the fields"),
        (MINIMAL + "rows = [{ values = { a = 1979-05-27 } }]", "rows: 0: values: a: "),
        (MINIMAL + "rows = [{ values = {}, spreads = { a = 1 } }]", "a spread but no value"),
        (MINIMAL + "rows = [{ values = { a = 1 }, spreads = { a = 'x' } }]", "valid number"),
        (MINIMAL + "rows = [{ values = {}, modle = 'x' }]", "modle: Unexpected keyword argument"),
        (MINIMAL + "rows = []\naxes = { line = ['method', 'row'] }", "should be 'model', 'method'"),
        (MINIMAL + "rows = [{ values = 1 }]", "rows: 0: values: Input should be a valid dict"),
        (MINIMAL + "rows = 1", "rows: Input should be a valid tuple"),
        (MINIMAL.replace('"text"', '"prose"') + "rows = []", "kind: Input should be 'hyperparam"),
    ],
)
def test_files_that_break_the_schema(text, said):
    with pytest.raises(InvalidArgumentError, match=said):
        parse("broken", text)


def test_unknown_names():
    with pytest.raises(InvalidArgumentError, match="there is no table 'nothing': choose one of"):
        load("nothing")
    table = load("glue_results")
    with pytest.raises(InvalidArgumentError, match="glue_results has no method 'LORA'"):
        table.select(method="LORA")
    with pytest.raises(InvalidArgumentError, match="has no role 'size'"):
        table.settings(size="base")


# The command.


def run(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def test_list_names_every_table():
    result = run("--notes")
    assert result.exit_code == 0
    assert all(name in result.output for name in TABLES)
