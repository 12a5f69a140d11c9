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

import loca_theory.adapters  # noqa: F401  makes LoCA a method of PEFT
from loca_theory.checkpoints.change.adapter.kinds import KNOWN, check_type, needs_weights
from loca_theory.checkpoints.change.opening import open_pair
from loca_theory.checkpoints.change.selection import MatrixSelection
from loca_theory.checkpoints.source.checkpoint import DamagedError
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
    return nn.ModuleDict(
        {
            "embed": nn.Embedding(vocabulary, 32),
            "conv": nn.Conv2d(4, 24, 3),
            "layers": nn.ModuleList(blocks),
            "classifier": nn.Linear(32, 3),
        }
    )


def adapt(folder, kind, original=model, learned=(), **settings):
    """Save a base and an adapter with random numbers, and with settings that training changes."""
    folder.mkdir(exist_ok=True, parents=True)
    module = original()
    base = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    save_file(base, folder / "base.safetensors")
    settings = {"target_modules": ["q", "v"], **settings}
    tuned = peft.get_peft_model(module, PEFT_TYPE_TO_CONFIG_MAPPING[kind](**settings))
    generator = torch.Generator().manual_seed(1)
    for _, parameter in tuned.named_parameters():
        if parameter.requires_grad:
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    vars(tuned.peft_config["default"]).update(learned)
    tuned.save_pretrained(folder / "adapter")
    return folder / "base.safetensors", folder / "adapter"


def convolutions():
    """Kernels of each sort: of one entry, in groups, and with as many inputs as outputs."""
    torch.manual_seed(0)
    return nn.ModuleDict(
        {
            "wide": nn.Conv2d(4, 24, 3),
            "point": nn.Conv2d(18, 20, 1),
            "square": nn.Conv2d(16, 16, 3),
            "grouped": nn.Conv2d(8, 24, 3, groups=2),
            "single": nn.Conv2d(32, 32, 5, groups=32),
            "line": nn.Conv1d(6, 20, 3),
        }
    )


def experts(gate_up, down, *, is_transposed=False):
    """A module with the weights of several experts in two parameters."""
    torch.manual_seed(0)
    inside = nn.Module()
    inside.is_transposed = is_transposed
    inside.gate_up_proj = nn.Parameter(torch.randn(gate_up))
    inside.down_proj = nn.Parameter(torch.randn(down))
    return nn.ModuleDict({"mlp": nn.ModuleDict({"experts": inside})})


gpt2 = partial(zoo.make, "GPT-2 with a head")


