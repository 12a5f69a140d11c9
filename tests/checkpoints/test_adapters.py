"""Adapters of PEFT as increments, against what PEFT merges."""

from __future__ import annotations

import json
import pickle
import re
import sys
from dataclasses import fields
from functools import partial

import peft
import pytest
import torch
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from safetensors.torch import load_file, save_file
from torch import nn

from loca_theory.adapters import LoCAConfig
from loca_theory.checkpoints import analyze
from loca_theory.checkpoints.adapters.increments import AdapterIncrements
from loca_theory.checkpoints.adapters.kinds import KNOWN, AdapterKind
from loca_theory.checkpoints.pairs.opening import open_pair
from loca_theory.checkpoints.settings import Selection
from loca_theory.checkpoints.weights.checkpoint import DamagedError
from loca_theory.checkpoints.weights.sources import open_checkpoint
from loca_theory.errors import InvalidArgumentError, ResourceError
from tests.checkpoints import zoo

FLOAT32 = 2.0**-24
FILE, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def model(vocabulary=40):
    """Layers of each sort that adapters change; never run."""
    torch.manual_seed(0)
    blocks = [
        nn.ModuleDict({"q": nn.Linear(32, 48), "v": nn.Linear(32, 32, bias=False)})
        for _ in range(2)
    ]
    return nn.ModuleDict({
        "embed": nn.Embedding(vocabulary, 32), "conv": nn.Conv2d(4, 24, 3),
        "layers": nn.ModuleList(blocks), "classifier": nn.Linear(32, 3),
    })  # fmt: skip


def adapt(folder, config, original=None, **settings):
    """Save the base and an adapter with random numbers, and with settings that training changes."""
    original = original or model()
    folder.mkdir(exist_ok=True, parents=True)
    base = {name: one.clone() for name, one in original.state_dict().items()}
    save_file(base, folder / "base.safetensors")
    tuned = peft.get_peft_model(original, config)
    generator = torch.Generator().manual_seed(1)
    for _, one in tuned.named_parameters():
        if one.requires_grad:
            one.data += 0.1 * torch.randn(one.shape, generator=generator)
    vars(tuned.peft_config["default"]).update(settings)
    tuned.save_pretrained(folder / "adapter")
    return folder / "base.safetensors", folder / "adapter"


def merged(folder, original, dtype=torch.float64):
    """The differences of all weights that PEFT itself merges."""
    before = {name: one.to(dtype).clone() for name, one in original.state_dict().items()}
    tuned = peft.PeftModel.from_pretrained(original.to(dtype), folder)
    after = tuned.merge_and_unload().state_dict()
    return {name: after[name] - one for name, one in before.items() if name in after}


def convolutions():
    """Kernels of each sort: of one entry, in groups, and with as many inputs as outputs."""
    torch.manual_seed(0)
    return nn.ModuleDict({
        "wide": nn.Conv2d(4, 24, 3), "point": nn.Conv2d(18, 20, 1), "square": nn.Conv2d(16, 16, 3),
        "grouped": nn.Conv2d(8, 24, 3, groups=2), "single": nn.Conv2d(32, 32, 5, groups=32),
        "line": nn.Conv1d(6, 20, 3),
    })  # fmt: skip


class Experts(nn.Module):
    def __init__(self, gate_up, down, *, is_transposed=False):
        super().__init__()
        torch.manual_seed(0)
        self.is_transposed = is_transposed
        self.gate_up_proj = nn.Parameter(torch.randn(gate_up))
        self.down_proj = nn.Parameter(torch.randn(down))


def experts(*shapes, **options):
    inside = nn.ModuleDict({"experts": Experts(*shapes, **options)})
    return nn.ModuleDict({"mlp": inside})


gpt2 = partial(zoo.make, "GPT-2 with a head")


def config_of(kind, **settings):
    return PEFT_TYPE_TO_CONFIG_MAPPING[kind](**{"target_modules": ["q", "v"], **settings})


