"""The numbers of the paper's tables that the checks judge, from the transcription."""

import pytest

from experiments.paper import load
from loca_theory.claims import printed
from loca_theory.claims.checks import training


@pytest.mark.parametrize(
    ("table", "model", "method", "scores"),
    [
        ("glue", "base", "FT", (63.6, 87.6, 90.2, 92.8, 91.9, 78.7, 94.8, 91.2, 86.4)),
        ("vit", "large", "LP", (91.93, 43.24, 97.78, 72.52, 93.76, 26.55, 83.52, 88.73, 74.75)),
        ("e2e", "medium", "LoCA", (69.7, 8.85, 46.6, 72.1, 2.52)),
        ("instruction", "LLaMA1-7b", "LoRA", (4.52, 7.52)),
        ("ablation", "base", "V1", (92.8, 76.8, 87.7, 63.2)),
    ],
)  # fmt: skip
def test_scores_have_a_model_a_method_and_columns(table, model, method, scores):
    assert tuple(printed.TABLES[table][model][method].values()) == scores


def test_costs_steps_and_spreads_are_those_printed():
    assert printed.SPEEDS["LoCA-1"] == {"RoBERTa-base": 28.56, "ViT-base": 2.28}
    assert tuple(printed.MEMORY["LoRA"].values()) == (3758, 53154, 3708)
    steps = printed.GLUE_STEPS["MNLI", "large"]
    assert (steps["epochs"], steps["alternating_steps"]) == (15, 3000)
    assert printed.GLUE_STEPS["CoLA", "base"]["epochs"] == 80
    assert printed.SPREADS["RESISC45"] == 91.76


def test_every_marked_number_is_in_its_column():
    for tables in printed.MARKED.values():
        for table, models in tables.items():
            assert list(models) == list(printed.TABLES[table])
            for model, numbers in models.items():
                rows = printed.TABLES[table][model].values()
                assert all(n in [row[column] for row in rows] for column, n in numbers.items())


def test_steps_on_mrpc_are_as_many_as_the_text_says():
    """With them, the fraction of 600 steps follows from the paper alone."""
    total = load("stated").settings(model="RoBERTa-base", method="LoCA", task="MRPC")["total_steps"]
    base = training.alternating_fraction(tasks=["MRPC"])["MRPC, base"]
    assert base == pytest.approx(600 / total)
