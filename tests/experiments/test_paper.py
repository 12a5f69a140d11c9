"""The transcribed tables and their schema, without the paper."""

import pytest

from experiments.paper import load
from loca_theory.errors import InvalidArgumentError


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
