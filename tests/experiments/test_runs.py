"""Runs trained together: against each run alone, torch's own layers, and what they tell."""

import math

import numpy as np
import pytest
import torch

from experiments.finetuning.adaptation import adapt
from experiments.finetuning.methods import Budget, find_method
from experiments.finetuning.settings import settings
from experiments.finetuning.tasks.transformer import (
    SmallTransformer,
    group_losses,
    use_parameters,
)

OF_PEFT = ("lora", "dora", "vera", "fourierft", "waveft", "shira", "c3a")
OF_LOCA = ("loca", "loca-v1", "loca-v3", "loca-swap", "loca-reselect")
METHODS = (*OF_PEFT, *OF_LOCA, "full", "bitfit", "linear-probing")
# PEFT builds the sparse increments of SHiRA from indices that it made itself.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")
FORMS = {
    "patches": {"patch": 6},
    "tokens": {"vocabulary": 11},
    "causal": {"vocabulary": 11, "causal": True},
}
RUNS, EXAMPLES, LENGTH, CLASSES = 3, 4, 5, 11


def examples(form):
    source = torch.Generator().manual_seed(0)
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
        logits, labels = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        return torch.nn.functional.cross_entropy(logits, labels)
    return torch.nn.functional.cross_entropy(logits[:, 0], labels)


def adapted(form, method):
    """Runs with other heads and adapters, whose trained numbers are not those of the start."""
    tuner, cores, models, first = find_method(method), [], [], {}
    for seed in range(RUNS):
        torch.manual_seed(seed)
        model = SmallTransformer(
            width=16, layers=2, heads=2, length=LENGTH, classes=CLASSES, **FORMS[form]
        )
        if not tuner.changes_body:
            use_parameters(model, first, lambda name: name.startswith("head"))
        first = first or dict(model.named_parameters())
        options = {"targets": ["query", "value"], "head": "head", "seed": seed}
        if tuner.kind == "loca":
            alternation = {"coefficient_steps": 1, "location_steps": 1, "alternating": 1.0}
            options["loca_defaults"] = alternation
        model = adapt(model, tuner, Budget(1, 20), **options)
        source = torch.Generator().manual_seed(seed)
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data += 0.1 * torch.randn(parameter.shape, generator=source)
        models.append(model)
        cores.append(model.get_base_model() if hasattr(model, "get_base_model") else model)
    return models, cores


def gradients(models, losses):
    for model in models:
        model.zero_grad()
    losses.sum().backward()
    return [
        {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        for model in models
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", METHODS)
def test_losses_and_gradients_are_those_of_each_run_alone(form, method):
    models, cores = adapted(form, method)
    inputs, labels = examples(form)
    losses, _ = group_losses(cores, inputs, labels)
    alone = torch.stack([naive_loss(*run) for run in zip(cores, inputs, labels, strict=True)])
    torch.testing.assert_close(losses, alone, rtol=1e-5, atol=1e-6)
    of_group, expected = gradients(models, losses), gradients(models, alone)
    for in_group, other in zip(of_group, expected, strict=True):
        assert in_group.keys() == other.keys()
        for name, gradient in in_group.items():
            torch.testing.assert_close(gradient, other[name], rtol=1e-4, atol=1e-6, msg=name)


def test_patterns_are_means_of_blocks_of_the_increments(begin):
    group = begin("full", rate=1e-2, block_side=4)
    group.train()
    (run,) = group.runs
    increments, means = run.increments(), run.block_means()
    assert list(means) == list(increments)  # two of two blocks
    for name, increment in increments.items():
        blocks = increment.numpy().reshape(16, 4, 16, 4).mean((1, 3))
        assert np.array(means[name]) == pytest.approx(blocks, rel=1e-3)


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_run_that_diverges_leaves_the_others_alone(begin, method):
    expected = begin(method, seeds=(0, 1, 2), rate=1e-3).train()
    group = begin(method, seeds=(0, 1, 2), rate=1e-3)
    group.runs[1].schedule.base_lrs = [1e30 for _ in group.runs[1].schedule.base_lrs]
    results = group.train()
    assert [run["diverged"] for run in results] == [False, True, False]
    assert (results[1]["metric"], results[1]["loss"]) == (None, None)
    for number in (0, 2):
        assert results[number]["loss"] == pytest.approx(expected[number]["loss"], rel=1e-4)
        last, expected_last = (result[number]["curve"][-1][1:3] for result in (results, expected))
        assert last == pytest.approx(expected_last, rel=1e-4)


def test_a_run_tells_the_metric_of_its_last_step(begin):
    group = begin("full", seeds=(0, 1), rate=1e-3, steps=7, every=3)
    results = group.train()
    looked = group.evaluate("validation", settings("digits", quick=True)["looks"])
    tested = group.evaluate("test")
    for number, (run, result) in enumerate(zip(group.runs, results, strict=True)):
        assert [entry[0] for entry in result["curve"]] == [3, 6, 7]
        means = [sum(run.losses[a:b]) / (b - a) for a, b in ((0, 3), (3, 6), (6, 7))]
        assert [entry[1] for entry in result["curve"]] == pytest.approx(means)
        assert result["curve"][-1][2:] == list(looked[number][:2])
        assert (result["loss"], result["metric"], result["parts"]) == tested[number]


@pytest.mark.parametrize("steps", [9, 25])
def test_early_losses_are_means_over_their_steps_if_there_are_as_many(begin, steps):
    group = begin("linear-probing", rate=1e-3, steps=steps, every=steps, tunes=True)
    (result,) = group.train()
    losses = group.runs[0].losses
    assert len(losses) == steps
    for name, part in {"loss_10": range(10), "loss_25": range(15, 25)}.items():
        mean = sum(losses[i] for i in part) / 10 if steps > part[-1] else None
        assert result[name] == (mean and pytest.approx(mean))
