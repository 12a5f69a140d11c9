"""Adapters of PEFT as increments, against what PEFT merges."""

from __future__ import annotations

import copy
import json
import pickle
import re
import sys
from dataclasses import fields

import peft
import pytest
import torch
import transformers
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from safetensors.torch import load_file, save_file

from loca_theory.adapters import LoCAConfig
from loca_theory.checkpoints.adapters.increments import AdapterIncrements
from loca_theory.checkpoints.adapters.kinds import KNOWN, AdapterKind
from loca_theory.checkpoints.pairs.opening import open_pair
from loca_theory.checkpoints.pairs.selection import Selection
from loca_theory.checkpoints.weights.checkpoint import DamagedError
from loca_theory.checkpoints.weights.sources import open_checkpoint
from loca_theory.errors import InvalidArgumentError, ResourceError

FLOAT32 = 2.0**-24
FILE, CONFIG = "adapter_model.safetensors", "adapter_config.json"


class Block(torch.nn.Module):
    """Layers of each sort that adapters change; never run."""

    def __init__(self):
        super().__init__()
        self.q = torch.nn.Linear(32, 48)
        self.v = torch.nn.Linear(32, 32, bias=False)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(40, 32)
        self.conv = torch.nn.Conv2d(4, 24, 3)
        self.layers = torch.nn.ModuleList([Block(), Block()])
        self.classifier = torch.nn.Linear(32, 3)


def model():
    torch.manual_seed(0)
    return Model()


def adapt(folder, config, original=None):
    """Save the base and an adapter with random numbers; returns both paths and the model."""
    original = original or model()
    folder.mkdir(exist_ok=True, parents=True)
    base = {name: one.clone() for name, one in original.state_dict().items()}
    save_file(base, folder / "base.safetensors")
    tuned = peft.get_peft_model(original, config)
    generator = torch.Generator().manual_seed(1)
    for _, one in tuned.named_parameters():
        if one.requires_grad:
            one.data += 0.1 * torch.randn(one.shape, generator=generator)
    tuned.save_pretrained(folder / "adapter")
    return folder / "base.safetensors", folder / "adapter"


def merged(folder, original, dtype=torch.float64):
    """The differences of all weights that PEFT itself merges."""
    before = {name: one.to(dtype).clone() for name, one in original.state_dict().items()}
    tuned = peft.PeftModel.from_pretrained(original.to(dtype), folder)
    after = tuned.merge_and_unload().state_dict()
    return {name: after[name] - one for name, one in before.items() if name in after}


def config_of(kind, **settings):
    return PEFT_TYPE_TO_CONFIG_MAPPING[kind](**{"target_modules": ["q", "v"], **settings})


BLOCKS = peft.tuners.lora.BdLoraConfig(
    target_modules_bd_a=["q"], target_modules_bd_b=["v"], nblocks=2
)
# The settings of each type, and of its variants.
CASES = {
    "ADALORA": {"total_step": 10, "init_r": 4, "target_r": 2},
    "BOFT": {"boft_block_size": 8, "boft_n_butterfly_factor": 2},
    "C3A": {"block_size": 8},
    "DEFT": {},
    "DELORA": {"r": 4},
    "FOURIERFT": {"n_frequency": 20, "scaling": 3.0},
    "FOURIERFT pattern": {"n_frequency": 20, "n_frequency_pattern": {"layers.1.v": 30}},
    "GLORA": {},
    "GRALORA": {"r": 4, "alpha": 8},
    "HIRA": {},
    "HRA": {"r": 4},
    "HRA with Gram-Schmidt": {"r": 4, "apply_GS": True},
    "IA3": {"feedforward_modules": ["v"]},
    "LOCA": {"n_frequency": 20, "scaling": 2.0},
    "LOHA": {"r": 4, "alpha": 8},
    "LOKR": {"r": 4, "alpha": 8},
    "LOKR of two factors": {"r": 2, "decompose_both": True, "alpha": 8},
    "MISS": {"r": 8},
    "MISS bat": {"r": 8, "init_weights": "bat"},
    "OFT": {"oft_block_size": 8},
    "OFT shared": {"oft_block_size": 8, "block_share": True},
    "OSF": {"effective_rank": 8},
    "PEANUT": {"r": 4},
    "PVERA": {"r": 16},
    "RANDLORA": {"r": 4},
    "ROAD": {"group_size": 8},
    "SHIRA": {"r": 2},
    "SUPERTUNING": {},
    "VBLORA": {"num_vectors": 30, "vector_length": 8, "topk": 2},
    "VERA": {"r": 16},
    "VERA without its projections": {"r": 16, "save_projection": False},
    "WAVEFT": {"n_frequency": 20},
    "WAVEFT by size": {"n_frequency": 20, "proportional_parameters": True},
    "LORA with DoRA": {"r": 4, "use_dora": True},
    "LORA with KaSA": {"r": 4, "kasa_config": peft.KasaConfig()},
    "LORA of diagonal blocks": {"r": 4, "use_bdlora": BLOCKS},
}
WEIGHTS = [f"layers.{i}.{one}.weight" for i in (0, 1) for one in "qv"]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_every_type_is_what_peft_merges(tmp_path, case):
    kind = case.partition(" ")[0]
    base, adapter = adapt(tmp_path, config_of(kind, **CASES[case]))
    expected = merged(adapter, model())
    pair = open_pair(base, adapter)
    assert sorted(pair.names) == WEIGHTS
    for name in pair.names:
        found = pair.increment(name)
        assert found.dtype == torch.float32
        scale = expected[name].abs().max().item()
        assert scale > 1e-4
        # PEFT's operations in float64, and one rounding to float32.
        torch.testing.assert_close(found.double(), expected[name], rtol=0, atol=FLOAT32 * scale)
    if kind == "LOCA":
        alone = open_pair(adapter)
        assert sorted(alone.names) == WEIGHTS
        for name in alone.names:
            assert torch.equal(alone.increment(name), pair.increment(name))
    else:
        with pytest.raises(InvalidArgumentError, match="pass the base as well: BASE ADAPTER"):
            open_pair(adapter)