BLOCKS = peft.tuners.lora.BdLoraConfig(
    target_modules_bd_a=["q"], target_modules_bd_b=["v"], nblocks=2
)
LORA = {"r": 4, "lora_alpha": 6}
KERNELS = ["wide", "point", "square", "grouped", "single"]
ALL_KERNELS = {"target_modules": [*KERNELS, "line"]}
STACKS = ["experts.gate_up_proj", "experts.down_proj"]
# (experts, rows, columns) of the two weights, and whether rows are inputs.
LAYOUTS = {
    "outputs first": partial(experts, (3, 40, 32), (3, 32, 20)),
    "outputs first, square": partial(experts, (3, 64, 32), (3, 32, 32)),
    "inputs first": partial(experts, (3, 32, 40), (3, 20, 32), is_transposed=True),
    "inputs first, square": partial(experts, (3, 32, 64), (3, 32, 32), is_transposed=True),
}
# The settings of each type and of its variants, and the model if it is not the usual one.
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
    "PSOFT": {"r": 4},
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
    "LORA": LORA,
    "LORA rank-stabilised": {**LORA, "use_rslora": True},
    "LORA patterns": {
        **LORA, "rank_pattern": {"q": 2, "layers.1.v": 6}, "alpha_pattern": {"^layers.0.v": 1},
    },
    "LORA biases": {**LORA, "lora_bias": True, "target_modules": ["q"], "bias": "lora_only"},
    "LORA MiCA": {**LORA, "init_lora_weights": "mica"},
    "LORA VeLoRA": {**LORA, "velora_config": {"num_groups": 8}},
    "LORA of an embedding": {**LORA, "target_modules": ["embed", "q"]},
    "LORA of a convolution": {**LORA, "target_modules": ["conv", "v"]},
    "LORA with DoRA": {**LORA, "use_dora": True, "target_modules": ["q", "embed", "conv"]},
    "LORA with KaSA": {**LORA, "kasa_config": peft.KasaConfig()},
    "LORA with PiSSA": {**LORA, "init_lora_weights": "pissa"},
    "LORA with OLoRA": {**LORA, "init_lora_weights": "olora"},
    "LORA of diagonal blocks": {**LORA, "use_bdlora": BLOCKS},
    **{
        f"{kind} of Conv1D{' and a head' * len(head)}": {
            "model": gpt2, "target_modules": ["c_attn", "c_proj", *head], **settings,
        }
        for kind, settings in (("LORA", LORA), ("LOCA", {"n_frequency": 20}))
        for head in ([], ["lm_head"])
    },
    **{
        f"LOCA embedding of {rows}": {
            "model": partial(model, rows), "n_frequency": 20,
            "target_modules": ["embed", "v"],
        }
        for rows in (40, 32)
    },
    **{
        f"LORA parameters, {layout}, {order}": {
            **LORA, "model": made, "target_modules": [], "target_parameters": STACKS[::order],
            "rank_pattern": {"experts.down_proj": 2},
        }
        for layout, made in LAYOUTS.items()
        for order in (1, -1)
    },
    **{
        f"LOCA parameters of {kind}, {order}": {
            "model": partial(zoo.make, kind), "n_frequency": 20, "scaling": 2.0,
            "target_modules": ["q_proj"], "target_parameters": [*STACKS, "gate.weight"][::order],
            "n_frequency_pattern": {"experts.down_proj": 31},
        }
        for kind in ("Mixtral", "Qwen2-MoE")
        for order in (1, -1)
    },
    "LOHA kernels": {"r": 4, **ALL_KERNELS},
    "LOHA effective kernels": {"r": 4, "use_effective_conv2d": True, **ALL_KERNELS},
    "IA3 kernels, outputs": {"target_modules": KERNELS, "feedforward_modules": []},
    "IA3 kernels, inputs": {"target_modules": KERNELS, "feedforward_modules": KERNELS},
    "IA3 kernels, some inputs": {
        "target_modules": ".*(wide|square|grouped)", "feedforward_modules": ".*(square|grouped)",
    },
    "LOCA kernels": {"n_frequency": 20, "target_modules": ["wide", "square"]},
}  # fmt: skip
WEIGHTS = [f"layers.{i}.{one}.weight" for i in (0, 1) for one in "qv"]
ALONE = re.compile("LO[RC]A(?! (with|of diagonal|parameters))")
# PEFT computes these in float32 only; PSOFT's difference from W is rounded like W.
SINGLE = {"LORA MiCA": 1e-6, "LORA with PiSSA": 1e-6, "LORA with OLoRA": 1e-6, "PSOFT": 1e-4}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:The following rank_pattern keys")
@pytest.mark.parametrize("case", CASES)
def test_every_type_is_what_peft_merges(tmp_path, case):
    settings = dict(CASES[case])
    original = settings.pop("model", convolutions if "kernels" in case else model)
    base, folder = adapt(tmp_path, config_of(case.split()[0], **settings), original())
    expected = merged(folder, original(), torch.float32 if case in SINGLE else torch.float64)
    everything = Selection(smallest_side=1, experts="stacked")
    state = torch.get_rng_state()
    pair = open_pair(base, folder, everything)
    assert set(pair.matrices) == {
        name for name, one in expected.items() if one.ndim > 1 and one.any()
    }
    biases = {name for name, one in expected.items() if name.endswith("bias") and one.any()}
    assert biases <= {one.name for one in pair.skipped}
    for name in pair.matrices:
        found, want = pair.increment(name), expected[name]
        assert found.dtype == torch.float32
        assert want.abs().max() > 1e-4
        # PEFT's operations, and at most sixteen roundings to float32.
        error = (found - want.reshape(found.shape)).norm()
        assert error < SINGLE.get(case, 1e-6) * want.norm()
        if "experts" in name:
            one = open_pair(base, folder).increment(f"{name}[2]")
            assert torch.equal(one, found.reshape(want.shape)[2])
    assert torch.equal(torch.get_rng_state(), state)
    if ALONE.match(case):
        alone = open_pair(folder, None, everything)
        assert sorted(alone.matrices) == sorted(pair.matrices)
        for name in alone.matrices:
            assert torch.equal(alone.increment(name), pair.increment(name))
    elif not case.startswith("LOCA parameters"):
        rewrite(folder, base_model_name_or_path="org/base")
        with pytest.raises(InvalidArgumentError, match="pass the base org/base as well: BASE ADA"):
            open_pair(folder)
    else:
        left_out = AdapterIncrements(folder).left_out
        reasons = {
            str(left_out[name]) for name in expected if "mlp" in name and name in pair.matrices
        }
        assert reasons == {"its shape is only in the base"}


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
    ranks = ([True, False, True, False], [False, True, False, False], [True] * 4, [False] * 4)
    kept = {f"{name[:-7]}.lora_E.default": one for name, one in zip(WEIGHTS, ranks, strict=True)}
    base, folder = adapt(tmp_path, config, rank_pattern=kept)
    expected, base = merged(folder, model()), open_checkpoint(base)
    increments = AdapterIncrements(folder, base)
    for name, one in zip(WEIGHTS, ranks, strict=True):
        found, scale = increments.load(name), expected[name].abs().max().item()
        assert (scale > 1e-4) == any(one)
        torch.testing.assert_close(found.double(), expected[name], rtol=0, atol=FLOAT32 * scale)
    rewrite(folder, init_r=8)
    with pytest.raises(DamagedError, match="rank_pattern does not have init_r=8 entries"):
        AdapterIncrements(folder, base).load(WEIGHTS[0])


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
        return nn.ModuleDict({"attn": nn.MultiheadAttention(32, 2)})

    base, folder = adapt(tmp_path, config_of("LORA", r=4, target_modules=["attn"]), original())
    pair = open_pair(base, folder)
    assert sorted(pair.matrices) == ["attn.in_proj_weight", "attn.out_proj.weight"]
    # PEFT 0.21 merges the increment of the output twice, and applies it once in a forward pass.
    attention = peft.PeftModel.from_pretrained(original(), folder).base_model.model["attn"]
    for name, layer in zip(
        sorted(pair.matrices), (attention, attention.base_layer.out_proj), strict=True
    ):
        expected = layer.get_delta_weight("default").detach()
        torch.testing.assert_close(pair.increment(name), expected, atol=1e-6, rtol=0)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("kind", ["LORA", "LOCA"])
