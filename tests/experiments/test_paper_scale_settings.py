"""Settings of the paper's experiments: read from its tables, or asked for."""

import pytest

from experiments.paper import load
from experiments.paper_scale.settings import Choice, resolve, seeds
from experiments.paper_scale.sources import families
from loca_theory.errors import InvalidArgumentError


def settings(family, task, size, method="loca", **asked):
    return resolve(Choice(families()[family], task, size, method, **asked))


def test_every_task_and_size_has_its_settings():
    for family in families().values():
        for task in family.tasks:
            for size in family.sizes:
                components = 7 if family.name == "diffusion" else None
                found = settings(family.name, task, size, components=components)
                assert found.components
                assert found.rate > 0
                assert found.alternating_steps
                assert (found.epochs is None) != (found.steps is None)


def test_glue_is_that_of_the_table():
    found = settings("glue", "MRPC", "base")
    printed = load("glue_hyperparameters").settings(
        model="RoBERTa-base", method="LoCA", task="MRPC"
    )
    assert found.rate == printed["learning_rate_coefficients"] != found.head_rate
    assert found.head_rate == printed["learning_rate_head"]
    assert found.warmup == printed["warmup_ratio"]
    assert found.targets == ("query", "value")
    assert (found.coefficient_steps, found.location_steps) == (10, 20)
    assert not found.notes


def test_lora_on_glue_has_the_stated_rank_and_no_stated_rate():
    found = settings("glue", "CoLA", "large", "lora", lr=1e-3)
    assert (found.rank, found.scaling, found.rate) == (8, 8, 1e-3)
    assert found.notes
    with pytest.raises(InvalidArgumentError, match="--lr"):
        settings("glue", "CoLA", "large", "lora")


def test_scaling_belongs_to_the_components():
    assert settings("vit", "DTD", "base").scaling == 1
    assert settings("vit", "DTD", "base", components=10_000).scaling == 0.5
    assert settings("vit", "DTD", "base", components=10_000).epochs == 10
    found = settings("vit", "DTD", "large", "linear-probing")
    assert found.rate == found.head_rate == 1e-3


def test_instruction_tuning():
    found = settings("instruct", "Alpaca", "llama2-13b", "full")
    assert found.rate == 1e-5
    assert found.epochs == 1
    assert found.batch_size * found.accumulation == 16
    assert settings("instruct", "Alpaca", "llama1-7b", "lora").rank == 64


def test_seeds():
    assert seeds(families()["glue"]) == (6, 66, 666)
    assert seeds(families()["vit"]) == (2020, 2021, 2022, 2023, 2024)
    assert seeds(families()["e2e"]) == (0,)


@pytest.mark.parametrize(
    ("family", "task", "size", "asked", "words"),
    [
        ("glue", "cola", "base", {}, "CoLA, MNLI"),
        ("glue", "CoLA", "small", {}, "base, large"),
        ("glue", "CoLA", "base", {"method": "adapters"}, "not run"),
        ("e2e", "E2E", "medium", {"method": "linear-probing"}, "new head"),
        ("diffusion", "cartoons", "sd15", {"r": 4}, "several shapes"),
        ("diffusion", "cartoons", "sd15", {"method": "vera"}, "not run with VeRA"),
        ("diffusion", "cartoons", "sd15", {"method": "lora"}, "--r.*--lr"),
    ],
)
def test_what_cannot_be_run_is_told(family, task, size, asked, words):
    with pytest.raises(InvalidArgumentError, match=words):
        settings(family, task, size, **asked)
