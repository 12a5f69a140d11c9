"""The numbers that the package holds of the paper's tables are those of the transcribed ones."""

import pytest

from experiments.paper.tables import load
from loca_theory.claims.checks import tables


def printed(table, model):
    return [row for row in load(table).rows if row.model == model]


@pytest.mark.parametrize(
    ("table", "mine", "model"),
    [("glue_results", tables._GLUE, "RoBERTa"), ("vit_results", tables._VIT, "ViT")],
)
@pytest.mark.parametrize("size", ["base", "large"])
def test_results_are_those_of_the_paper(table, mine, model, size):
    rows = printed(table, f"{model}-{size}")
    expected = [
        tuple(value for name, value in row.values.items() if name != "parameters") for row in rows
    ]
    assert list(mine[size].values()) == expected
    names = [name.split()[0] for name in mine[size]]
    assert [name.replace("FT", "FF") if name == "FT" else name for name in names] == [
        row.method for row in rows
    ]


def test_results_of_generation_are_those_of_the_paper():
    rows = {row.method: row.values for row in printed("e2e_results", "GPT-2 large")}
    expected = {
        name: tuple(values[metric] for metric in ("BLEU", "METEOR", "ROUGE-L"))
        for name, values in rows.items()
    }
    assert expected == tables._E2E_LARGE


def test_results_of_instruction_tuning_are_those_of_the_paper():
    rows = load("instruction_results").rows
    both = [
        [tuple(row.values[name] for name in ("MT-Bench", "Vicuna")) for row in rows
         if row.method == method]
        for method in ("FourierFT", "LoCA")
    ]  # fmt: skip
    assert tuple(zip(*both, strict=True)) == tables._INSTRUCTION


def test_memory_is_that_of_the_paper():
    models = ("RoBERTa-base", "LLaMA-1-7b", "ViT-base")
    found = {(row.model, row.method): row.values for row in load("complexity").rows}
    for method, values in tables._MEMORY.items():
        expected = tuple(found.get((model, method), {}).get("memory") for model in models)
        assert values == expected