def test_conv1d_weights_of_a_base_without_prefix_and_head(tmp_path, kind):
    """As on the hub, where the head is tied to the embedding."""
    settings = {"r": 4} if kind == "LORA" else {"n_frequency": 20}
    config = config_of(kind, target_modules=["c_attn", "c_proj", "lm_head"], **settings)
    base, folder = adapt(tmp_path, config, gpt2())
    whole = open_pair(base, folder)
    save_file(gpt2().transformer.state_dict(), base)
    pair = open_pair(base, folder)
    assert len(pair.matrices) == len(whole.matrices) == 7
    for name in pair.matrices:
        prefix = "" if "lm_head" in name else "transformer."
        assert torch.equal(pair.increment(name), whole.increment(prefix + name))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("in_memory", [False, True])
def test_increments_that_peft_adds_to_one_tensor_are_left_out(tmp_path, in_memory):
    config = peft.LoraConfig(r=4, target_modules=["wte", "lm_head", "c_attn"])
    base, folder = adapt(tmp_path, config, gpt2())
    state = {name: one for name, one in load_file(base).items() if "lm_head" not in name}
    save_file(state, base)
    embedding, head = "transformer.wte.weight", "lm_head.weight"
    pair = open_pair({**state, head: state[embedding]} if in_memory else base, folder)
    assert list(pair.matrices) == [f"transformer.h.{i}.attn.c_attn.weight" for i in (0, 1)]
    said = {one.name: one.reason for one in pair.skipped}
    for name, other in ((embedding, head), (head, embedding)):
        assert said[name].startswith(f"PEFT adds the increment of {other} to the same tensor: ")


