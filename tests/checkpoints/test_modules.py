"""Modules in memory that cannot be copied, are not initialised, or hold more than tensors."""

import copy
import os
import threading
from functools import cache, partial
from importlib import import_module
from pathlib import Path

import pytest
import torch
import transformers
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.utils import prune, spectral_norm

from loca_theory.checkpoints import analyze, extract
from loca_theory.errors import InvalidArgumentError
from tests.checkpoints.zoo import fine_tuned, make

SIZE = 32  # the group size of HQQ and torchao below
BOTH = ("first.weight", "second.weight")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)

    def forward(self, x):
        return self.second(self.first(x))


class WithState(nn.Linear):
    """A layer whose state dict has an object."""

    def get_extra_state(self):
        return {"calls": 3}

    def set_extra_state(self, state):
        pass


def nets(change=lambda net: net):
    """A base and its fine-tune."""
    base, tuned = Net(), Net()
    torch.manual_seed(0)
    with torch.no_grad():
        for weight, other in zip(base.parameters(), tuned.parameters(), strict=True):
            other.copy_(weight.normal_() + 0.1 * torch.randn_like(weight))
    return change(base), change(tuned)


def with_lock(net):
    net.lock = threading.Lock()
    return net


def with_file(net):
    net.file = Path(os.devnull).open()  # noqa: SIM115
    return net


def with_state(net):
    layer = WithState(SIZE, SIZE)
    layer.load_state_dict({**net.first.state_dict(), "_extra_state": None})
    net.first = layer
    return net


def with_lazy_layer(net):
    net.third = nn.LazyLinear(SIZE)
    return net


