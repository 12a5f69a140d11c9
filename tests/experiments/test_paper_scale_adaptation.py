"""Adapted models train as many numbers as the paper prints, at its rates."""

import pytest
import torch

from experiments.finetuning.methods import find_method
from experiments.finetuning.parameters import count
from experiments.paper import load
from experiments.paper_scale.adaptation import (
    adapt_as_stated,
    optimizer_groups,
    split_projections,
)
from experiments.paper_scale.callbacks import Regularise
from experiments.paper_scale.settings import Choice, resolve
from experiments.paper_scale.sources import families
from experiments.paper_scale.trainers import Prepared, make_trainer

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


def gradients(adapted):
    return {name: p.grad.clone() for name, p in adapted.named_parameters() if p.grad is not None}


def test_regulariser_is_that_of_peft():
    settings = resolve(Choice(families()["glue"], "CoLA", "base", "adalora", r=4, lr=1e-3))
    adapted = adapt_as_stated(
        model("glue", 1), find_method("adalora"), settings, head="classifier", seed=0, steps=100
    ).eval()
    batch = {"input_ids": torch.arange(6).view(2, 3) + 2, "labels": torch.tensor([0, 1])}
    adapted.base_model(**batch).loss.backward()
    expected = gradients(adapted)
    adapted.zero_grad()
    adapted(**batch).loss.backward()
    without = gradients(adapted)
    Regularise().on_pre_optimizer_step(None, None, None, model=adapted)
    found = gradients(adapted)
    assert expected.keys() == found.keys()
    assert any(not torch.allclose(without[name], found[name]) for name in found)
    for name, gradient in found.items():
        assert torch.allclose(gradient, expected[name], atol=1e-6), name


@pytest.mark.parametrize("method", ["loca", "adalora"])
def test_training_clips_every_group_on_its_own_and_regularises(method, tmp_path, monkeypatch):
    from transformers import TrainerCallback

    from experiments.paper_scale import callbacks

    amount = {"components": 9} if method == "loca" else {"r": 4, "lr": 1e-3}
    settings = resolve(
        Choice(families()["e2e"], "E2E", "medium", method, batch_size=2, max_steps=12, **amount)
    )
    adapted = adapt_as_stated(
        model("e2e", 1), find_method(method), settings, head=None, seed=0, steps=12
    )
    rows = [{"input_ids": torch.arange(5), "labels": torch.arange(5)}] * 8
    regularised, norms = [], []
    before = callbacks.Regularise.on_pre_optimizer_step

    def spoil(self, args, state, control, **kwargs):
        start = gradients(adapted)
        before(self, args, state, control, **kwargs)
        end = gradients(adapted)
        regularised.append(any(not torch.equal(start[name], end[name]) for name in end))
        for group in kwargs["optimizer"].param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.mul_(1e6)

    class Look(TrainerCallback):
        def on_optimizer_step(self, args, state, control, **kwargs):
            del args, state, control
            for group in kwargs["optimizer"].param_groups:
                grads = [p.grad.norm() for p in group["params"] if p.grad is not None]
                norms.append(float(torch.stack(grads).norm()) if grads else 0.0)

    monkeypatch.setattr(callbacks.Regularise, "on_pre_optimizer_step", spoil)
    ready = Prepared(
        adapted, rows, rows[:2],
        lambda batch: {key: torch.stack([one[key] for one in batch]) for key in batch[0]},
        "loss",
    )  # fmt: skip
    trainer, _ = make_trainer(adapted, ready, settings, tmp_path, seed=0, steps=12, save_every=100)
    trainer.add_callback(Look())
    assert trainer.label_smoother is not None
    trainer.train()
    assert regularised == [method == "adalora"] * 12
    assert max(norms) == pytest.approx(1, abs=1e-3)
    assert all(norm == 0 or norm == pytest.approx(1, abs=1e-3) for norm in norms)