def test_equal_parameters_that_loca_adapts_are_left_out(tmp_path):
    """PEFT nests their tensors without names, in an order that only the model's code tells."""
    config = LoCAConfig(n_frequency=20, target_modules=[], target_parameters=STACKS)
    base, folder = adapt(tmp_path, config, experts((3, 32, 32), (3, 32, 32)))
    left_out = AdapterIncrements(folder, open_checkpoint(base)).left_out
    assert set(left_out) == {f"mlp.{one}" for one in STACKS}
    for one in left_out.values():
        assert "the file does not tell which; merge the adapter" in str(one)


def test_the_experts_of_an_adapter_are_analysed(tmp_path):
    config = config_of("LORA", r=4, target_modules=[], target_parameters=STACKS)
    base, folder = adapt(tmp_path, config, LAYOUTS["outputs first"]())
    found = analyze(base, folder, ranks=[2])
    names = {f"mlp.{stack}[{i}]" for stack in STACKS for i in range(3)}
    assert {one.name for one in found.matrices} == names


def test_experts_of_another_number(tmp_path):
    config = peft.LoraConfig(r=4, target_modules=[], target_parameters=STACKS[1:])
    base, folder = adapt(tmp_path, config, experts((3, 40, 32), (3, 32, 20)))
    save_file({"mlp.experts.down_proj": torch.ones(2, 32, 20)}, base)
    (reason,) = AdapterIncrements(folder, open_checkpoint(base)).left_out.values()
    assert "the factors have rank 12, and the configuration says 4 for each expert" in str(reason)
    save_file({"mlp.experts.down_proj": torch.ones(5, 32, 20)}, base)
    with pytest.raises(InvalidArgumentError, match=r"no weight mlp\.experts\.down_proj of"):
        open_pair(base, folder)


@pytest.mark.parametrize("kind", ["LORA", "LOCA"])
def test_a_resized_vocabulary_is_left_out(tmp_path, kind):
    settings = {"r": 4} if kind == "LORA" else {"n_frequency": 20}
    base, folder = adapt(tmp_path, config_of(kind, target_modules=["embed", "q"], **settings))
    smaller = load_file(base)
    smaller["embed.weight"] = smaller["embed.weight"][:36].clone()
    save_file(smaller, base)
    pair = open_pair(base, folder)
    assert sorted(pair.matrices) == [name for name in WEIGHTS if "q" in name]
    assert [one.reason for one in pair.skipped] == ["resized from 36x32 to 40x32"]


# --- bad input -----------------------------------------------------------------------------------


def rewrite(folder, **changes):
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | changes))