BLOCKS = peft.tuners.lora.BdLoraConfig(
    target_modules_bd_a=["q"], target_modules_bd_b=["v"], nblocks=2
)
LORA = {"r": 4, "lora_alpha": 6}
KERNELS = ["wide", "point", "square", "grouped", "single"]
CONV1D = ["c_attn", "c_proj"]
STACKS = ["experts.gate_up_proj", "experts.down_proj"]
# (experts, rows, columns) of the two weights, and whether rows are inputs.
LAYOUTS = {
    "outputs first": partial(experts, (3, 40, 32), (3, 32, 20)),
    "outputs first, square": partial(experts, (3, 64, 32), (3, 32, 32)),
    "inputs first": partial(experts, (3, 32, 40), (3, 20, 32), is_transposed=True),
    "inputs first, square": partial(experts, (3, 32, 64), (3, 32, 32), is_transposed=True),
}
PARAMETERS = {"r": 4, "target_modules": [], "target_parameters": STACKS}
EXPERTS = {**PARAMETERS, "original": LAYOUTS["outputs first"]}
# Which initial ranks of AdaLoRA are left.
KEPT = {
    "layers.0.q.lora_E.default": [True, False, True, False],
    "layers.0.v.lora_E.default": [False, True, False, False],
    "layers.1.q.lora_E.default": [True] * 4,
    "layers.1.v.lora_E.default": [False] * 4,
}
# The settings of each type and of its variants, and the model if it is not the usual one.
CASES = {
    "ADALORA": {"total_step": 10, "init_r": 4, "target_r": 2},
    "ADALORA pruned": {
        "total_step": 10,
        "init_r": 4,
        "target_r": 2,
        "learned": {"rank_pattern": KEPT},
    },
    "BOFT": {"boft_block_size": 8, "boft_n_butterfly_factor": 2},
    "C3A": {"block_size": 8},
    "DEFT": {},
    "DELORA": {"r": 4},
    "FOURIERFT": {"n_frequency": 20, "n_frequency_pattern": {"layers.1.v": 30}, "scaling": 3.0},
    "GLORA": {},
    "GRALORA": {"r": 4, "alpha": 8},
    "HIRA": {},
    "HRA": {"r": 4, "apply_GS": True},
    "IA3": {"feedforward_modules": ["v"]},
    "LOCA": {"n_frequency": 20, "scaling": 2.0},
    "LOHA": {"r": 4, "alpha": 8},
    "LOKR": {"r": 2, "decompose_both": True, "alpha": 8},
    "MISS": {"r": 8, "init_weights": "bat"},
    "OFT": {"oft_block_size": 8},
    "OSF": {"effective_rank": 8},
    "PEANUT": {"r": 4},
    "PSOFT": {"r": 4},
    "PVERA": {"r": 16},
    "RANDLORA": {"r": 4},
    "ROAD": {"group_size": 8},
    "SHIRA": {"r": 2},
    "SUPERTUNING": {},
    "VBLORA": {
        "num_vectors": 30,
        "vector_length": 8,
        "topk": 2,
        "save_only_topk_weights": True,
    },
    "VERA": {"r": 16},
    "VERA without its projections": {"r": 16, "save_projection": False},
    "WAVEFT": {"n_frequency": 20, "proportional_parameters": True},
    "LORA": LORA,
    "LORA patterns": {
        **LORA,
        "rank_pattern": {"q": 2, "layers.1.v": 6},
        "alpha_pattern": {"^layers.0.v": 1},
        "use_rslora": True,
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
    "LORA of Conv1D": {**LORA, "original": gpt2, "target_modules": CONV1D},
    "LORA of Conv1D and a head": {**LORA, "original": gpt2, "target_modules": [*CONV1D, "lm_head"]},
    "LOCA of Conv1D": {"n_frequency": 20, "original": gpt2, "target_modules": CONV1D},
    "LOCA of an embedding": {"n_frequency": 20, "target_modules": ["embed", "v"]},
    "LOCA of a square one": {
        "n_frequency": 20,
        "original": partial(model, 32),
        "target_modules": ["embed", "v"],
    },
    **{
        f"LORA parameters, {layout}": {
            **PARAMETERS,
            "original": model,
            "target_parameters": STACKS[::-1],
            "lora_alpha": 6,
            "rank_pattern": {"experts.down_proj": 2},
        }
        for layout, model in LAYOUTS.items()
    },
    "LOCA parameters": {
        "original": partial(zoo.make, "Mixtral"),
        "n_frequency": 20,
        "scaling": 2.0,
        "target_modules": ["q_proj"],
        "target_parameters": ["gate.weight", *STACKS[::-1]],
        "n_frequency_pattern": {"experts.down_proj": 31},
    },
    "LOHA kernels": {"r": 4, "target_modules": [*KERNELS, "line"]},
    "IA3 kernels, inputs": {"target_modules": KERNELS, "feedforward_modules": KERNELS},
    "IA3 kernels, some inputs": {
        "target_modules": ".*(wide|square|grouped)",
        "feedforward_modules": ".*(square|grouped)",
    },
    "LOCA kernels": {"n_frequency": 20, "target_modules": ["wide", "square"]},
}
WEIGHTS = [f"layers.{i}.{letter}.weight" for i in (0, 1) for letter in "qv"]
ALONE = re.compile("LO[RC]A(?! (with|of diagonal|parameters))")
# PEFT computes these in float32 only; PSOFT's difference from W is rounded like W.
SINGLE = {"LORA MiCA": 1e-6, "LORA with PiSSA": 1e-6, "LORA with OLoRA": 1e-6, "PSOFT": 1e-4}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:The following rank_pattern keys")
@pytest.mark.parametrize("case", CASES)
def test_every_type_is_what_peft_merges(tmp_path, case):
    original = CASES[case].get("original", convolutions if "kernels" in case else model)
    base, folder = adapt(tmp_path, case.split()[0], **{**CASES[case], "original": original})
    expected = zoo.merged(folder, original(), torch.float32 if case in SINGLE else torch.float64)
    settings = MatrixSelection(smallest_side=1, experts="stacked")
    # Only the module tells how square weights of experts are stored.
    module = original() if "parameters" in case else None
    state = torch.get_rng_state()
    pair = open_pair(base, folder, settings, module)
    sent = pickle.dumps(pair)
    assert len(sent) < 16_000, "names and paths, no tensors"
    increments = {name: pickle.loads(sent).increment(name) for name in pair.matrices}
    changed = {name for name, tensor in expected.items() if tensor.ndim > 1 and tensor.any()}
    assert changed == {name for name, tensor in increments.items() if tensor.any()}
    assert all(expected[name].abs().max() > 1e-4 for name in changed)
    biases = {name for name, tensor in expected.items() if name.endswith("bias") and tensor.any()}
    assert biases <= {skipped.name for skipped in pair.skipped}
    for name, increment in increments.items():
        want = expected[name]
        assert increment.dtype == torch.float32
        # PEFT's operations, and at most sixteen roundings to float32.
        error = (increment - want.reshape(increment.shape)).norm()
        assert error <= SINGLE.get(case, 1e-6) * want.norm()
        if "experts" in name:
            expert = open_pair(base, folder, module=module).increment(f"{name}[2]")
            assert torch.equal(expert, increment.reshape(want.shape)[2])
    assert torch.equal(torch.get_rng_state(), state)
    if ALONE.match(case):
        alone = open_pair(folder, None, settings)
        assert sorted(alone.matrices) == sorted(pair.matrices)
        for name in alone.matrices:
            assert torch.equal(alone.increment(name), increments[name])
    elif not case.startswith("LOCA parameters"):
        rewrite(folder, base_model_name_or_path="org/base")
        with pytest.raises(InvalidArgumentError, match="pass the base org/base as well: BASE ADA"):
            open_pair(folder)
    else:
        reasons = {skipped.reason for skipped in open_pair(folder).skipped}
        assert reasons == {"its shape is only in the base"}


def test_every_type_and_option_of_peft_is_decided(tmp_path):
    """What PEFT has beyond these would be taken for plain LoRA, or be called unknown."""
    kinds = {getattr(kind, "value", kind) for kind in PEFT_TYPE_TO_CONFIG_MAPPING}
    assert set(KNOWN) <= kinds
    for kind in kinds - set(KNOWN):
        match = f"is an adapter of type {kind}, which [^n]|whose"
        with pytest.raises(InvalidArgumentError, match=match):
            check_type({"peft_type": kind}, tmp_path)
    by_name = {field.name: field for field in fields(peft.LoraConfig)}
    variants = {name for name, field in by_name.items() if field.metadata.get("is_lora_variant")}
    not_lora = variants - {"velora_config", "monteclora_config"}
    refused = {"alora_invocation_tokens", "arrow_config"}
    for option in not_lora - refused:
        assert needs_weights({"peft_type": "LORA", option: True})
    for option in refused:
        with pytest.raises(InvalidArgumentError, match=f"LORA with {option}, wh"):
            check_type({"peft_type": "LORA", option: True}, tmp_path)


@pytest.fixture
def lora(tmp_path):
    """A base, an adapter of it, and the increment of the first weight."""
    base, folder = adapt(tmp_path, "LORA", r=4)
    return base, folder, open_pair(folder).increment(WEIGHTS[0])


def rewrite(folder, **changes):
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | changes))


