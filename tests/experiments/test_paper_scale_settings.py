"""The paper's experiments: settings read from its tables or asked for, and adapted models."""

import pytest
import transformers

from experiments.finetuning.adaptation import count, parameter_groups
from experiments.paper_scale.generation import split_projections
from experiments.paper_scale.run import adapted
from experiments.paper_scale.settings import Choice, families, printed, resolve
from loca_theory.errors import InvalidArgumentError

THIN = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 8}


def settings(family, task, size, method="loca", **choices):
    return resolve(Choice(families()[family], task, size, method, **choices))


@pytest.mark.parametrize(
    ("chosen", "choices", "expected"),
    [
        (("glue", "MRPC", "base"), {}, {
            "rate": 1e-2, "head_rate": 6e-3, "location_rate": 1e-4, "warmup": 0.06, "epochs": 50,
            "targets": ("query", "value"), "coefficient_steps": 10, "location_steps": 20}),
        (("glue", "CoLA", "large", "lora"), {"lr": 1e-3}, {"rank": 8, "scaling": 8, "rate": 1e-3}),
        (("vit", "DTD", "base"), {}, {"scaling": 1}),
        # The scaling belongs to the components.
        (("vit", "DTD", "base"), {"components": 10_000}, {"scaling": 0.5, "epochs": 10}),
        (("vit", "DTD", "base", "lora"), {"r": 4}, {"rank": 4, "scaling": 4}),
        (("vit", "DTD", "large", "linear-probing"), {}, {"rate": 1e-3, "head_rate": 1e-3}),
        (("instruct", "Alpaca", "llama2-13b", "full"), {}, {
            "rate": 1e-5, "epochs": 1, "batch_size": 4, "accumulation": 4}),
        (("instruct", "Alpaca", "llama1-7b", "lora"), {}, {"rank": 64}),
    ],
)  # fmt: skip
def test_settings_are_those_of_the_tables_or_asked_for(chosen, choices, expected):
    resolved = vars(settings(*chosen, **choices))
    assert {name: resolved[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("family", "task", "size", "choices", "words"),
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
def test_what_cannot_be_run_is_told(family, task, size, choices, words):
    with pytest.raises(InvalidArgumentError, match=words):
        settings(family, task, size, **choices)


def adapted_to(family, task, size, method="loca", layers=1):
    if family == "glue":
        config = transformers.RobertaConfig(vocab_size=50, num_hidden_layers=layers, **THIN)
        model = transformers.RobertaForSequenceClassification(config)
    elif family == "vit":
        config = transformers.ViTConfig(num_hidden_layers=layers, num_labels=37, **THIN)
        model = transformers.ViTForImageClassification(config)
    else:
        tokens = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1}
        config = transformers.GPT2Config(n_embd=64, n_head=2, n_inner=8, n_layer=layers, **tokens)
        model = split_projections(transformers.GPT2LMHeadModel(config))
    choice = Choice(families()[family], task, size, method)
    return adapted(model, choice, resolve(choice))


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
    rows = [row for row in printed(source.results)["rows"] if row["model"] == name]
    first = next(row for row in rows if row["method"] == "LoCA")
    counts = count(adapted_to(family, task, size, layers=layers), source.head)
    assert counts["trained"] == first["values"]["parameters"]


@pytest.mark.parametrize("method", ["loca", "fourierft", "lora"])
def test_rates_and_decay(method):
    model, chosen = adapted_to("vit", "DTD", "base", method), settings("vit", "DTD", "base", method)
    names = {id(p): name for name, p in model.named_parameters()}
    rates = {"rate": chosen.rate, "head_rate": chosen.head_rate}
    decay = chosen.weight_decay
    for group in parameter_groups(model, head="classifier", weight_decay=decay, **rates):
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


def test_lora_has_the_scaling_of_the_paper():
    config = adapted_to("instruct", "Alpaca", "llama2-7b", "lora").peft_config["default"]
    assert (config.r, config.lora_alpha) == (64, 16)