def sharded(net):
    mesh = init_device_mesh("cpu", (1,))
    fully_shard(net.first, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def used(net):
    """Run it once, so that its computed weights are not leaves of autograd."""
    net(torch.ones(1, SIZE))
    return net


def of_torch(net):
    return torch.ao.quantization.quantize_dynamic(net, {"first"}, torch.qint8)


def of_torchao(net):
    quantization = pytest.importorskip("torchao.quantization")
    quantization.quantize_(net.first, quantization.Int8WeightOnlyConfig(version=2))
    return net


def of_bitsandbytes(net):
    layer = pytest.importorskip("bitsandbytes").nn.Linear4bit(SIZE, SIZE, quant_type="nf4")
    layer.load_state_dict(net.first.state_dict())
    net.first = layer.to("cpu")
    return net


def of_hqq(net):
    pytest.importorskip("hqq")
    core = import_module("hqq.core.quantize")
    settings = core.BaseQuantizeConfig(nbits=4, group_size=SIZE)
    net.first = core.HQQLinear(net.first, settings, compute_dtype=torch.float32, device="cpu")
    return net


PARTS, DEQUANTISE = "parametrised", "dequantise the model with its own library"
# How the nets are changed, which weights are analysed, and why the others are not.
MODULES = {
    "a lock": (with_lock, BOTH, {}),
    "an open file": (with_file, BOTH, {}),
    "data parallel": (nn.DataParallel, BOTH, {}),
    "distributed": (nn.parallel.DistributedDataParallel, BOTH, {}),
    "compiled": (torch.compile, BOTH, {}),
    "sharded": (sharded, BOTH, {}),
    "an object in the state": (with_state, BOTH, {"first._extra_state": "not a tensor: dict"}),
    "a lazy layer": (
        with_lazy_layer,
        BOTH,
        {"third.weight": "not initialised yet; run the model once"},
    ),
    "spectral norm": (
        lambda net: used(spectral_norm(net.first) and net),
        BOTH[1:],
        {BOTH[0]: PARTS},
    ),
    "pruned": (
        lambda net: used(prune.random_unstructured(net.first, "weight", 0.5) and net),
        BOTH[1:],
        {BOTH[0]: PARTS},
    ),
    "int8 of torch": (of_torch, BOTH[1:], {BOTH[0]: f"quantised (qint8); {DEQUANTISE}"}),
    "torchao": (of_torchao, BOTH[1:], {BOTH[0]: f"quantised (Int8Tensor); {DEQUANTISE}"}),
    "bitsandbytes": (of_bitsandbytes, BOTH[1:], {BOTH[0]: f"quantised (uint8); {DEQUANTISE}"}),
    "HQQ": (of_hqq, BOTH[1:], {BOTH[0]: f"quantised (uint8); {DEQUANTISE}"}),
}
PACKAGES = ("torchao", "bitsandbytes", "HQQ")
CASES = [pytest.param(name, marks=[pytest.mark.deep] * (name in PACKAGES)) for name in MODULES]


def analysed(base, tuned):
    analysis = analyze(base, tuned, ranks=2)
    return {
        row.name: row.error for row in analysis.errors if row.method == "LoRA"
    }, analysis.skipped


def extracted(base, tuned):
    extraction = extract(base, tuned, "lora", rank=2)
    return {row.name: row.error for row in extraction.matrices}, extraction.skipped


@cache
def plain_errors(run):
    return run(*nets())[0]


def in_memory(net):
    return net


@pytest.mark.filterwarnings("ignore")  # what the packages say when they are imported
@pytest.mark.parametrize(
    ("run", "form"),
    [(analysed, in_memory), (extracted, in_memory), (analysed, nn.Module.state_dict)],
)
@pytest.mark.parametrize("name", CASES)
def test_a_module_is_analysed_as_a_plain_one(group, name, run, form):
    """What of it cannot be read is left out, beside one that can be read, too."""
    change, weights, said = MODULES[name]
    expected = plain_errors(run)
    for sides in (nets(change), (nets()[0], nets(change)[1])):
        errors, skipped = run(*map(form, sides))
        # The state dict of what runs a model has its prefix.
        ends = {name[-len(BOTH[-1]) :].lstrip("."): error for name, error in errors.items()}
        assert ends == {name: expected[name] for name in weights}
        reasons = {row.name: row.reason for row in skipped}
        assert all(reasons[name].startswith(reason) for name, reason in said.items())


def test_a_sharded_model_is_checked_in_one_of_its_class(group):
    """Torch does not copy it, and transformers makes another."""
    sides = make("Llama"), fine_tuned(make("Llama"))
    expected = extract(*sides, "lora", rank=2)
    mesh = init_device_mesh("cpu", (1,))
    extraction = extract(
        *(fully_shard(side, mesh=mesh) for side in sides), "lora", rank=2, check=True
    )
    assert extraction.matrices == expected.verify().matrices
    assert not extraction.disagreements


def test_a_weight_of_weight_normalisation_is_of_the_model_and_has_no_adapter():
    """A fine-tune as a state dict has it in the model that it is loaded into."""
    settings = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "vocab_size": 9,
        "intermediate_size": 48,
        "conv_dim": (32,),
        "conv_stride": (2,),
        "conv_kernel": (3,),
        "num_feat_extract_layers": 1,
        "num_conv_pos_embeddings": 4,
        "num_conv_pos_embedding_groups": 2,
    }
    config = transformers.Wav2Vec2Config(**settings)
    torch.manual_seed(0)
    base = transformers.Wav2Vec2ForCTC(config).eval()
    tuned = fine_tuned(copy.deepcopy(base))
    name = "wav2vec2.encoder.pos_conv_embed.conv.weight"
    assert name in {row.name for row in analyze(base, tuned, ranks=1).matrices}
    inputs = {"input_values": torch.linspace(-1, 1, 200)[None] ** 3}
    run = partial(extract, method="lora", rank=2, check=True, inputs=inputs)
    extraction, other = run(base, tuned), run(base, tuned.state_dict())
    assert {row.name: row.reason for row in extraction.skipped}[name].startswith(
        "parametrised: PEFT"
    )
    for row, same in zip(extraction.outputs, other.outputs, strict=True):
        # Its parts in float32 are other numbers of the same product.
        assert same.error == pytest.approx(row.error, rel=1e-4)


def test_what_cannot_be_copied_nor_made_anew_is_not_checked():
    with pytest.raises(
        InvalidArgumentError, match=r"^Net cannot be copied.*; leave the check out$"
    ):
        extract(*nets(with_lock), "lora", rank=2, check=True)


def test_what_runs_a_model_is_no_part_of_its_names(group):
    sides = nets(nn.parallel.DistributedDataParallel)
    assert extract(*sides, "lora", rank=2, check=True).manifest["grid"]["model"] == "Net"


def test_a_state_dict_that_fails_is_one_line():
    net = with_state(Net())
    net.first.get_extra_state = lambda: 1 / 0
    with pytest.raises(
        InvalidArgumentError, match=r"^the state dict of Net cannot be made: division"
    ):
        analyze(net, net)
