"""Runs that are computed together, against each run alone and against torch's own layers."""

import math

import pytest
import torch

from experiments.finetuning.methods import Budget, adapt, find_method
from experiments.finetuning.tasks.transformer import (
    SmallTransformer,
    adopt_parameters,
    group_losses,
)

METHODS = ("lora", "dora", "vera", "fourierft", "waveft", "shira", "c3a", "loca", "loca-v1",
           "loca-v3", "loca-swap", "loca-reselect", "full", "bitfit", "linear-probing")  # fmt: skip
# PEFT builds the sparse increments of SHiRA from indices that it made itself.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")
FORMS = {
    "patches": {"patch": 6},
    "tokens": {"vocabulary": 11},
    "causal": {"vocabulary": 11, "causal": True},
}
RUNS, EXAMPLES, LENGTH, CLASSES = 3, 4, 5, 11


def model_of(form, seed=0):
    torch.manual_seed(seed)
    return SmallTransformer(
        width=16, layers=2, heads=2, length=LENGTH, classes=CLASSES, **FORMS[form]
    )


def examples(form, seed=0):
    source = torch.Generator().manual_seed(seed)
    size = (RUNS, EXAMPLES, LENGTH)
    if form == "patches":
        inputs = torch.randn(*size, 6, generator=source)
    else:
        inputs = torch.randint(11, size, generator=source)
    labels = torch.randint(CLASSES, size if form == "causal" else size[:2], generator=source)
    return inputs, labels


def applied(layer, x):
    """The output of a layer; for C3A by its increment, because PEFT's gradient of x is wrong."""
    if not hasattr(layer, "c3a_kernel"):
        return layer(x)
    base = layer.get_base_layer()
    return torch.nn.functional.linear(x, base.weight + layer.get_delta_weight("default"), base.bias)


def naive_loss(core, inputs, labels):
    """The loss by the layers themselves, all positions, without fused attention."""
    h = core.embed(inputs)
    if not core.causal:
        h = torch.cat([core.start.expand(len(h), 1, -1), h], dim=1)
    h = h + core.positions
    for block in core.blocks:
        x = block.norm1(h)
        parts = [
            applied(layer, x).unflatten(-1, (core.heads, -1)).transpose(1, 2)
            for layer in (block.query, block.key, block.value)
        ]
        scores = parts[0] @ parts[1].mT / math.sqrt(parts[0].shape[-1])
        if core.causal:
            future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, -math.inf)
        h = h + block.output((scores.softmax(-1) @ parts[2]).transpose(1, 2).flatten(2))
        x = torch.nn.functional.gelu(block.expand(block.norm2(h)))
        h = h + block.contract(x)
    logits = core.head(core.norm(h))
    if core.causal:
        return torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        )
    return torch.nn.functional.cross_entropy(logits[:, 0], labels)


def adapted(form, method, *, shares=True):
    """Runs with other heads and adapters, whose trained numbers are not those of the start."""
    cores, models, first = [], [], {}
    for seed in range(RUNS):
        model = model_of(form, seed)
        if shares:
            adopt_parameters(model, first, lambda name: name.startswith("head"))
        first = first or dict(model.named_parameters())
        settings = find_method(method)
        overrides = None
        if settings.kind == "loca":
            overrides = {"coefficient_steps": 1, "location_steps": 1, "alternating": 1.0}
        model = adapt(
            model,
            settings,
            Budget(1, 20),
            targets=["query", "value"],
            head="head",
            seed=seed,
            overrides=overrides,
        )
        source = torch.Generator().manual_seed(seed)
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data += 0.1 * torch.randn(parameter.shape, generator=source)
        models.append(model)
        cores.append(model.get_base_model() if hasattr(model, "get_base_model") else model)
    return models, cores


def gradients(models):
    return [
        {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        for model in models
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", METHODS)
def test_losses_and_gradients_are_those_of_each_run_alone(form, method):
    shares = find_method(method).kind not in ("full", "biases")
    models, cores = adapted(form, method, shares=shares)
    inputs, labels = examples(form)
    losses, _ = group_losses(cores, inputs, labels)
    losses.sum().backward()
    together = gradients(models)
    for model in models:
        model.zero_grad()
    alone = torch.stack([naive_loss(*one) for one in zip(cores, inputs, labels, strict=True)])
    torch.testing.assert_close(losses, alone, rtol=1e-5, atol=1e-6)
    alone.sum().backward()
    for mine, other in zip(together, gradients(models), strict=True):
        assert mine.keys() == other.keys()
        for name, gradient in mine.items():
            torch.testing.assert_close(gradient, other[name], rtol=1e-4, atol=1e-6, msg=name)


def test_a_run_that_diverged_does_not_touch_the_others():
    models, cores = adapted("patches", "lora")
    inputs, labels = examples("patches")
    losses, _ = group_losses(cores, inputs, labels)
    losses.sum().backward()
    before = gradients(models)
    for parameter in models[1].parameters():
        if parameter.requires_grad:
            parameter.data.fill_(math.nan)
    for model in models:
        model.zero_grad()
    losses, _ = group_losses(cores, inputs, labels)
    losses.sum().backward()
    assert losses.isnan().tolist() == [False, True, False]
    for number in (0, 2):
        for name, gradient in gradients(models)[number].items():
            torch.testing.assert_close(gradient, before[number][name], msg=name)


def test_shared_weights_are_stored_once():
    _, cores = adapted("tokens", "lora")
    assert cores[0].blocks[0].key.weight is cores[2].blocks[0].key.weight
    assert cores[0].embed.weight is cores[1].embed.weight
    heads = [core.head.modules_to_save["default"].weight for core in cores]
    assert not torch.equal(heads[0], heads[1])