class Convolutions(torch.nn.Module):
    """Kernels of each sort: of one entry, in groups, and with as many inputs as outputs."""

    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Conv2d(4, 24, 3)
        self.point = torch.nn.Conv2d(18, 20, 1)
        self.square = torch.nn.Conv2d(16, 16, 3)
        self.grouped = torch.nn.Conv2d(8, 24, 3, groups=2)
        self.single = torch.nn.Conv2d(32, 32, 5, groups=32)
        self.line = torch.nn.Conv1d(6, 20, 3)


KERNELS = ["wide", "point", "square", "grouped", "single"]
CONVOLUTIONS = {
    "LOHA": {"r": 4, "target_modules": [*KERNELS, "line"]},
    "LOHA of kernels": {
        "r": 4, "use_effective_conv2d": True, "target_modules": [*KERNELS, "line"],
    },
    "IA3 of outputs": {"target_modules": KERNELS, "feedforward_modules": []},
    "IA3 of inputs": {"target_modules": KERNELS, "feedforward_modules": KERNELS},
    "IA3 of some": {
        "target_modules": ".*(wide|square|grouped)", "feedforward_modules": ".*(square|grouped)",
    },
    "LOCA": {"n_frequency": 20, "target_modules": ["wide", "square"]},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_are_what_peft_merges(tmp_path, case):
    config = config_of(case.partition(" ")[0], **CONVOLUTIONS[case])
    torch.manual_seed(0)
    original = Convolutions()
    base, folder = adapt(tmp_path, config, copy.deepcopy(original))
    expected = merged(folder, original)
    pair = open_pair(base, folder)
    assert set(pair.names) == {name for name, one in expected.items() if one.ndim > 1 and one.any()}
    for name in pair.names:
        found, want = pair.increment(name).double(), expected[name].flatten(1)
        assert (found - want).norm() < 1e-5 * want.norm()


def test_every_type_and_option_of_peft_is_decided(tmp_path):
    """What PEFT has beyond these would be taken for plain LoRA, or be called unknown."""
    known = {getattr(kind, "value", kind) for kind in PEFT_TYPE_TO_CONFIG_MAPPING}
    assert set(KNOWN) <= known
    for kind in known - set(KNOWN):
        match = f"is an adapter of type {kind}, which [^n]|whose"
        with pytest.raises(InvalidArgumentError, match=match):
            AdapterKind.of({"peft_type": kind}, tmp_path)
    by_name = {one.name: one for one in fields(peft.LoraConfig)}
    variants = {name for name, one in by_name.items() if one.metadata.get("is_lora_variant")}
    not_lora = variants - {"velora_config", "monteclora_config"}
    refused = {"alora_invocation_tokens", "arrow_config"}
    for option in not_lora - refused:
        assert AdapterKind.of({"peft_type": "LORA", option: True}, tmp_path).needs_weights
    for option in refused:
        with pytest.raises(InvalidArgumentError, match=f"LORA with {option}, wh"):
            AdapterKind.of({"peft_type": "LORA", option: True}, tmp_path)


# --- LoRA from its factors -----------------------------------------------------------------------

LORA = {
    "plain": {},
    "rank-stabilised": {"use_rslora": True},
    "patterns": {"rank_pattern": {"q": 2, "layers.1.v": 6}, "alpha_pattern": {"^layers.0.v": 1}},
    "biases": {"lora_bias": True, "target_modules": ["q"], "bias": "lora_only"},
    "Gaussian": {"init_lora_weights": "gaussian"},
    "orthogonal": {"init_lora_weights": "orthogonal"},
    "MiCA": {"init_lora_weights": "mica"},
    "VeLoRA": {"velora_config": {"num_groups": 8}},
    "embedding": {"target_modules": ["embed", "q"]},
    "convolution": {"target_modules": ["conv", "v"]},
    "embedding with DoRA": {"target_modules": ["embed"], "use_dora": True},
    "convolution with DoRA": {"target_modules": ["conv"], "use_dora": True},
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", LORA)
def test_lora_is_what_peft_merges(tmp_path, case):
    base, folder = adapt(tmp_path, config_of("LORA", r=4, lora_alpha=6, **LORA[case]))
    # PEFT computes the start of MiCA in float32 only, before it loads the factors.
    expected = merged(folder, model(), torch.float32 if case == "MiCA" else torch.float64)
    with_base = AdapterIncrements(folder, open_checkpoint(base))
    changed = {name for name, one in expected.items() if one.any() and one.ndim > 1}
    assert set(with_base.entries) == changed
    factors = load_file(folder / FILE).values()
    # Each entry is a sum of at most 6 products, scaled, of factors below the largest.
    largest = max(float(one.abs().max()) for one in factors) ** 2
    for name, entry in with_base.entries.items():
        found = with_base.load(name)
        assert entry.shape == tuple(found.shape)
        atol = (6 + 3) * 6 * 3 * largest * FLOAT32
        torch.testing.assert_close(found.to(expected[name]), expected[name], rtol=0, atol=atol)
    if not with_base.needs_base:
        alone = AdapterIncrements(folder)
        assert alone.entries == with_base.entries
        for name in alone.entries:
            assert torch.equal(alone.load(name), with_base.load(name))


@pytest.mark.parametrize("scale", [1e-25, 1e25], ids=str)
def test_factors_whose_product_single_precision_cannot_hold(tmp_path, scale):
    _, folder = adapt(tmp_path, config_of("LORA", r=4))
    expected = open_pair(folder).increment(WEIGHTS[0])
    save_file({name: scale * one for name, one in load_file(folder / FILE).items()}, folder / FILE)
    found = open_pair(folder).increment(WEIGHTS[0])
    largest = expected.abs().max().item()
    # Roundings of scaled entries, and of both products.
    torch.testing.assert_close(
        found / scale**2, expected.double(), rtol=0, atol=(2 + 2 * 5) * 4 * FLOAT32 * largest
    )


def test_layers_of_an_unknown_class_follow_the_configuration(tmp_path):
    _, folder = adapt(tmp_path, config_of("LORA", r=4))
    expected = open_pair(folder).increment(WEIGHTS[0])
    rewrite(folder, fan_in_fan_out=True)
    assert torch.equal(open_pair(folder).increment(WEIGHTS[0]), expected.T)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore:The following rank_pattern keys")
def test_a_pruned_adalora_is_what_peft_merges(tmp_path):
    config = config_of("ADALORA", total_step=10, init_r=4, target_r=2)
    tuned = peft.get_peft_model(model(), config)
    generator = torch.Generator().manual_seed(1)
    for name, one in tuned.named_parameters():
        if "lora_" in name:
            one.data += 0.1 * torch.randn(one.shape, generator=generator)
    ranks = ([True, False, True, False], [False, True, False, False], [True] * 4, [False] * 4)
    kept = {f"{name[:-7]}.lora_E.default": one for name, one in zip(WEIGHTS, ranks, strict=True)}
    tuned.peft_config["default"].rank_pattern = kept
    tuned.save_pretrained(tmp_path)
    expected = merged(tmp_path, model())
    base = open_checkpoint(model().state_dict())
    increments = AdapterIncrements(tmp_path, base)
    for name, one in zip(WEIGHTS, ranks, strict=True):
        found, scale = increments.load(name), expected[name].abs().max().item()
        assert (scale > 1e-4) == any(one)
        torch.testing.assert_close(found.double(), expected[name], rtol=0, atol=FLOAT32 * scale)
    rewrite(tmp_path, init_r=8)
    with pytest.raises(DamagedError, match="rank_pattern does not have init_r=8 entries"):
        AdapterIncrements(tmp_path, base).load(WEIGHTS[0])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_psoft_is_what_peft_merges(tmp_path):
    """PSOFT rotates the leading singular directions of W, in float32 only."""
    base, folder = adapt(tmp_path, config_of("PSOFT", r=4))
    expected = merged(folder, model(), torch.float32)
    before = load_file(base)
    pair = open_pair(base, folder)
    assert sorted(pair.names) == WEIGHTS
    for name in pair.names:
        # The same operations; the difference from W is rounded like W.
        atol = 4 * FLOAT32 * before[name].abs().max().item()
        assert expected[name].abs().max() > 1e-3
        torch.testing.assert_close(pair.increment(name), expected[name], rtol=0, atol=atol)


def test_a_trained_bias_and_a_whole_weight(tmp_path):
    config = config_of("LORA", r=4, bias="all", modules_to_save=["classifier"])
    base, folder = adapt(tmp_path, config)
    pair = open_pair(base, folder, Selection(smallest_side=1))
    saved = load_file(folder / FILE)["base_model.model.classifier.weight"]
    expected = saved - load_file(base)["classifier.weight"]
    assert expected.abs().max() > 0.01
    assert torch.equal(pair.increment("classifier.weight"), expected)
    reasons = {one.name: one.reason for one in pair.skipped}
    assert reasons["classifier.bias"] == reasons["layers.0.q.bias"] == "a trained bias"
    alone = {one.name: one.reason for one in open_pair(folder).skipped}
    assert alone["classifier.weight"].startswith("stored whole (modules_to_save): pass the base")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_attention_with_one_weight_for_query_key_and_value(tmp_path):
    def original():
        torch.manual_seed(0)
        return torch.nn.ModuleDict({"attn": torch.nn.MultiheadAttention(32, 2)})

    base, folder = adapt(tmp_path, config_of("LORA", r=4, target_modules=["attn"]), original())
    pair = open_pair(base, folder)
    assert sorted(pair.names) == ["attn.in_proj_weight", "attn.out_proj.weight"]
    # PEFT 0.21 merges the increment of the output twice, and applies it once in a forward pass.
    attention = peft.PeftModel.from_pretrained(original(), folder).base_model.model["attn"]
    for name, layer in zip(
        sorted(pair.names), (attention, attention.base_layer.out_proj), strict=True
    ):
        expected = layer.get_delta_weight("default").detach()
        torch.testing.assert_close(pair.increment(name), expected, atol=1e-6, rtol=0)


# --- GPT-2 ---------------------------------------------------------------------------------------


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 40, "n_positions": 8}
    sizes |= {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(**sizes, tie_word_embeddings=False))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("heads", [[], ["lm_head"]], ids=["blocks", "blocks and head"])
@pytest.mark.parametrize("kind", ["LORA", "LOCA"])
def test_conv1d_weights_keep_their_orientation(tmp_path, kind, heads):
    settings = {"r": 4} if kind == "LORA" else {"n_frequency": 20}
    modules = ["c_attn", "c_proj", *heads]
    _, folder = adapt(tmp_path, config_of(kind, target_modules=modules, **settings), gpt2())
    assert json.loads((folder / CONFIG).read_text())["fan_in_fan_out"] is not bool(heads)
    expected = merged(folder, gpt2())
    # As on the hub: without the prefix, and without the head, which is tied to the embedding.
    stored = gpt2().transformer.state_dict()
    save_file({name: one.clone() for name, one in stored.items()}, tmp_path / "bare.safetensors")
    adapted = ["attn.c_attn", "attn.c_proj", "mlp.c_proj"]
    for pair, prefix in (
        (open_pair(folder), "transformer."),
        (open_pair(tmp_path / "bare.safetensors", folder), ""),
    ):
        names = [f"{prefix}h.0.{one}.weight" for one in adapted]
        assert sorted(pair.names) == sorted(names + [f"{one}.weight" for one in heads])
        for name in names:
            want = expected[name if prefix else f"transformer.{name}"]
            assert tuple(want.shape) == pair.tuned.entries[name].shape
            torch.testing.assert_close(pair.increment(name).double(), want, atol=1e-6, rtol=0)


# --- fused experts -------------------------------------------------------------------------------


class Experts(torch.nn.Module):
    def __init__(self, gate_up, down, *, is_transposed):
        super().__init__()
        self.is_transposed = is_transposed
        self.gate_up_proj = torch.nn.Parameter(torch.randn(gate_up))
        self.down_proj = torch.nn.Parameter(torch.randn(down))


# (experts, rows, columns) of the two weights, and whether rows are inputs.
LAYOUTS = {
    "outputs first": ((3, 40, 32), (3, 32, 20), False),
    "outputs first, square": ((3, 64, 32), (3, 32, 32), False),
    "inputs first": ((3, 32, 40), (3, 20, 32), True),
    "inputs first, square": ((3, 32, 64), (3, 32, 32), True),
}


@pytest.mark.filterwarnings("ignore:The following rank_pattern keys")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", [1, -1], ids=["in order", "reversed"])
def test_experts_in_one_tensor(tmp_path, layout, order):
    gate_up, down, is_transposed = LAYOUTS[layout]

    def original():
        torch.manual_seed(0)
        experts = Experts(gate_up, down, is_transposed=is_transposed)
        return torch.nn.ModuleDict({"mlp": torch.nn.ModuleDict({"experts": experts})})

    targets = ["experts.gate_up_proj", "experts.down_proj"][::order]
    config = peft.LoraConfig(
        r=4, lora_alpha=6, target_modules=[], target_parameters=targets,
        rank_pattern={"experts.down_proj": 2},
    )  # fmt: skip
    base, folder = adapt(tmp_path, config, original())
    expected = merged(folder, original())
    increments = AdapterIncrements(folder, open_checkpoint(base))
    assert set(increments.entries) == {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}
    for name in increments.entries:
        found = increments.load(name)
        torch.testing.assert_close(found.double(), expected[name], atol=1e-6, rtol=0)
        assert torch.equal(increments.load(name, 2), found[2])
        assert f"{name}[2]" in open_pair(base, folder).names
    # PEFT stores the tensors of both without their names, in an order of its own.
    alone = AdapterIncrements(folder)
    assert alone.entries == {}
    assert set(alone.ignored) == set(increments.entries)
    assert all("only the base tells which" in reason for reason in alone.ignored.values())


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("kind", ["Mixtral", "Qwen2Moe"])
@pytest.mark.parametrize("order", [1, -1], ids=["in order", "reversed"])
def test_parameters_that_loca_adapts(tmp_path, kind, order):
    def original():
        torch.manual_seed(0)
        config = getattr(transformers, f"{kind}Config")(
            vocab_size=40, hidden_size=16, intermediate_size=24, moe_intermediate_size=24,
            shared_expert_intermediate_size=20, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2, num_experts=18, num_local_experts=18,
        )  # fmt: skip
        return transformers.AutoModelForCausalLM.from_config(config)

    config = LoCAConfig(
        n_frequency=20, scaling=2.0, target_modules=["q_proj"],
        target_parameters=["experts.gate_up_proj", "experts.down_proj", "gate.weight"][::order],
        n_frequency_pattern={"experts.down_proj": 31},
    )  # fmt: skip
    base, folder = adapt(tmp_path, config, original())
    expected = {name: one for name, one in merged(folder, original()).items() if one.any()}
    increments = AdapterIncrements(folder, open_checkpoint(base))
    assert set(increments.entries) == set(expected)
    assert len(expected) == 4
    for name, want in expected.items():
        found = increments.load(name).double()
        assert (found - want).norm() < 1e-5 * want.norm()
    stack = "model.layers.0.mlp.experts.down_proj"
    assert torch.equal(increments.load(stack, 2), increments.load(stack)[2])
    assert f"{stack}[2]" in open_pair(base, folder).names
    # The file has all matrices of a stack as one, and not their number.
    alone = AdapterIncrements(folder).ignored
    assert {alone[name] for name in expected if "mlp" in name} == {"its shape is only in the base"}


def test_equal_parameters_that_loca_adapts_are_left_out(tmp_path):
    """PEFT nests their tensors without names, in an order that only the model's code tells."""
    experts = Experts((3, 32, 32), (3, 32, 32), is_transposed=False)
    targets = ["experts.gate_up_proj", "experts.down_proj"]
    config = LoCAConfig(n_frequency=20, target_modules=[], target_parameters=targets)
    base, folder = adapt(tmp_path, config, torch.nn.ModuleDict({"experts": experts}))
    ignored = AdapterIncrements(folder, open_checkpoint(base)).ignored
    assert set(ignored) == set(targets)
    assert all("the file does not tell which; merge the adapter" in one for one in ignored.values())


@pytest.mark.parametrize("vocabulary", [40, 32], ids=["tall", "square"])
def test_embeddings_that_loca_adapts(tmp_path, vocabulary):
    def original():
        made = model()
        made.embed = torch.nn.Embedding(vocabulary, 32)
        return made

    config = LoCAConfig(n_frequency=20, target_modules=["embed", "v"])
    base, folder = adapt(tmp_path, config, original())
    expected = merged(folder, original())
    pair, alone = open_pair(base, folder), open_pair(folder)
    assert sorted(pair.names) == sorted(alone.names) == ["embed.weight", *WEIGHTS[1::2]]
    for name in pair.names:
        want = expected[name]
        assert (pair.increment(name).double() - want).norm() < 1e-5 * want.norm()
        assert torch.equal(alone.increment(name), pair.increment(name))
    shorter = load_file(base)
    shorter["embed.weight"] = shorter["embed.weight"][:30].clone()
    save_file(shorter, base)
    reason = f"resized from 30x32 to {vocabulary}x32"
    assert AdapterIncrements(folder, open_checkpoint(base)).ignored["embed.weight"] == reason


@pytest.mark.parametrize("target", ["gate_up_proj", "down_proj"])
def test_one_parameter_of_all_experts_needs_no_base(tmp_path, target):
    torch.manual_seed(0)
    gate_up, down, _ = LAYOUTS["outputs first"]
    experts = Experts(gate_up, down, is_transposed=False)
    model = torch.nn.ModuleDict({"mlp": torch.nn.ModuleDict({"experts": experts})})
    config = peft.LoraConfig(r=4, target_modules=[], target_parameters=[f"experts.{target}"])
    base, folder = adapt(tmp_path, config, model)
    alone, beside = AdapterIncrements(folder), AdapterIncrements(folder, open_checkpoint(base))
    (name,) = alone.entries
    assert name == f"mlp.experts.{target}"
    assert torch.equal(alone.load(name), beside.load(name))


def test_experts_of_another_number(tmp_path):
    torch.manual_seed(0)
    layers = {"experts": Experts((3, 40, 32), (3, 32, 20), is_transposed=False)}
    config = peft.LoraConfig(r=4, target_modules=[], target_parameters=["experts.down_proj"])
    _, folder = adapt(tmp_path, config, torch.nn.ModuleDict(layers))
    for experts, message in (
        (2, "has rank|have rank"),
        (5, "no weight experts.down_proj of shape"),
    ):
        save_file(
            {"experts.down_proj": torch.ones(experts, 32, 20)}, tmp_path / "other.safetensors"
        )
        if experts == 2:
            damaged = AdapterIncrements(folder, open_checkpoint(tmp_path / "other.safetensors"))
            assert re.search(message, damaged.damaged["experts.down_proj"])
        else:
            with pytest.raises(InvalidArgumentError, match=message):
                open_pair(tmp_path / "other.safetensors", folder)


# --- initialisations that change the base --------------------------------------------------------


@pytest.mark.parametrize("start", ["pissa", "olora"])
def test_an_initialisation_that_takes_its_product_out_of_the_base(tmp_path, start):
    original = model()
    before = {name: one.double() for name, one in original.state_dict().items()}
    config = config_of("LORA", r=4, lora_alpha=6, init_lora_weights=start)
    base = tmp_path / "base.safetensors"
    save_file({name: one.clone() for name, one in original.state_dict().items()}, base)
    tuned = peft.get_peft_model(original, config)
    generator = torch.Generator().manual_seed(1)
    for name, one in tuned.named_parameters():
        if "lora_" in name:
            one.data += 0.01 * torch.randn(one.shape, generator=generator)
    tuned.save_pretrained(tmp_path / "adapter")
    pair = open_pair(base, tmp_path / "adapter")
    stored = load_file(tmp_path / "adapter" / FILE)
    for name in WEIGHTS:
        layer = tuned.base_model.model.get_submodule(name.removesuffix(".weight"))
        a, b = (stored[f"base_model.model.{name[:-7]}.lora_{x}.weight"].double() for x in "AB")
        expected = layer.base_layer.weight.double() + 1.5 * b @ a - before[name]
        singular = torch.linalg.svdvals(before[name])
        # Rounding turns the leading subspace by at most 2ε‖W‖ over the gap below it.
        gap = (singular[3] - singular[4]).item() if start == "pissa" else singular[-1].item()
        atol = 32 * FLOAT32 * singular[0].item() * max(1.0, singular[0].item() / gap)
        torch.testing.assert_close(pair.increment(name).double(), expected, atol=atol, rtol=0)
        assert (1.5 * b @ a - expected).norm() > 3 * expected.norm()
    with pytest.raises(InvalidArgumentError, match=f"init_lora_weights='{start}': its increment"):
        open_pair(tmp_path / "adapter")


@pytest.mark.filterwarnings("ignore:PiSSA changes the base")
def test_a_converted_pissa_adapter_is_plain_lora(tmp_path):
    config = config_of("LORA", r=4, lora_alpha=6, init_lora_weights="pissa")
    original = model()
    tuned = peft.get_peft_model(original, config)
    tuned.peft_config["default"].init_lora_weights = True
    tuned.save_pretrained(tmp_path / "start")
    tuned.peft_config["default"].init_lora_weights = "pissa"
    for name, one in tuned.named_parameters():
        if "lora_" in name:
            one.data += 0.01
    residual = tuned.base_model.model.layers[0].q.base_layer.weight.detach().clone()
    before = model().layers[0].q.weight.detach()
    product = tuned.base_model.model.layers[0].q.get_delta_weight("default").detach()
    tuned.save_pretrained(
        tmp_path / "adapter", path_initial_model_for_weight_conversion=str(tmp_path / "start")
    )
    found = open_pair(tmp_path / "adapter").increment("layers.0.q.weight")
    # Entries of W, its residual and the products are below 1: a few roundings of each.
    torch.testing.assert_close(found, residual + product - before, atol=64 * FLOAT32, rtol=0)


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "bert.", "model.bert."])
def test_names_are_those_of_the_base(tmp_path, prefix):
    base, folder = adapt(tmp_path, config_of("LORA", r=4, use_dora=True))
    plain = load_file(base)
    save_file({prefix + name: one for name, one in plain.items()}, tmp_path / "other.safetensors")
    pair = open_pair(tmp_path / "other.safetensors", folder)
    expected = open_pair(base, folder)
    assert list(pair.names) == [prefix + name for name in expected.names]
    for name in expected.names:
        assert torch.equal(pair.increment(prefix + name), expected.increment(name))