@pytest.mark.parametrize("scale", [1e-25, 1e25], ids=str)
def test_factors_whose_product_single_precision_cannot_hold(lora, scale):
    _, folder, expected = lora
    save_file(
        {name: scale * tensor for name, tensor in load_file(folder / FILE).items()}, folder / FILE
    )
    increment = open_pair(folder).increment(WEIGHTS[0])
    # Roundings of scaled entries, and of both products.
    atol = (2 + 2 * 5) * 4 * FLOAT32 * expected.abs().max().item()
    torch.testing.assert_close(increment / scale**2, expected.double(), rtol=0, atol=atol)


def test_a_trained_bias_and_a_whole_weight(tmp_path):
    base, folder = adapt(tmp_path, "LORA", r=4, bias="all", modules_to_save=["classifier"])
    pair = open_pair(base, folder, MatrixSelection(smallest_side=1))
    saved = load_file(folder / FILE)["base_model.model.classifier.weight"]
    expected = saved - load_file(base)["classifier.weight"]
    assert expected.abs().max() > 0.01
    assert torch.equal(pair.increment("classifier.weight"), expected)
    reasons = {skipped.name: skipped.reason for skipped in pair.skipped}
    assert reasons["classifier.bias"] == reasons["layers.0.q.bias"] == "a trained bias"
    alone = {skipped.name: skipped.reason for skipped in open_pair(folder).skipped}
    assert alone["classifier.weight"].startswith("stored whole (modules_to_save): pass the base")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_attention_with_one_weight_for_query_key_and_value(tmp_path):
    def original():
        torch.manual_seed(0)
        return nn.ModuleDict({"attn": nn.MultiheadAttention(32, 2)})

    pair = open_pair(*adapt(tmp_path, "LORA", original, r=4, target_modules=["attn"]))
    # PEFT 0.21 merges the increment of the output twice, and applies it once in a forward pass.
    tuned = peft.PeftModel.from_pretrained(original(), tmp_path / "adapter")
    attention = tuned.base_model.model["attn"]
    layers = {"in_proj_weight": attention, "out_proj.weight": attention.base_layer.out_proj}
    assert pair.matrices.keys() == {f"attn.{name}" for name in layers}
    for name, layer in layers.items():
        expected = layer.get_delta_weight("default").detach()
        torch.testing.assert_close(pair.increment(f"attn.{name}"), expected, atol=1e-6, rtol=0)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_conv1d_weights_of_a_base_without_prefix_and_head(tmp_path):
    """As on the hub, where the head is tied to the embedding."""
    base, folder = adapt(tmp_path, "LORA", gpt2, r=4, target_modules=[*CONV1D, "lm_head"])
    with_head = open_pair(base, folder)
    save_file(gpt2().transformer.state_dict(), base)
    pair = open_pair(base, folder)
    assert len(pair.matrices) == len(with_head.matrices) == 7
    for name in pair.matrices:
        prefix = "" if "lm_head" in name else "transformer."
        assert torch.equal(pair.increment(name), with_head.increment(prefix + name))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("in_memory", [False, True])
