"""The numbers that the package holds of the paper's tables are those of the transcribed ones."""

import numpy as np
import pytest

from experiments.paper.tables import load
from loca_theory.claims import Setting, printed
from loca_theory.claims.checks import training
from loca_theory.claims.measurement import Tier

# The transcribed table, and the name of a model in it.
TRANSCRIBED = {
    "glue": ("glue_results", "RoBERTa-{}"),
    "vit": ("vit_results", "ViT-{}"),
    "e2e": ("e2e_results", "GPT-2 {}"),
    "instruction": ("instruction_results", "{}"),
    "ablation": ("ablation", "*"),
}


def rows(table, model):
    name, pattern = TRANSCRIBED[table]
    return [row for row in load(name).rows if row.model == pattern.format(model)]


@pytest.mark.parametrize(
    ("table", "model"),
    [(table, model) for table, scores in printed.TABLES.items() for model in scores],
)
def test_scores_are_those_of_the_paper(table, model):
    mine = printed.TABLES[table][model]
    found = rows(table, model)
    columns = printed.COLUMNS[table]
    assert list(mine.values()) == [tuple(row.values[name] for name in columns) for row in found]
    names = [name.split()[0] for name in mine]
    assert ["FF" if name == "FT" else name for name in names] == [row.method for row in found]


def test_no_model_is_left_out():
    for table, (name, pattern) in TRANSCRIBED.items():
        models = [pattern.format(model) for model in printed.TABLES[table]]
        assert models == (list(load(name).names("model")) or ["*"])


def test_every_marked_number_is_in_its_column():
    for tables in printed.MARKED.values():
        for table, models in tables.items():
            assert list(models) == list(printed.TABLES[table])
            for model, numbers in models.items():
                columns = zip(*printed.TABLES[table][model].values(), strict=True)
                assert all(a in column for a, column in zip(numbers, columns, strict=True))


def test_standard_deviations_are_those_of_the_paper():
    (row,) = (
        row for row in rows("vit", "large") if (row.method, row.parameters) == ("LoCA", 144_000)
    )
    names = printed.COLUMNS["vit"][:-1]
    assert tuple(row.spreads[name] for name in names) == printed.SPREADS


@pytest.mark.parametrize(("field", "mine"), [("speed", printed.SPEEDS), ("memory", printed.MEMORY)])
def test_costs_are_those_of_the_paper(field, mine):
    found = {(row.model, row.method): row.values for row in load("complexity").rows}
    for method, values in mine.items():
        expected = tuple(found.get((one, method), {}).get(field) for one in printed.COST_MODELS)
        assert values == expected


@pytest.mark.parametrize("size", ["base", "large"])
def test_steps_are_those_of_the_paper(size):
    table = load("glue_hyperparameters")
    for k, task in enumerate(printed.COLUMNS["glue"][:-1]):
        found = table.settings(model=f"RoBERTa-{size}", method="LoCA", task=task)
        assert found["epochs"] == printed.GLUE_EPOCHS[size][k]
        assert found["alternating_steps"] == printed.GLUE_ALTERNATING_STEPS[size][k]
        assert found["batch_size"] == printed.GLUE_BATCH


def test_steps_on_mrpc_are_as_many_as_the_text_says():
    """With them, the fraction of 600 steps follows from the paper alone."""
    total = load("stated").settings(model="RoBERTa-base", method="LoCA", task="MRPC")["total_steps"]
    (base, _) = training.alternating_fraction(
        Setting(Tier.QUICK, np.random.default_rng(0)), tasks=["MRPC"]
    ).estimates
    assert base.value == pytest.approx(600 / total)
