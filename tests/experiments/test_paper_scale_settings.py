"""The paper's experiments: settings read from its tables or asked for, and adapted models."""

import pytest
import torch
import transformers

from experiments.finetuning.adaptation import count, groups
from experiments.finetuning.methods import find_method
from experiments.paper import load
from experiments.paper_scale.generation import split_projections
from experiments.paper_scale.settings import Choice, families, resolve
from experiments.paper_scale.training import Steering, adapt_as_stated, regularise
from loca_theory.errors import InvalidArgumentError

THIN = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 8}


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
    roles = {"model": "RoBERTa-base", "method": "LoCA", "task": "MRPC"}
    printed = load("glue_hyperparameters").settings(**roles)
    assert found.rate == printed["learning_rate_coefficients"] != found.head_rate
    assert found.head_rate == printed["learning_rate_head"]
    assert found.warmup == printed["warmup_ratio"]
    assert found.targets == ("query", "value")
    assert (found.coefficient_steps, found.location_steps) == (10, 20)
    assert not found.notes
    found = settings("glue", "CoLA", "large", "lora", lr=1e-3)
    assert (found.rank, found.scaling, found.rate) == (8, 8, 1e-3)
    assert found.notes


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
        ("glue", "CoLA", "large", {"method": "lora"}, "--lr"),
        ("glue", "CoLA", "base", {"method": "lora", "lr": 1e-3, "components": 5}, "no components"),
        ("glue", "CoLA", "base", {"components": 5, "r": 2}, "give one"),
        ("e2e", "E2E", "medium", {"method": "linear-probing"}, "new head"),
        ("diffusion", "cartoons", "sd15", {"r": 4}, "several shapes"),
        ("diffusion", "cartoons", "sd15", {"method": "vera"}, "not run with VeRA"),
        ("diffusion", "cartoons", "sd15", {"method": "lora"}, "--r.*--lr"),
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


def adapted_to(family, task, size, method, layers=1, steps=100, **asked):
    chosen = settings(family, task, size, method, **asked)
    adapted = adapt_as_stated(
        model(family, layers), find_method(method), chosen, head=families()[family].head, seed=0,
        steps=steps,
    )  # fmt: skip
    return adapted, chosen


@pytest.mark.parametrize(
    ("family", "task", "size", "printed", "layers"),
    [
        ("glue", "CoLA", "base", "RoBERTa-base", 12),
        ("glue", "CoLA", "large", "RoBERTa-large", 24),
        ("vit", "DTD", "base", "ViT-base", 12),
        ("e2e", "E2E", "medium", "GPT-2 medium", 24),
        ("e2e", "E2E", "large", "GPT-2 large", 36),
    ],
)
def test_loca_trains_as_many_numbers_as_the_paper_prints(family, task, size, printed, layers):
    adapted, _ = adapted_to(family, task, size, "loca", layers)
    source = families()[family]
    first = next(one for one in load(source.results).rows
                 if (one.model, one.method) == (printed, "LoCA"))  # fmt: skip
    assert count(adapted, source.head)["trained"] == first.values["parameters"]


def groups_of(adapted, chosen):
    return groups(adapted, head="classifier", rate=chosen.rate, head_rate=chosen.head_rate,
                  weight_decay=chosen.weight_decay)  # fmt: skip


@pytest.mark.parametrize("method", ["loca", "fourierft", "lora"])
def test_rates_and_decay(method):
    adapted, chosen = adapted_to("vit", "DTD", "base", method)
    names = {id(p): name for name, p in adapted.named_parameters()}
    for group in groups_of(adapted, chosen):
        for p in group["params"]:
            is_head = "classifier" in names[id(p)]
            decay = 5e-5 if p.ndim > 1 or not is_head else 0
            assert (group["lr"], group["weight_decay"]) == (1e-2 if is_head else chosen.rate, decay)


@pytest.mark.parametrize(
    ("method", "steps"), [("loca", 120), ("loca-v1", 0), ("loca-v2", None), ("loca-v3", 120)]
)
def test_alternating_steps_of_the_variants(method, steps):
    config = adapted_to("vit", "DTD", "base", method)[0].peft_config["default"]
    assert (config.alternating_steps, config.joint) == (steps, method == "loca-v3")


def gradients(adapted):
    return {name: p.grad.clone() for name, p in adapted.named_parameters() if p.grad is not None}


def test_regulariser_is_that_of_peft():
    adapted = adapted_to("glue", "CoLA", "base", "adalora", r=4, lr=1e-3)[0].eval()
    batch = {"input_ids": torch.arange(6).view(2, 3) + 2, "labels": torch.tensor([0, 1])}
    adapted.base_model(**batch).loss.backward()
    expected = gradients(adapted)
    adapted.zero_grad()
    adapted(**batch).loss.backward()
    without = gradients(adapted)
    regularise(adapted)
    found = gradients(adapted)
    assert expected.keys() == found.keys()
    assert any(not torch.allclose(without[name], found[name]) for name in found)
    for name, gradient in found.items():
        assert torch.allclose(gradient, expected[name], atol=1e-6), name


@pytest.mark.parametrize("method", ["loca", "adalora"])
def test_every_group_is_clipped_on_its_own_after_the_regulariser(method):
    """Which changes gradients that are alike, and clipping does not."""
    amount = {"components": 9} if method == "loca" else {"r": 4, "lr": 1e-3}
    adapted, chosen = adapted_to("glue", "CoLA", "base", method, **amount)
    optimizer = torch.optim.AdamW(groups_of(adapted, chosen))
    for p in adapted.parameters():
        p.grad = torch.ones_like(p) if p.requires_grad else None
    Steering().on_pre_optimizer_step(None, None, None, model=adapted, optimizer=optimizer)
    for group in optimizer.param_groups:
        norms = torch.stack([p.grad.norm() for p in group["params"]])
        assert float(norms.norm()) == pytest.approx(1, abs=1e-3)
    spreads = [float((g.max() - g.min()) / g.abs().max()) for g in gradients(adapted).values()]
    assert (max(spreads) > 1e-3) == (method == "adalora")