def test_increments_that_peft_adds_to_one_tensor_are_left_out(tmp_path, in_memory):
    base, folder = adapt(tmp_path, "LORA", gpt2, r=4, target_modules=["wte", "lm_head", "c_attn"])
    state = {name: tensor for name, tensor in load_file(base).items() if "lm_head" not in name}
    save_file(state, base)
    embedding, head = "transformer.wte.weight", "lm_head.weight"
    pair = open_pair({**state, head: state[embedding]} if in_memory else base, folder)
    assert list(pair.matrices) == [f"transformer.h.{i}.attn.c_attn.weight" for i in (0, 1)]
    said = {skipped.name: skipped.reason for skipped in pair.skipped}
    for name, other in ((embedding, head), (head, embedding)):
        assert said[name].endswith(f"pass the merged model: {other}")


Q, BASE = "base_model.model.layers.0.q", "base.safetensors"
A, B = f"{Q}.lora_A.weight", f"{Q}.lora_B.weight"
SHAPE, INDICES = f"{Q}.loca_spectrum.shape", f"{Q}.loca_spectrum.indices"
DOWN, BYTES = "mlp.experts.down_proj", torch.ones(3, 32, 4, dtype=torch.uint8)
# Changes of the configuration of plain LoRA, and the message of each.
CHANGED = [
    ({"peft_type": "NEW"}, "not a known type; known are ADALORA.* merge it"),
    ({"peft_type": None}, "has no peft_type"),
    ({"peft_type": "LOHA"}, "holds no tensor of a LOHA adapter"),
    ({"init_lora_weights": "pissa_niter_16"}, "path_initial_model_for_weight_conv"),
    ({"init_lora_weights": "corda"}, "changes the base in a way that"),
    ({"use_qalora": True}, "belongs to a quantised base"),
    ({"layer_replication": [[0, 2]]}, "repeats layers of its base"),
    ({"r": 8}, "another rank than in the configuration: 4, not 8"),
    ({"r": 0}, "adapter: adapter_config.json has no positive"),
    ({"use_dora": True}, "lacks lora_magnitude_vector"),
    ({"lora_alpha": "x"}, "has no number for lora_alpha"),
    ({"lora_alpha": 10**400}, "has no number for lora_alpha"),
    ({"alpha_pattern": {"(": 3}}, "alpha_pattern is not a regular"),
]
# Changes of the tensors of its file or of its base, and the message of each.
DAMAGED = [
    ({FILE: {B: None}}, "no product of two factors: the file has lora_A.weight$"),
    ({FILE: {A: torch.ones(3, 32)}}, "do not fit together"),
    ({BASE: {WEIGHTS[0]: torch.ones(30, 30)}}, r"no weight layers\.0\.q\.weight of shape 48x32"),
    (
        {BASE: {WEIGHTS[0]: None}},
        "save_original_format=False; otherwise pass the base that the adapter was trained on",
    ),
]
# The adapter, changes of its configuration and of tensors, and what is said.
REFUSED = [
    *(("LORA", {"r": 4}, changed, {}, said) for changed, said in CHANGED),
    *(("LORA", {"r": 4}, {}, changed, said) for changed, said in DAMAGED),
    ("LORA", {"use_dora": True}, {"use_dora": False}, {}, "lora_magnitude_vector"),
    (
        "LORA",
        {"use_dora": True},
        {},
        {
            FILE: {
                f"{Q}.lora_magnitude_vector": None,
                f"{Q}.lora_magnitude_vector.default": torch.ones(48),
            }
        },
        "lacks lora_magnitude_vector",
    ),
    (
        "ADALORA",
        CASES["ADALORA"],
        {"rank_pattern": {"layers.0.q.lora_E": [True]}},
        {},
        "rank_pattern does not have init_r=4 entries",
    ),
    ("FOURIERFT", {"n_frequency": 20}, {"n_frequency": 30}, {}, "size mismatch"),
    ("VERA", {"r": 16}, {"r": 10**9}, {}, "r=1000000000, and its tensors have at most"),
    ("OFT", {"oft_block_size": 8}, {"oft_block_size": 16}, {}, "PEFT cannot load it"),
    (
        "OFT",
        {"oft_block_size": 8},
        {},
        {BASE: {WEIGHTS[0]: torch.ones(48, 32).long()}},
        r"as torch\.int64: quantised",
    ),
    ("LOHA", {"r": 4}, {}, {FILE: {f"{Q}.hada_w2_a": None}}, "the file lacks hada_w2_a"),
    (
        "LOCA",
        {"n_frequency": 20},
        {},
        {FILE: {SHAPE: torch.tensor([torch.nan, 32])}},
        r"loca_spectrum\.shape holds no shape: \[nan, 32.0\]",
    ),
    (
        "LOCA",
        {"n_frequency": 20},
        {"n_frequency": 30},
        {},
        "another number of components than in the configuration: 20, not 30",
    ),
    (
        "LOCA",
        {"n_frequency": 20},
        {},
        {FILE: {INDICES: torch.full((20, 2), 32)}},
        "locations outside the matrix: 48x32",
    ),
    ("LOCA", {"n_frequency": 20}, {}, {FILE: {INDICES: None}}, "lacks loca_spectrum.indices"),
    ("LOCA", {"n_frequency": 20}, {}, {FILE: {f"{INDICES}_2": torch.ones(2)}}, "should not hold"),
    (
        "LOCA",
        {"n_frequency": 20},
        {},
        {FILE: {SHAPE: torch.tensor([2**40, 2**40])}, BASE: None},
        "larger than this machine's memory",
    ),
    # PEFT nests them without names, in an order that only the model's code tells.
    (
        "LOCA",
        {
            "n_frequency": 20,
            "original": partial(experts, (3, 32, 32), (3, 32, 32)),
            "target_modules": [],
            "target_parameters": STACKS,
        },
        {},
        {},
        "of this shape .* and the file does not tell which; merge the adapter",
    ),
    (
        "LORA",
        EXPERTS,
        {},
        {BASE: {DOWN: torch.ones(2, 32, 20)}},
        "factors of another rank than in the configuration: 12, not 4 for each expert",
    ),
    (
        "LORA",
        EXPERTS,
        {},
        {BASE: {DOWN: torch.ones(5, 32, 20)}},
        r"no weight mlp\.experts\.down_proj of",
    ),
    (
        "LORA",
        EXPERTS,
        {},
        {BASE: {DOWN: None, f"{DOWN}_blocks": BYTES, f"{DOWN}_scales": BYTES + 1}},
        "quantised",
    ),
    (
        "LORA",
        {"target_modules": ["embed", "q"], "r": 4, "use_dora": True},
        {},
        {BASE: {"embed.weight": torch.ones(36, 32)}},
        "^resized from 36x32 to 40x32$",
    ),
]


