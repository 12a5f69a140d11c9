"""LoCA on quantised base layers: with stand-ins, and with the packages that are installed."""

import warnings
from importlib import import_module
from types import SimpleNamespace

import pytest
import torch
from peft import get_peft_model
from peft.utils.quantization_utils import QuantizationBackend
from torch import nn

from loca_theory.adapters import LoCAConfig, LoCALinear
from loca_theory.adapters.tuner import quantised
from loca_theory.errors import InvalidArgumentError

N = 64  # the group size of HQQ and the block size of bitsandbytes


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(N, N)
        self.second = nn.Linear(N, N)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def net(replace):
    """A net whose layers ``replace`` has quantised."""
    torch.manual_seed(0)
    model = Net()
    model.first, model.second = replace(model.first), replace(model.second)
    return model


def adapted(base, adapters=("default",)):
    """LoCA with an increment that is larger than the errors of quantisation."""
    config = LoCAConfig(n_frequency=40, target_modules=["first", "second"], init_weights=False)
    model = get_peft_model(base, config, adapter_name=adapters[0])
    for name in adapters[1:]:
        model.add_adapter(name, config)
    for layer in layers(model):
        for name in adapters:
            nn.init.normal_(layer.spectrum(name).coefficients, std=4.0)
    return model.eval()


def layers(model):
    return [model.base_model.model.first, model.base_model.model.second]


def inputs():
    return torch.randn(16, N, generator=torch.Generator().manual_seed(1))


def weight_of(layer):
    """The weight of the base layer, from what it does."""
    base = layer.get_base_layer()
    with torch.no_grad():
        return (base(torch.eye(N)) - base(torch.zeros(1, N))).T.float()


def check_forward_and_training(model, rounding):
    first, x = layers(model)[0], inputs()
    with torch.no_grad():
        expected = first.base_layer(x) + x @ first.get_delta_weight("default").T
        scale = expected.abs().max().item()
        torch.testing.assert_close(first(x), expected, rtol=0, atol=rounding * scale)
        plain = layers(model)[1].base_layer(torch.relu(first.base_layer(x)))
    model(x).square().mean().backward()
    assert all(layer.spectrum("default").coefficients.grad.any() for layer in layers(model))
    with torch.no_grad(), model.disable_adapter():
        scale = plain.abs().max().item()
        torch.testing.assert_close(model(x), plain, rtol=0, atol=rounding * scale)


def check_merging(model, error):
    """Merge and unmerge; ``error`` is that of quantisation, in units of the largest weight."""
    before = [weight_of(layer) for layer in layers(model)]
    bias = [layer.base_layer.bias.clone() for layer in layers(model)]
    names = model.active_adapters
    model.merge_adapter(names)
    for layer, weight in zip(layers(model), before, strict=True):
        expected = weight + sum(layer.get_delta_weight(name) for name in names)
        atol = error * expected.abs().max().item()
        torch.testing.assert_close(weight_of(layer), expected, rtol=0, atol=atol)
        assert (expected - weight).abs().max() > 3 * atol
    largest = max(weight_of(layer).abs().max().item() for layer in layers(model))
    model.unmerge_adapter()
    for layer, weight, b in zip(layers(model), before, bias, strict=True):
        # The errors of the merged weight and of the one that is quantised again.
        torch.testing.assert_close(weight_of(layer), weight, rtol=0, atol=2 * error * largest)
        torch.testing.assert_close(layer.base_layer.bias, b, rtol=0, atol=1e-2)  # bitsandbytes
    assert all("loca_" in name for name, p in model.named_parameters() if p.requires_grad)


# --- stand-ins: without any quantisation package ---


class EightBits(nn.Module):
    """A layer of integers, which is not an ``nn.Linear``."""

    def __init__(self, linear):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        self.qweight = None
        self.quantise(linear.weight.data)

    def quantise(self, weight):
        self.scale = weight.abs().max() / 127
        self.qweight = (weight / self.scale).round().to(torch.int8)

    def forward(self, x):
        return nn.functional.linear(x, self.qweight * self.scale, self.bias)


HALF_A_STEP = 0.5 / 127 * 1.01


class Backend(QuantizationBackend):
    layer_type, supports_merge, backend_name = "linear", True, "stand-in"

    def __init__(self):
        self.writes = self.clones = 0

    def get_base_weight(self, base_layer):
        return base_layer.qweight * base_layer.scale

    def set_base_weight(self, peft_layer, weight_data):
        self.writes += 1
        peft_layer.get_base_layer().quantise(weight_data)

    def maybe_clone_base_result(self, x):
        self.clones += 1
        return x.clone()


