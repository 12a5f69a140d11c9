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
    assert printed.TABLES[table][model][method] == scores
    assert len(printed.COLUMNS[table]) == len(scores)


def test_costs_and_steps_are_in_the_order_of_models_and_tasks():
    assert printed.SPEEDS["LoCA-1"] == (28.56, None, 2.28)
    assert printed.MEMORY["LoRA"] == (3758, 53154, 3708)
    assert printed.GLUE_EPOCHS["base"] == (80, 30, 50, 40, 35, 80, 30, 50)
    assert printed.GLUE_ALTERNATING_STEPS["large"] == (1000, 3000, 400, 3000, 3000, 300, 3000, 600)
    assert printed.SPREADS == (0.03, 0.25, 0.03, 0.18, 0.05, 0.02, 91.76, 0.09)


def test_every_marked_number_is_in_its_column():
    for tables in printed.MARKED.values():
        for table, models in tables.items():
            assert list(models) == list(printed.TABLES[table])
            for model, numbers in models.items():
                columns = zip(*printed.TABLES[table][model].values(), strict=True)
                assert all(a in column for a, column in zip(numbers, columns, strict=True))


def test_steps_on_mrpc_are_as_many_as_the_text_says():
    """With them, the fraction of 600 steps follows from the paper alone."""
    total = load("stated").settings(model="RoBERTa-base", method="LoCA", task="MRPC")["total_steps"]
    base = training.alternating_fraction(tasks=["MRPC"])["MRPC, base"]
    assert base == pytest.approx(600 / total)