# What becomes of the names in a file.
RENAMED = {
    "the adapter's name": lambda key: (
        re.sub(r"((lora|hada|loca)_\w+)", r"\1.default", key)
        + (".weight" if key.endswith("magnitude_vector") else "")
    ),
    "another adapter's name": lambda key: re.sub(r"(lora_\w+)", r"\1.other", key),
    "a compiled adapter": "_orig_mod.{}".format,
    "a compiled model": lambda key: key.replace("base_model.model.", "base_model.model._orig_mod."),
    "a compiled block": lambda key: key.replace(".0.", ".0._orig_mod."),
    "in parallel": "module.{}".format,
    "no prefix": lambda key: key.removeprefix("base_model.model."),
}


@pytest.mark.filterwarnings("ignore:Found missing adapter keys", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("case", "names"),
    [
        *(("LORA", names) for names in RENAMED),
        *((case, "the adapter's name") for case in ("LORA with DoRA", "LOHA", "LOCA")),
        ("LOHA", "a compiled block"),
        # PEFT converts the names of this model, which adds the prefix.
        *(("LORA of Mixtral", names) for names in ("no prefix", "in parallel")),
    ],
)
def test_what_peft_loads_is_read_and_the_rest_is_said_to_be_left(tmp_path, case, names):
    original, settings = model, CASES.get(case)
    if settings is None:
        original, settings = partial(zoo.make, "Mixtral"), {"target_modules": ["q_proj"]}
    elif "target_modules" in settings:
        settings = {**settings, "target_modules": ["q", "v"]}
    base, folder = adapt(tmp_path, case.split()[0], original, **settings)
    tensors = {RENAMED[names](name): tensor for name, tensor in load_file(folder / FILE).items()}
    save_file(tensors, folder / FILE)
    (tmp_path / "config.json").write_text('{"model_type": "mixtral"}' if "Mix" in case else "{}")
    expected = {
        name: change for name, change in zoo.merged(folder, original()).items() if change.any()
    }
    if not expected and "another" not in names:
        with pytest.raises(DamagedError, match=r"PEFT loads.*(has the part|does not begin)"):
            open_pair(base, folder)
        return
    pair = open_pair(base, folder)
    assert pair.matrices.keys() == expected.keys()
    for name, change in expected.items():
        torch.testing.assert_close(pair.increment(name), change, rtol=0, atol=1e-5)
    left = [skipped.reason for skipped in pair.skipped if skipped.damaged]
    assert all(reason.startswith(("PEFT does not load it", "PEFT finds no")) for reason in left)
    assert bool(left) == (len(expected) < (2 if "Mix" in case else 4))


