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

from .searching import close, dense, normal, recording
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


SEARCHED = {
    "location_search": "reselect",
    "location_lr": 0.3,
    "alternating_steps": 9,
    "coefficient_steps": 1,
    "location_steps": 2,
    "recorded_steps": 1,
}


def adapted(kind, **options):
    return get_peft_model(base_of(kind), config_of(**options))


def in_layout(delta, weight):
    """ΔW, (outputs, inputs), in the layout of the weight: that of an embedding is transposed."""
    return delta.T if delta.shape[0] != weight.shape[0] else delta.reshape(weight.shape)


def changed(kind, spectrum, without=()):
    """The base layer with the dense increment in its weight."""
    model = base_of(kind)
    with torch.no_grad():
        model.layer.weight += in_layout(dense(spectrum, without), model.layer.weight)
    return model


def spectrum_of(model):
    return model.base_model.model.layer.spectrum("default")


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


def tokens_of(layer, x):
    """The inputs of the same layer as a linear one: indicators of indices, or patches."""
    if isinstance(layer, nn.Embedding):
        return functional.one_hot(x, layer.num_embeddings).double().flatten(0, 1)
    patches = functional.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    return patches.mT.flatten(0, 1)


@both_kinds
def test_a_search_records_the_tokens_of_a_linear_layer_and_leaves_out_what_it_dropped(kind):
    model, x = adapted(kind, **SEARCHED), input_of(kind)
    spectrum = recording(spectrum_of(model), 2)
    assert spectrum.dropped.any()
    plain = changed(kind, spectrum, without=spectrum.dropped.nonzero()[:, 0].tolist())
    y, expected = model(x), plain(x)
    close(y, expected)
    g = normal(*y.shape, seed=4)
    y.backward(g)
    expected.backward(g)
    spectrum.search.before_step()
    of_weight, tokens = plain.layer.weight.grad, tokens_of(plain.layer, x)
    of_delta = of_weight.T if kind == "embedding" else of_weight.flatten(1)
    close(spectrum.recorded.gradient(), 1.5 * dct2(of_delta).flatten())
    rows = g.flatten(0, 1) if kind == "embedding" else g.flatten(2).mT.flatten(0, 1)
    powers = [dct2(matrix.T @ matrix).diagonal() for matrix in (rows, tokens)]
    everywhere = torch.cartesian_prod(*(torch.arange(len(power)) for power in powers))
    close(spectrum.recorded.curvature(everywhere, 1), 1.5**2 * torch.outer(*powers).flatten())


@pytest.mark.parametrize("search", ["central", "reselect"])
@both_kinds
def test_locations_are_searched_for(kind, search):
    model, x = adapted(kind, **SEARCHED | {"location_search": search}), input_of(kind)
    optimizer, spectrum = torch.optim.AdamW(model.parameters(), lr=0.02), spectrum_of(model)
    follow(model, optimizer)
    before = spectrum.indices.clone()
    for _ in range(10):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    assert not torch.equal(spectrum.indices, before)
    assert not spectrum.is_searching


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
