"""The paper's experiments: settings read from its tables or asked for, and adapted models."""

import pytest
import transformers

from experiments.finetuning.adaptation import count, groups
from experiments.paper_scale.generation import split_projections
from experiments.paper_scale.run import adapted
from experiments.paper_scale.settings import Choice, families, printed, resolve, stated
from loca_theory.errors import InvalidArgumentError

THIN = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 8}


def settings(family, task, size, method="loca", **asked):
    return resolve(Choice(families()[family], task, size, method, **asked))


def test_glue_is_that_of_the_table():
    found = settings("glue", "MRPC", "base")
    roles = {"model": "RoBERTa-base", "method": "LoCA", "task": "MRPC"}
    row = stated("glue_hyperparameters", **roles)
    assert found.rate == row["learning_rate_coefficients"] != found.head_rate
    assert found.head_rate == row["learning_rate_head"]
    assert found.warmup == row["warmup_ratio"]
    assert found.targets == ("query", "value")
    assert (found.coefficient_steps, found.location_steps) == (10, 20)
    found = settings("glue", "CoLA", "large", "lora", lr=1e-3)
    assert (found.rank, found.scaling, found.rate) == (8, 8, 1e-3)


def test_scaling_belongs_to_the_components():
    assert settings("vit", "DTD", "base").scaling == 1
    found = settings("vit", "DTD", "base", components=10_000)
    assert (found.scaling, found.epochs) == (0.5, 10)
    found = settings("vit", "DTD", "large", "linear-probing")
    assert found.rate == found.head_rate == 1e-3


def test_instruction_tuning():
    found = settings("instruct", "Alpaca", "llama2-13b", "full")
    assert (found.rate, found.epochs, found.batch_size * found.accumulation) == (1e-5, 1, 16)
    assert settings("instruct", "Alpaca", "llama1-7b", "lora").rank == 64


@pytest.mark.parametrize(
    ("family", "task", "size", "asked", "words"),
    [
        ("glue", "CoLA", "base", {"method": "adapters"}, "not run"),
        ("glue", "CoLA", "base", {"method": "vera"}, "not run with VeRA"),
        ("glue", "CoLA", "large", {"method": "lora"}, "--lr"),
        ("glue", "CoLA", "base", {"method": "lora", "components": 5}, "--components does not"),
        ("glue", "CoLA", "base", {"r": 2}, "--r does not apply to LoCA"),
        ("glue", "CoLA", "base", {"texts": 5}, "--texts is an option of e2e"),
        ("e2e", "E2E", "medium", {"method": "linear-probing"}, "not run with linear probing"),
        ("diffusion", "cartoons", "sd15", {"method": "lora"}, "--r and --lr"),
    ],
)
def test_what_cannot_be_run_is_told(family, task, size, asked, words):
    with pytest.raises(InvalidArgumentError, match=words):
        settings(family, task, size, **asked)


# --- adapted models -------------------------------------------------------------------------


def model(family, layers):
    if family == "glue":
        config = transformers.RobertaConfig(vocab_size=50, num_hidden_layers=layers, **THIN)
        return transformers.RobertaForSequenceClassification(config)
    if family == "vit":
        config = transformers.ViTConfig(num_hidden_layers=layers, num_labels=37, **THIN)
        return transformers.ViTForImageClassification(config)
    config = transformers.GPT2Config(
        vocab_size=50, n_embd=64, n_head=2, n_inner=8, n_layer=layers,
        bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    return split_projections(transformers.GPT2LMHeadModel(config))


def adapted_to(family, task, size, method, layers=1):
    choice = Choice(families()[family], task, size, method)
    return adapted(model(family, layers), choice, resolve(choice))


@pytest.mark.parametrize(
    ("family", "task", "size", "name", "layers"),
    [
        ("glue", "CoLA", "base", "RoBERTa-base", 12),
        ("glue", "CoLA", "large", "RoBERTa-large", 24),
        ("vit", "DTD", "base", "ViT-base", 12),
        ("e2e", "E2E", "medium", "GPT-2 medium", 24),
        ("e2e", "E2E", "large", "GPT-2 large", 36),
    ],
)
def test_loca_trains_as_many_numbers_as_the_paper_prints(family, task, size, name, layers):
    source = families()[family]
    first = next(one for one in printed(source.results)["rows"]
                 if (one["model"], one["method"]) == (name, "LoCA"))  # fmt: skip
    found = count(adapted_to(family, task, size, "loca", layers), source.head)
    assert found["trained"] == first["values"]["parameters"]


@pytest.mark.parametrize("method", ["loca", "fourierft", "lora"])
def test_rates_and_decay(method):
    found, chosen = adapted_to("vit", "DTD", "base", method), settings("vit", "DTD", "base", method)
    names = {id(p): name for name, p in found.named_parameters()}
    for group in groups(found, head="classifier", rate=chosen.rate, head_rate=chosen.head_rate,
                        weight_decay=chosen.weight_decay):  # fmt: skip
        for p in group["params"]:
            is_head = "classifier" in names[id(p)]
            decay = 5e-5 if p.ndim > 1 or not is_head else 0
            assert (group["lr"], group["weight_decay"]) == (1e-2 if is_head else chosen.rate, decay)


@pytest.mark.parametrize(
    ("method", "steps"), [("loca", 120), ("loca-v1", 0), ("loca-v2", None), ("loca-v3", 120)]
)
def test_alternating_steps_of_the_variants(method, steps):
    config = adapted_to("vit", "DTD", "base", method).peft_config["default"]
    assert (config.alternating_steps, config.joint) == (steps, method == "loca-v3")


def test_a_rank_of_the_user_has_a_scaling_of_1():
    asked = settings("vit", "DTD", "base", "lora", r=4)
    assert (asked.rank, asked.scaling) == (4, 4)
    config = adapted_to("instruct", "Alpaca", "llama2-7b", "lora").peft_config["default"]
    assert (config.r, config.lora_alpha) == (64, 16)  # the paper's