@pytest.mark.parametrize(("kind", "settings", "changes", "tensors", "message"), REFUSED)
def test_what_has_no_increment_or_disagrees_with_itself_or_its_base(
    tmp_path, kind, settings, changes, tensors, message
):
    base, folder = adapt(tmp_path, kind, **settings)
    rewrite(folder, **changes)
    sides, files = [base, folder], {BASE: base, FILE: folder / FILE}
    for name, changed in tensors.items():
        if changed is None:
            sides.remove(files[name])
            continue
        stored = {**load_file(files[name]), **changed}
        save_file(
            {key: tensor for key, tensor in stored.items() if tensor is not None}, files[name]
        )
    try:
        pair = open_pair(*sides)
        for name in pair.matrices:
            pair.increment(name)
        said = " ".join(skipped.reason for skipped in pair.skipped)
    except (ResourceError, InvalidArgumentError) as error:
        said = str(error)
    assert re.search(message, said)


def test_several_adapters_in_one_folder(tmp_path):
    for name in ("first", "second"):
        _, adapter = adapt(tmp_path / name, "LORA", r=4)
        adapter.rename(tmp_path / f"a of {name}")
    with pytest.raises(InvalidArgumentError, match=r"\(a of first, a of second\); pass one"):
        open_pair(tmp_path)


