"""Embeddings and convolutions with LoCA in PEFT, against a changed copy of the base layer."""

import copy

import pytest
import torch
from peft import get_peft_model
from torch import nn
from torch.nn import functional

from loca_theory.adapters import LoCAConfig, follow
from loca_theory.adapters.tuner.other_layers import layer_class
from loca_theory.transforms import dct2

from .searching import SEARCHES, close, dense, normal
from .tiny_models import of_peft

pytestmark = of_peft


class ScaledEmbedding(nn.Embedding):
    """An embedding with a scaled output, as some models of transformers have."""

    embed_scale = torch.tensor(1.7, dtype=torch.float64)

    def forward(self, ids):
        return super().forward(ids) * self.embed_scale


class Net(nn.Module):
    """One layer under the name ``layer``."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)


IDS = torch.tensor([[0, 3, 3, 10], [2, 7, 1, 0]])
LAYERS = {
    "embedding": lambda: nn.Embedding(11, 6),
    "embedding with padding": lambda: nn.Embedding(11, 6, padding_idx=3),
    "embedding by frequency": lambda: nn.Embedding(11, 6, scale_grad_by_freq=True),
    "scaled embedding": lambda: ScaledEmbedding(11, 6),
    "convolution": lambda: nn.Conv2d(3, 5, (2, 3)),
    "strided": lambda: nn.Conv2d(3, 5, 3, stride=(1, 2), padding=(2, 1), dilation=(2, 1)),
    "same": lambda: nn.Conv2d(3, 5, (5, 3), padding="same", bias=False),
    "circular": lambda: nn.Conv2d(3, 5, 3, padding=1, padding_mode="circular"),
    "unbatched": lambda: nn.Conv2d(3, 5, 3),
}
each_layer = pytest.mark.parametrize("kind", LAYERS)
both_kinds = pytest.mark.parametrize("kind", ["embedding", "strided"])


def input_of(kind):
    if "embedding" in kind:
        return IDS
    return normal(3, 6, 7) if kind == "unbatched" else normal(2, 3, 6, 7)


def base_of(kind):
    torch.manual_seed(0)
    return Net(LAYERS[kind]()).double()


def config_of(**options):
    settings = {"n_frequency": 8, "scaling": 1.5, "init_weights": False, "alternating_steps": 0}
    return LoCAConfig(target_modules=["layer"], **settings | options)


def adapted(kind, **options):
    return get_peft_model(base_of(kind), config_of(**options))


def layer_of(model):
    return model.base_model.model.layer


def in_layout(delta, weight):
    """ΔW, (outputs, inputs), in the layout of the weight: that of an embedding is transposed."""
    return delta.T if delta.shape[0] != weight.shape[0] else delta.reshape(weight.shape)


def changed(kind, *spectra):
    """The base layer with the dense increments in its weight."""
    model = base_of(kind)
    with torch.no_grad():
        for spectrum in spectra:
            model.layer.weight += in_layout(dense(spectrum), model.layer.weight)
    return model


def spectrum_of(model, name="default"):
    return layer_of(model).spectrum(name)


@each_layer
def test_the_output_and_gradients_are_those_of_the_changed_layer(kind):
    model, x = adapted(kind), input_of(kind)
    spectrum = spectrum_of(model)
    expected_model = changed(kind, spectrum)
    pair = [x, x] if x.dtype == torch.int64 else [x.clone().requires_grad_() for _ in range(2)]
    actual, expected = model(pair[0]), expected_model(pair[1])
    close(actual, expected)
    g = normal(*actual.shape, seed=9)
    actual.backward(g)
    expected.backward(g)
    of_weight = expected_model.layer.weight.grad
    of_delta = of_weight.T if "embedding" in kind else of_weight.flatten(1)
    rows, columns = spectrum.indices.T
    close(spectrum.coefficients.grad, 1.5 * dct2(of_delta)[rows, columns])
    if x.dtype != torch.int64:
        close(pair[0].grad, pair[1].grad)


@each_layer
def test_merging_puts_the_increment_into_the_weight(kind):
    model, x = adapted(kind), input_of(kind)
    base, expected = base_of(kind), changed(kind, spectrum_of(model))
    with model.disable_adapter():
        assert torch.equal(model(x), base(x))
    merged = model.merge_and_unload(safe_merge=True)
    assert type(merged.layer) is type(base.layer)
    close(merged.layer.weight, expected.layer.weight)
    close(merged(x), expected(x))


class Tokens(nn.Module):
    """The same layer as a linear one over tokens that are made by hand."""

    def __init__(self, base):
        super().__init__()
        weight = base.weight.detach()
        weight = weight.T if isinstance(base, nn.Embedding) else weight.flatten(1)
        self.layer = nn.Linear(weight.shape[1], weight.shape[0], bias=base.weight.ndim == 4)
        self.layer = self.layer.double()
        self.layer.weight.data = weight.clone()
        self.base = [base]
        if self.layer.bias is not None:
            self.layer.bias.data = base.bias.detach().clone()

    def forward(self, x):
        base = self.base[0]
        if isinstance(base, nn.Embedding):
            return self.layer(functional.one_hot(x, base.num_embeddings).double())
        patches = functional.unfold(x, base.kernel_size, base.dilation, base.padding, base.stride)
        return self.layer(patches.mT).mT.reshape(base(x).shape)


@both_kinds
@pytest.mark.parametrize("start", ["random", "gradient"])
@pytest.mark.parametrize("search", SEARCHES)
def test_every_search_moves_as_in_a_linear_layer_over_tokens(kind, search, start):
    schedule = {"coefficient_steps": 2, "location_steps": 2, "alternating_steps": 16}
    options = {**schedule, "location_lr": 0.3, "recorded_steps": 2, "location_search": search}
    config = config_of(**options, init_locations=start)
    x = input_of(kind)
    bases = [base_of(kind), Tokens(base_of(kind).layer)]
    models = []
    for base in bases:
        torch.manual_seed(1)  # the same coefficients in both
        models.append(get_peft_model(base, copy.copy(config)))
    first = spectrum_of(models[0]).indices.clone()
    target = normal(*models[0](x).shape, seed=4)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.02) for m in models]
    for model, optimizer in zip(models, optimizers, strict=True):
        follow(model, optimizer)
    for _ in range(18):
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            (model(x) - target).square().sum().backward()
            optimizer.step()
        ours, linear = map(spectrum_of, models)
        assert torch.equal(ours.indices, linear.indices)
        # 18 steps, each of which may enlarge the rounding of the one before.
        close(ours.coefficients, linear.coefficients, 1e-9)
    # `swap` moves a component only if that pays, which it need not do here.
    assert search == "swap" or not torch.equal(ours.indices, first)
    assert not ours.is_searching


@both_kinds
def test_bfloat16_layers_train_in_float32(kind):
    base = base_of(kind).bfloat16()
    model = get_peft_model(copy.deepcopy(base), config_of())
    x = input_of(kind)
    x = x.bfloat16() if x.is_floating_point() else x
    spectrum = spectrum_of(model)
    assert spectrum.coefficients.dtype == torch.float32
    y = model(x)
    assert y.dtype == torch.bfloat16
    base.double()
    with torch.no_grad():
        base.layer.weight += in_layout(dense(spectrum), base.layer.weight)
    # Each of the two terms and their sum is rounded to 8 bits.
    close(y.double(), base(x if x.dtype == torch.int64 else x.double()), 3 * 2**-8)
    y.float().sum().backward()
    assert spectrum.coefficients.grad.abs().sum() > 0


@pytest.mark.parametrize("base", [nn.Embedding(4, 3), nn.Conv2d(2, 3, 1), nn.Linear(4, 3)], ids=str)
def test_peft_converts_linear_layers_alone_to_lora(base):
    layer = layer_class(base)(base, "layer")
    assert layer.supports_lora_conversion() == isinstance(base, nn.Linear)
