"""Adapted models train as many numbers as the paper prints, at its rates."""

import pytest

pytest.importorskip("peft", reason="needs the extra 'paper-scale'")
pytest.importorskip("transformers", reason="needs the extra 'paper-scale'")

from experiments.finetuning.methods import count, find_method
from experiments.paper import load
from experiments.paper_scale.adaptation import (
    adapt_as_stated,
    optimizer_groups,
    split_projections,
)
from experiments.paper_scale.settings import Choice, resolve
from experiments.paper_scale.sources import families

THIN = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 8}


def model(family, layers):
    import transformers

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


@pytest.mark.parametrize(
    ("family", "task", "size", "printed", "layers"),
    [
        ("glue", "CoLA", "base", "RoBERTa-base", 12),
        ("glue", "CoLA", "large", "RoBERTa-large", 24),
        ("vit", "DTD", "base", "ViT-base", 12),
        ("vit", "DTD", "large", "ViT-large", 24),
        ("e2e", "E2E", "medium", "GPT-2 medium", 24),
        ("e2e", "E2E", "large", "GPT-2 large", 36),
    ],
)
def test_loca_trains_as_many_numbers_as_the_paper_prints(family, task, size, printed, layers):
    source = families()[family]
    settings = resolve(Choice(source, task, size, "loca"))
    adapted = adapt_as_stated(
        model(family, layers), find_method("loca"), settings, head=source.head, seed=0, steps=100
    )
    stated = load(source.results).select(model=printed, method="LoCA")[0].parameters
    assert count(adapted, source.head)["trained"] == stated


@pytest.mark.parametrize("method", ["loca", "fourierft", "lora"])
def test_rates_and_decay(method):
    source = families()["vit"]
    settings = resolve(Choice(source, "DTD", "base", method))
    adapted = adapt_as_stated(
        model("vit", 1), find_method(method), settings, head="classifier", seed=0, steps=100
    )
    names = {id(p): name for name, p in adapted.named_parameters()}
    for group in optimizer_groups(adapted, settings, "classifier"):
        for p in group["params"]:
            name = names[id(p)]
            if "classifier" in name:
                assert group["lr"] == 1e-2
                assert group["weight_decay"] == (5e-5 if p.ndim > 1 else 0)
            elif "locations" in name:
                assert (group["lr"], group["weight_decay"]) == (1e-4, 0)
            else:
                assert (group["lr"], group["weight_decay"]) == (settings.rate, 5e-5)


@pytest.mark.parametrize(
    ("method", "steps"), [("loca", 120), ("loca-v1", 0), ("loca-v2", None), ("loca-v3", 120)]
)
def test_alternating_steps_of_the_variants(method, steps):
    settings = resolve(Choice(families()["vit"], "DTD", "base", method))
    adapted = adapt_as_stated(
        model("vit", 1), find_method(method), settings, head="classifier", seed=0, steps=100
    )
    config = adapted.peft_config["default"]
    assert config.alternating_steps == steps
    assert config.joint == (method == "loca-v3")