def test_a_bare_base_lacks_the_prefix_of_the_adapter(tmp_path):
    base, folder = adapt(tmp_path, config_of("LORA", r=4))
    stored = load_file(folder / FILE)
    inside = {
        name.replace("model.layers", "model.bert.layers"): one for name, one in stored.items()
    }
    save_file(inside, folder / FILE)
    assert sorted(open_pair(base, folder).names) == WEIGHTS
    alone = open_pair(folder).names
    assert sorted(alone) == [f"bert.{name}" for name in WEIGHTS]


def test_a_resized_vocabulary_is_left_out(tmp_path):
    base, folder = adapt(tmp_path, config_of("LORA", r=4, target_modules=["embed", "q"]))
    smaller = load_file(base)
    smaller["embed.weight"] = smaller["embed.weight"][:36].clone()
    save_file(smaller, base)
    pair = open_pair(base, folder)
    assert sorted(pair.names) == [name for name in WEIGHTS if "q" in name]
    assert [one.reason for one in pair.skipped] == ["resized from 36x32 to 40x32"]


# --- bad input -----------------------------------------------------------------------------------


def rewrite(folder, **changes):
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | changes))


REFUSED = {
    "prompts": ({"peft_type": "PREFIX_TUNING"}, "changes no weight, so that there is no ΔW"),
    "norms": ({"peft_type": "LN_TUNING"}, "biases or norms and no matrix"),
    "router": ({"peft_type": "XLORA"}, "depends on the input"),
    "unknown": ({"peft_type": "NEW"}, "not a known type; known are ADALORA, BOFT.* merge it into"),
    "fast SVD": ({"init_lora_weights": "pissa_niter_16"}, "path_initial_model_for_weight_conv"),
    "covariances": ({"init_lora_weights": "corda"}, "changes the base in a way that"),
    "gradients": ({"init_lora_weights": "lora_ga"}, "changes the base in a way that"),
    "quantisation": ({"init_lora_weights": "loftq"}, "changes the base in a way that"),
    "some tokens": ({"alora_invocation_tokens": [1]}, "only on the tokens after its invocation"),
    "quantised base": ({"use_qalora": True}, "belongs to a quantised base"),
    "repeated layers": ({"layer_replication": [[0, 2]]}, "repeats layers of its base"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_adapters_without_one_increment_are_refused(tmp_path, case):
    base, folder = adapt(tmp_path, config_of("LORA", r=4))
    changes, message = REFUSED[case]
    rewrite(folder, **changes)
    for sources in ((folder,), (base, folder)):
        with pytest.raises(InvalidArgumentError, match=message):
            open_pair(*sources)


DAMAGED = {
    "rank": ("LORA", {"r": 4}, {"r": 8}, "have rank 4, and the configuration says 8"),
    "no DoRA": ("LORA", {"r": 4, "use_dora": True}, {"use_dora": False}, "lora_magnitude_vector"),
    "DoRA": ("LORA", {"r": 4}, {"use_dora": True}, "lacks lora_magnitude_vector"),
    "size": ("FOURIERFT", {"n_frequency": 20}, {"n_frequency": 30}, "size mismatch"),
    "no number": ("LORA", {"r": 4}, {"lora_alpha": "x"}, "has no number for lora_alpha"),
    "no rank": ("LORA", {"r": 4}, {"r": 0}, "adapter: adapter_config.json has no positive"),
    "pattern": ("LORA", {"r": 4}, {"alpha_pattern": {"(": 3}}, "alpha_pattern is not a regular"),
    "no type": ("LORA", {"r": 4}, {"peft_type": None}, "has no peft_type"),
    "vectors": ("VERA", {"r": 16}, {"r": 10**9}, "r=1000000000, and its tensors have at most"),
    "blocks": ("OFT", {"oft_block_size": 8}, {"oft_block_size": 16}, "PEFT cannot load it"),
    "type": ("LORA", {"r": 4}, {"peft_type": "LOHA"}, "holds no tensor of a LOHA adapter"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_configuration_that_disagrees_with_the_tensors(tmp_path, case):
    kind, settings, changes, message = DAMAGED[case]
    base, folder = adapt(tmp_path, config_of(kind, **settings))
    rewrite(folder, **changes)
    assert re.search(message, said_of(base, folder))


def said_of(base, folder):
    """What is said against an adapter when it is opened and read."""
    try:
        pair = open_pair(base, folder)
        for name in pair.names:
            pair.increment(name)
    except (ResourceError, InvalidArgumentError) as error:
        return str(error)
    return " ".join(one.reason for one in pair.skipped if one.damaged)


Q = "base_model.model.layers.0.q"
SPOILT = {
    "a tensor": ("LOHA", {"r": 4}, FILE, {f"{Q}.hada_w2_a": None}, "the file lacks hada_w2_a"),
    "a factor": ("LORA", {"r": 4}, FILE, {f"{Q}.lora_B.weight": None}, "one of the two factors"),
    "two ranks": (
        "LORA", {"r": 4}, FILE, {f"{Q}.lora_A.weight": torch.ones(3, 32)}, "do not fit together",
    ),
    "another base": (
        "LORA", {"r": 4}, "base.safetensors", {WEIGHTS[0]: torch.ones(30, 30)},
        r"no weight layers\.0\.q\.weight of shape 48x32",
    ),
    "a base without it": (
        "LORA", {"r": 4}, "base.safetensors", {WEIGHTS[0]: None},
        "pass the base that the adapter was trained on",
    ),
    "a quantised base": (
        "OFT", {"oft_block_size": 8}, "base.safetensors",
        {WEIGHTS[0]: torch.ones(48, 32, dtype=torch.int8)}, r"as torch\.int8: quantised",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SPOILT)
def test_tensors_that_disagree_are_said(tmp_path, case):
    kind, settings, name, changes, message = SPOILT[case]
    base, folder = adapt(tmp_path, config_of(kind, **settings))
    file = folder / name if name == FILE else base
    stored = {**load_file(file), **changes}
    save_file({key: one for key, one in stored.items() if one is not None}, file)
    assert re.search(message, said_of(base, folder))


def test_factors_beyond_memory_are_refused_before_they_are_multiplied(tmp_path):
    _, folder = adapt(tmp_path, config_of("LORA", r=1))
    content = {
        "base_model.model.q.lora_A.weight": torch.ones(1, 3_000_000),
        "base_model.model.q.lora_B.weight": torch.ones(3_000_000, 1),
    }
    save_file(content, folder / FILE)
    with pytest.raises(InvalidArgumentError, match="larger than this machine's memory"):
        open_pair(folder)


def test_a_shape_beyond_memory_is_refused_before_it_is_used(tmp_path):
    _, folder = adapt(tmp_path, config_of("LOCA", n_frequency=20))
    stored = load_file(folder / FILE)
    key = "base_model.model.layers.0.q.loca_spectrum.shape"
    stored[key] = torch.tensor([2**40, 2**40])
    save_file(stored, folder / FILE)
    pair = open_pair(folder)
    assert len(pair.names) == 3
    assert [one.reason.partition(":")[0] for one in pair.skipped] == [
        "larger than this machine's memory"
    ]


def test_files_of_an_adapter_that_are_not_intact(tmp_path):
    _, folder = adapt(tmp_path, config_of("LORA", r=4))
    content = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(content[:100])
    with pytest.raises(DamagedError, match="is not an intact safetensors file"):
        open_pair(folder)
    (folder / FILE).unlink()
    with pytest.raises(InvalidArgumentError, match=r"and no adapter_model\.safetensors; fetch"):
        open_pair(folder)
    torch.save({"x": Block()}, folder / "adapter_model.bin")
    with pytest.raises(DamagedError, match="was refused: it holds Python objects"):
        open_pair(folder)
    (folder / CONFIG).write_text("[")
    with pytest.raises(DamagedError, match="is not valid JSON"):
        open_pair(folder)


def test_pickled_tensors_are_read_like_safetensors(tmp_path):
    _, folder = adapt(tmp_path, config_of("LORA", r=4))
    expected = open_pair(folder).increment(WEIGHTS[0])
    torch.save(load_file(folder / FILE), folder / "adapter_model.bin")
    (folder / FILE).unlink()
    assert torch.equal(open_pair(folder).increment(WEIGHTS[0]), expected)


def test_several_adapters_in_one_folder(tmp_path):
    for name in ("first", "second"):
        adapt(tmp_path / name, config_of("LORA", r=4))
        (tmp_path / "all").mkdir(exist_ok=True)
        (tmp_path / name / "adapter").rename(tmp_path / "all" / name)
    with pytest.raises(InvalidArgumentError, match=r"folders of their own \(first, second\); pass"):
        open_pair(tmp_path / "all")


def test_nothing_that_a_configuration_names_is_imported(tmp_path, monkeypatch):
    base, folder = adapt(tmp_path / "files", config_of("LORA", r=4, use_dora=True))
    (tmp_path / "named_by_an_adapter.py").write_text("raise SystemExit\n")
    monkeypatch.syspath_prepend(tmp_path)
    expected = open_pair(base, folder).increment(WEIGHTS[0])
    rewrite(folder, megatron_config={"a": 1}, megatron_core="named_by_an_adapter")
    assert torch.equal(open_pair(base, folder).increment(WEIGHTS[0]), expected)


FINGERPRINTS = {
    "a factor": lambda folder: change_first(folder / "adapter" / FILE),
    "the base": lambda folder: change_first(folder / "base.safetensors", WEIGHTS[0]),
    "the scale": lambda folder: rewrite(folder / "adapter", lora_alpha=5),
}


def change_first(file, name="base_model.model.layers.0.q.lora_A.weight"):
    stored = load_file(file)
    stored[name] = stored[name] + 1
    save_file(stored, file)


@pytest.mark.parametrize("change", FINGERPRINTS.values(), ids=FINGERPRINTS)
def test_the_fingerprint_covers_what_an_increment_depends_on(tmp_path, change):
    sources = adapt(tmp_path, config_of("LORA", r=4))
    before = [open_pair(*sources).fingerprint(name) for name in WEIGHTS]
    assert before == [open_pair(*sources).fingerprint(name) for name in WEIGHTS]
    change(tmp_path)
    assert open_pair(*sources).fingerprint(WEIGHTS[0]) != before[0]


def test_the_weights_are_those_of_the_base(tmp_path):
    base, folder = adapt(tmp_path, config_of("LORA", r=4))
    assert torch.equal(open_pair(base, folder).weights(WEIGHTS[0]), load_file(base)[WEIGHTS[0]])
    assert open_pair(folder).weights(WEIGHTS[0]) is None


def test_workers_open_what_they_are_sent(tmp_path):
    base, folder = adapt(tmp_path, config_of("VERA", r=16))
    increments = AdapterIncrements(folder, open_checkpoint(base))
    sent = pickle.dumps(increments)
    assert len(sent) < 16_000  # names and paths, no tensors
    name = WEIGHTS[1]
    assert torch.equal(pickle.loads(sent).load(name), increments.load(name))


def test_plain_lora_does_without_peft(tmp_path, monkeypatch):
    base, folder = adapt(tmp_path, config_of("LORA", r=4))
    expected = open_pair(base, folder).increment(WEIGHTS[0])
    monkeypatch.setitem(sys.modules, "peft", None)
    assert torch.equal(open_pair(base, folder).increment(WEIGHTS[0]), expected)
    rewrite(folder, peft_type="LOHA")
    with pytest.raises(ResourceError, match=r"LOHA adapter needs PEFT: pip install 'loca-theory\["):
        open_pair(base, folder)


def test_the_global_generator_is_left_alone(tmp_path):
    base, folder = adapt(tmp_path, config_of("VERA", r=16))
    pair = open_pair(base, folder)
    torch.manual_seed(3)
    pair.increment(WEIGHTS[0])
    drawn = torch.rand(3)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(3))