def test_a_merged_model_beside_what_is_left_of_its_adapter(tmp_path):
    base, adapter = adapt(tmp_path, "LORA", r=4)
    merged = peft.PeftModel.from_pretrained(model(), adapter).merge_and_unload().state_dict()
    (adapter / FILE).rename(adapter / "model.safetensors")
    save_file(merged, adapter / "model.safetensors")
    pair = open_pair(base, adapter)
    assert pair.increment(WEIGHTS[0]).any()
    assert pair.base is not None


def test_nothing_that_a_configuration_names_is_imported(tmp_path, monkeypatch):
    base, folder = adapt(tmp_path / "files", "LORA", r=4, use_dora=True)
    (tmp_path / "named_by_an_adapter.py").write_text("raise SystemExit\n")
    monkeypatch.syspath_prepend(tmp_path)
    expected = open_pair(base, folder).increment(WEIGHTS[0])
    rewrite(folder, megatron_config={"a": 1}, megatron_core="named_by_an_adapter")
    assert torch.equal(open_pair(base, folder).increment(WEIGHTS[0]), expected)


def test_the_fingerprint_covers_what_an_increment_depends_on(lora):
    def fingerprint():
        return open_pair(base, folder).fingerprint(WEIGHTS[0])

    base, folder, _ = lora
    stored, weights = load_file(folder / FILE), load_file(base)
    assert torch.equal(open_pair(base, folder).weights(WEIGHTS[0]), weights[WEIGHTS[0]])
    assert open_pair(folder).weights(WEIGHTS[0]) is None
    prints = {fingerprint(), fingerprint()}
    save_file({**stored, A: stored[A] + 1}, folder / FILE)
    prints.add(fingerprint())
    save_file({**weights, WEIGHTS[0]: weights[WEIGHTS[0]] + 1}, base)
    prints.add(fingerprint())
    rewrite(folder, lora_alpha=5)
    assert len(prints | {fingerprint()}) == 4


def test_loca_is_read_without_peft(tmp_path, monkeypatch):
    base, folder = adapt(tmp_path, "LOCA", n_frequency=20)
    expected = open_pair(base, folder).increment(WEIGHTS[0])
    monkeypatch.setitem(sys.modules, "peft", None)
    assert torch.equal(open_pair(folder).increment(WEIGHTS[0]), expected)


@pytest.mark.parametrize("case", ["LOHA", "LORA with DoRA", "VERA"])
def test_peft_wraps_all_layers_once_and_a_damaged_one_leaves_the_others(
    tmp_path, monkeypatch, case
):
    settings = {**CASES[case], "target_modules": ["q", "v"]}
    base, folder = adapt(tmp_path, case.split()[0], **settings)
    expected = zoo.merged(folder, model(), torch.float64)
    tensors = load_file(folder / FILE)
    del tensors[max(name for name in tensors if name.startswith(Q))]
    save_file(tensors, folder / FILE)
    calls, wrap = [], peft.get_peft_model
    counted = lambda *args, **options: calls.append(args) or wrap(*args, **options)  # noqa: E731
    monkeypatch.setattr(peft, "get_peft_model", counted)
    pair = open_pair(base, folder)
    with pytest.raises(DamagedError, match="the file lacks"):
        pair.increment(WEIGHTS[0])
    for name in WEIGHTS[1:]:
        torch.testing.assert_close(pair.increment(name).double(), expected[name], atol=1e-6, rtol=0)
    assert len(calls) == 1


def test_plain_lora_is_read_from_either_file_and_without_peft(lora, monkeypatch):
    base, folder, expected = lora
    monkeypatch.setitem(sys.modules, "peft", None)
    content = {name: tensor.clone() for name, tensor in load_file(folder / FILE).items()}
    (folder / FILE).unlink()
    with pytest.raises(InvalidArgumentError, match=r"and no adapter_model\.safetensors; fetch"):
        open_pair(folder)
    torch.save(content, folder / "adapter_model.bin")
    for sides in ((folder,), (base, folder)):
        assert torch.equal(open_pair(*sides).increment(WEIGHTS[0]), expected)
    rewrite(folder, fan_in_fan_out=True)  # which decides about layers of an unknown class
    assert torch.equal(open_pair(folder).increment(WEIGHTS[0]), expected.T)
    rewrite(folder, peft_type="LOHA")
    with pytest.raises(ResourceError, match=r"LOHA adapter needs PEFT: pip install 'loca-theory\["):
        open_pair(base, folder)