Q = "base_model.model.layers.0.q"
SMALL, BASE = ("LORA", {"r": 4}), "base.safetensors"
# The adapter, changes of its configuration, those of tensors in a file, and what is said.
REFUSED = {
    "unknown": (*SMALL, {"peft_type": "NEW"}, {}, "not a known type; known are ADALORA.* merge it"),
    "fast SVD": (
        *SMALL, {"init_lora_weights": "pissa_niter_16"}, {}, "path_initial_model_for_weight_conv",
    ),
    "covariances": (*SMALL, {"init_lora_weights": "corda"}, {}, "changes the base in a way that"),
    "quantised base": (*SMALL, {"use_qalora": True}, {}, "belongs to a quantised base"),
    "repeated layers": (*SMALL, {"layer_replication": [[0, 2]]}, {}, "repeats layers of its base"),
    "rank": (*SMALL, {"r": 8}, {}, "have rank 4, and the configuration says 8"),
    "no DoRA": ("LORA", {"use_dora": True}, {"use_dora": False}, {}, "lora_magnitude_vector"),
    "DoRA": (*SMALL, {"use_dora": True}, {}, "lacks lora_magnitude_vector"),
    "size": ("FOURIERFT", {"n_frequency": 20}, {"n_frequency": 30}, {}, "size mismatch"),
    "no number": (*SMALL, {"lora_alpha": "x"}, {}, "has no number for lora_alpha"),
    "a number beyond floats": (
        *SMALL, {"lora_alpha": 10**400}, {}, "has no number for lora_alpha",
    ),
    "no rank": (*SMALL, {"r": 0}, {}, "adapter: adapter_config.json has no positive"),
    "pattern": (*SMALL, {"alpha_pattern": {"(": 3}}, {}, "alpha_pattern is not a regular"),
    "no type": (*SMALL, {"peft_type": None}, {}, "has no peft_type"),
    "vectors": ("VERA", {"r": 16}, {"r": 10**9}, {}, "r=1000000000, and its tensors have at most"),
    "no shape": (
        "LOCA", {"n_frequency": 20}, {},
        {FILE: {f"{Q}.loca_spectrum.shape": torch.tensor([torch.nan, 32])}}, "PEFT cannot load it",
    ),
    "blocks": ("OFT", {"oft_block_size": 8}, {"oft_block_size": 16}, {}, "PEFT cannot load it"),
    "type": (*SMALL, {"peft_type": "LOHA"}, {}, "holds no tensor of a LOHA adapter"),
    "no tensor": (
        "LOHA", {"r": 4}, {}, {FILE: {f"{Q}.hada_w2_a": None}}, "the file lacks hada_w2_a",
    ),
    "no factor": (*SMALL, {}, {FILE: {f"{Q}.lora_B.weight": None}}, "one of the two factors"),
    "two ranks": (
        *SMALL, {}, {FILE: {f"{Q}.lora_A.weight": torch.ones(3, 32)}}, "do not fit together",
    ),
    "another base": (
        *SMALL, {}, {BASE: {WEIGHTS[0]: torch.ones(30, 30)}},
        r"no weight layers\.0\.q\.weight of shape 48x32",
    ),
    "a base without it": (
        *SMALL, {}, {BASE: {WEIGHTS[0]: None}},
        "save_original_format=False; otherwise pass the base that the adapter was trained on",
    ),
    "a quantised base": (
        "OFT", {"oft_block_size": 8}, {}, {BASE: {WEIGHTS[0]: torch.ones(48, 32).char()}},
        r"as torch\.int8: quantised",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_increment_or_disagrees_with_itself_or_its_base(tmp_path, case):
    kind, settings, changes, tensors, message = REFUSED[case]
    base, folder = adapt(tmp_path, config_of(kind, **settings))
    rewrite(folder, **changes)
    for name, changed in tensors.items():
        file = folder / name if name == FILE else base
        stored = {**load_file(file), **changed}
        save_file({key: one for key, one in stored.items() if one is not None}, file)
    try:
        pair = open_pair(base, folder)
        for name in pair.matrices:
            pair.increment(name)
        said = " ".join(one.reason for one in pair.skipped if one.damaged)
    except (ResourceError, InvalidArgumentError) as error:
        said = str(error)
    assert re.search(message, said)


def test_shapes_beyond_memory_are_refused_before_they_are_used(tmp_path):
    _, folder = adapt(tmp_path, config_of("LOCA", n_frequency=20))
    sizes = {f"{Q}.loca_spectrum.shape": torch.tensor([2**40, 2**40])}
    save_file(load_file(folder / FILE) | sizes, folder / FILE)
    pair = open_pair(folder)
    assert len(pair.matrices) == 3
    assert pair.skipped[0].reason.startswith("larger than this machine's memory")


def test_the_file_of_an_adapter_may_be_one_of_torch(tmp_path):
    _, folder = adapt(tmp_path, config_of("LORA", r=4))
    expected = open_pair(folder).increment(WEIGHTS[0])
    content = {name: one.clone() for name, one in load_file(folder / FILE).items()}
    (folder / FILE).unlink()
    with pytest.raises(InvalidArgumentError, match=r"and no adapter_model\.safetensors; fetch"):
        open_pair(folder)
    torch.save(content, folder / "adapter_model.bin")
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


def test_the_fingerprint_covers_what_an_increment_depends_on(tmp_path):
    base, folder = adapt(tmp_path, config_of("LORA", r=4))
    stored, weights = load_file(folder / FILE), load_file(base)
    assert torch.equal(open_pair(base, folder).weights(WEIGHTS[0]), weights[WEIGHTS[0]])
    assert open_pair(folder).weights(WEIGHTS[0]) is None
    before = open_pair(base, folder).fingerprint(WEIGHTS[0])
    assert open_pair(base, folder).fingerprint(WEIGHTS[0]) == before
    first = f"{Q}.lora_A.weight"
    save_file({**stored, first: stored[first] + 1}, folder / FILE)
    found = [before, open_pair(base, folder).fingerprint(WEIGHTS[0])]
    save_file({**weights, WEIGHTS[0]: weights[WEIGHTS[0]] + 1}, base)
    found.append(open_pair(base, folder).fingerprint(WEIGHTS[0]))
    rewrite(folder, lora_alpha=5)
    found.append(open_pair(base, folder).fingerprint(WEIGHTS[0]))
    assert len(set(found)) == 4


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