@pytest.fixture
def backend(monkeypatch):
    eight_bits = Backend()
    monkeypatch.setattr(
        quantised,
        "resolve_quantization_backend",
        lambda base, **_: eight_bits if isinstance(base, EightBits) else None,
    )
    warnings.filterwarnings("ignore", message="Unsupported layer type")
    return eight_bits


@pytest.mark.parametrize("names", [["default"], ["default", "other"]], ids=str)
def test_a_backend_of_peft_trains_and_merges_and_quantises_once(backend, names):
    check_forward_and_training(adapted(net(EightBits)), rounding=1e-5)
    assert backend.clones > 0
    model = adapted(net(EightBits), names)
    assert "quantization_backend='stand-in'" in repr(layers(model)[0])
    assert {s.quantization_backend for s in model.get_layer_status()} == {"stand-in"}
    model.base_model.set_adapter(names)
    check_merging(model, error=HALF_A_STEP)
    assert backend.writes == 2 * len(layers(model))


@pytest.mark.parametrize("error", [TypeError, NotImplementedError])
def test_what_cannot_be_merged_is_refused_in_one_line(backend, monkeypatch, error):
    def refuse(_):
        msg = "of PEFT"
        raise error(msg)

    model = adapted(net(EightBits))
    monkeypatch.setattr(backend, "get_base_weight", refuse)
    message = r"^first: its weight is quantised, .* \(of PEFT\); use the adapter unmerged$"
    with pytest.raises(InvalidArgumentError, match=message):
        model.merge_adapter()
    assert backend.writes == 0
    assert not layers(model)[0].merged


# --- the packages themselves ---


def bnb_8bit(linear):
    layer = import_module("bitsandbytes").nn.Linear8bitLt(N, N, has_fp16_weights=False)
    layer.load_state_dict(linear.state_dict())
    return layer.to("cpu")


def bnb_4bit(linear):
    settings = {"quant_type": "nf4", "compute_dtype": torch.float32}
    layer = import_module("bitsandbytes").nn.Linear4bit(N, N, **settings)
    layer.load_state_dict(linear.state_dict())
    return layer.to("cpu")


def hqq(linear):
    core = import_module("hqq.core.quantize")
    settings = core.BaseQuantizeConfig(nbits=4, group_size=N)
    return core.HQQLinear(linear, settings, compute_dtype=torch.float32, device="cpu")


def eight_bits_of_torchao():
    return import_module("torchao.quantization").Int8WeightOnlyConfig(version=2)


def torchao(linear):
    import_module("torchao").quantize_(linear, eight_bits_of_torchao())
    return linear


# The package; rounding of a forward pass (bitsandbytes computes in float16 or bfloat16); the error
# of quantisation in units of the largest weight. 8 bits: half a step of 1/127, and float16. NF4:
# half of its widest gap, 0.304, and 8-bit block scales. HQQ: a step of 2/15, since it does not take
# the nearest value.
PACKAGES = {
    bnb_8bit: ("bitsandbytes", 2e-2, 0.6 / 127),
    bnb_4bit: ("bitsandbytes", 2e-2, 0.16),
    hqq: ("hqq", 1e-5, 2 / 15),
    torchao: ("torchao", 1e-5, 0.6 / 127),
}


def of_package(replace):
    """A net quantised by the package; skipped where it is not installed."""
    pytest.importorskip(PACKAGES[replace][0])
    model = net(replace)
    if replace is torchao:  # as transformers has it
        config = SimpleNamespace(get_apply_tensor_subclass=eight_bits_of_torchao)
        model.hf_quantizer = SimpleNamespace(quantization_config=config)
    return model


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore")  # what these packages say when they are imported
@pytest.mark.parametrize("replace", PACKAGES, ids=lambda f: f.__name__)
def test_a_package_s_layers_train_and_merge_before_and_after_they_are_used(replace):
    _, rounding, error = PACKAGES[replace]
    check_forward_and_training(adapted(of_package(replace)).train(), rounding)
    check_merging(adapted(of_package(replace)), error)
    model = adapted(of_package(replace))
    expected = adapted(of_package(replace))(inputs())
    merged = model.merge_and_unload()
    assert not any(hasattr(m, "loca_spectrum") for m in merged.modules())
    # A random error per weight, of two layers that widen it by their norms of up to sqrt(N) / 2.
    assert (merged(inputs()) - expected).norm() / expected.norm() < error * 4


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore")
def test_torchao_without_a_configuration_trains_and_is_not_merged():
    pytest.importorskip("torchao")
    model = adapted(net(torchao))
    check_forward_and_training(model, rounding=1e-5)
    with pytest.raises(InvalidArgumentError, match=r"first: its weight is quantised, .* torchao"):
        model.merge_adapter()
    layer = LoCALinear(net(torchao).first, 5, name="alone")
    with pytest.raises(InvalidArgumentError, match=r"alone: its weight is quantised \(Int8Tensor"):
        layer.merge()
