"""FP8 weights against the scale of each entry, and quantised modules that are not read."""

import json
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch.utils._python_dispatch import TorchDispatchMode

from loca_theory.checkpoints.change.opening import open_pair
from loca_theory.checkpoints.source.checkpoint import DamagedError
from loca_theory.checkpoints.source.open import open_checkpoint
from loca_theory.checkpoints.source.scales import scaled
from loca_theory.errors import InvalidArgumentError
from tests.checkpoints.files import folder_of, normal

P, Q = 40, 36
FP8 = torch.float8_e4m3fn


def positive(*shape, seed=5):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) + 0.5


def stored(*shape, kind=FP8):
    return (50 * normal(*shape)).to(kind)


POWERS = 2.0 ** normal(P, 3).round()
MATRIX, EXPERTS = (P, Q), (2, P, Q)
# The shape of a weight, its scales, and which of them an entry is multiplied by.
GRIDS = {
    "of the tensor": (MATRIX, positive(), lambda s, i, j: s),
    "of rows": (MATRIX, positive(P), lambda s, i, j: s[i]),
    "of rows, bfloat16": (MATRIX, positive(P, 1).bfloat16(), lambda s, i, j: s[i, 0]),
    "of columns": (MATRIX, positive(1, Q), lambda s, i, j: s[0, j]),
    "powers of two": (MATRIX, POWERS.to(torch.float8_e8m0fnu), lambda s, i, j: POWERS[i, j // 12]),
    "of blocks": (MATRIX, positive(3, 3), lambda s, i, j: s[i // 16, j // 12]),
    "of blocks that divide": (MATRIX, positive(10, 9), lambda s, i, j: s[i // 4, j // 4]),
    "of blocks, four dimensions": (
        MATRIX,
        positive(3, 1, 3, 1),
        lambda s, i, j: s[i // 16, 0, j // 12, 0],
    ),
    "of all experts": (EXPERTS, positive(), lambda s, e, i, j: s),
    "of each expert": (EXPERTS, positive(2), lambda s, e, i, j: s[e]),
    "of experts' rows": (EXPERTS, positive(2, P), lambda s, e, i, j: s[e, i]),
    "of experts' blocks": (EXPERTS, positive(2, 3, 3), lambda s, e, i, j: s[e, i // 16, j // 12]),
}


@pytest.mark.parametrize(("shape", "scale", "of"), GRIDS.values(), ids=GRIDS.keys())
def test_a_weight_is_multiplied_by_its_scales(tmp_path, shape, scale, of):
    name = "a.weight" if shape == MATRIX else "mlp.experts.gate_up_proj"
    weight = stored(*shape)
    content = {name: weight, f"{name}_scale": scale, "a.bias": normal(P)}
    checkpoint = open_checkpoint(folder_of(tmp_path, content))
    assert set(checkpoint.entries) == {name, "a.bias"}
    assert checkpoint.entries[name].is_computed
    indices = torch.meshgrid(*map(torch.arange, shape), indexing="ij")
    expected = weight.float() * of(scale, *indices)
    assert torch.equal(checkpoint.load(name), expected)
    if shape == EXPERTS:
        assert torch.equal(checkpoint.load(name, 1), expected[1])


NAMES = ("a.weight_scale", "a.weight_scale_inv", "a.scale", "a.qscale_weight")


@pytest.mark.parametrize("kind", [FP8, torch.float8_e5m2])
@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_scales_is_known(tmp_path, name, kind):
    """Single numbers beside them are of the layer's inputs and do not matter."""
    weight, scale = stored(P, Q, kind=kind), positive(P)
    content = {"a.weight": weight, name: scale, "a.input_scale": torch.tensor(2.0)}
    checkpoint = open_checkpoint(folder_of(tmp_path, content))
    assert set(checkpoint.entries) == {"a.weight", "a.input_scale"}
    assert torch.equal(checkpoint.load("a.weight"), weight.float() * scale[:, None])


def test_the_configuration_states_the_blocks(tmp_path):
    """Blocks of 128 would be as many."""
    weight, scale = stored(200, Q), positive(2, 1)
    content = {"a.weight": weight, "a.weight_scale": scale}
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [150, Q]}}
    checkpoint = open_checkpoint(folder_of(tmp_path, content, config))
    expected = weight.float() * scale.repeat_interleave(150, dim=0)[:200]
    assert torch.equal(checkpoint.load("a.weight"), expected)


class Allocated(TorchDispatchMode):
    """Adds up the memory that operations claim."""

    def __init__(self):
        super().__init__()
        self.sizes = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        if isinstance(output, torch.Tensor):
            storage = output.untyped_storage()
            self.sizes[storage.data_ptr()] = storage.nbytes()
        return output


@pytest.mark.parametrize("shape", [(), (512, 1), (1, 512), (4, 4), (512, 4)], ids=str)
def test_scales_take_little_more_memory_than_the_matrix(shape):
    weight, scale = stored(512, 512), positive(*shape)
    size = weight.untyped_storage().nbytes() + scale.untyped_storage().nbytes()
    with Allocated() as allocated:
        scaled(weight, scale)
    assert sum(allocated.sizes.values()) <= 1.05 * 512 * 512 * 4 + size


def test_the_fingerprint_covers_the_scales(tmp_path):
    """Of an expert, its own."""
    name, experts = "a.weight", "mlp.experts.down_proj"
    base = folder_of(tmp_path / "base", {name: normal(20, 24), experts: normal(2, 20, 24)})
    content = {name: stored(20, 24), experts: stored(2, 20, 24)}
    prints = []
    for scale in (1.0, 1.0, 2.0):
        scales = {f"{name}_scale": torch.tensor(scale), f"{experts}_scale": torch.ones(2)}
        scales[f"{experts}_scale"][1] = scale
        pair = open_pair(base, folder_of(tmp_path / "tuned", {**content, **scales}))
        prints.append([pair.fingerprint(name) for name in (name, f"{experts}[0]", f"{experts}[1]")])
    assert prints[0] == prints[1]
    assert [a == b for a, b in zip(prints[1], prints[2], strict=True)] == [False, True, False]


BYTES, NUMBERS = torch.ones(20, 20).byte(), normal(20, 20)
WORDS, SHORTS, WIDE, FLOAT8 = BYTES.int(), BYTES.short(), BYTES.long(), NUMBERS.to(FP8)
# The tensors of a module as packages store it, by the ends of their names.
STORED = {
    "GPTQ": {".qweight": WORDS, ".qzeros": WORDS, ".scales": NUMBERS, ".g_idx": WORDS[0]},
    "AWQ": {".qweight": WORDS, ".qzeros": WORDS, ".scales": NUMBERS},
    "NF4": {
        ".weight": BYTES,
        ".weight.absmax": NUMBERS,
        ".weight.quant_map": NUMBERS,
        ".weight.quant_state.bitsandbytes__nf4": BYTES,
    },
    "LLM.int8": {".weight": BYTES.char(), ".SCB": NUMBERS[0], ".weight_format": BYTES[0, 0]},
    "compressed-tensors, packed": {
        ".weight_packed": WORDS,
        ".weight_scale": NUMBERS,
        ".weight_shape": WIDE[0],
    },
    "compressed-tensors, INT8": {
        ".weight": BYTES.char(),
        ".weight_scale": NUMBERS,
        ".weight_zero_point": BYTES.char(),
    },
    "compressed-tensors, sparse": {
        ".weight.compressed": NUMBERS,
        ".weight.bitmask": BYTES,
        ".weight.shape": WIDE[0],
    },
    "NVFP4": {".weight": BYTES, ".weight_scale": FLOAT8, ".weight_scale_2": NUMBERS[0, 0]},
    "MXFP4": {".weight_blocks": BYTES, ".weight_scales": BYTES},
    "MXFP8": {".weight": FLOAT8, ".weight_scale": BYTES},
    "FP4 of DeepSeek": {".weight": BYTES.char(), ".scale": NUMBERS.to(torch.float8_e8m0fnu)},
    "FP8 of ComfyUI": {".weight": FLOAT8, ".scale_weight": NUMBERS[0, 0]},
    "FP8 with zero points": {
        ".weight": FLOAT8,
        ".weight_scale": NUMBERS,
        ".weight_zero_point": FLOAT8,
    },
    "HQQ": {".W_q": BYTES, ".scale": NUMBERS, ".zero": NUMBERS, ".group_size": WIDE[0, 0]},
    "quanto": {".weight._data": BYTES, ".weight._scale": NUMBERS, ".weight._shift": NUMBERS},
    "quanto, FP8": {".weight._data": FLOAT8, ".weight._scale": NUMBERS},
    "torchao": {
        "._weight_qdata": BYTES,
        "._weight_scale": NUMBERS,
        "._weight_zero_point": NUMBERS,
    },
    "torchao, FP8": {"._weight_qdata": FLOAT8, "._weight_scale": NUMBERS},
    "HIGGS": {".weight": SHORTS, ".scales": NUMBERS, ".tables": NUMBERS[0], ".tables2": NUMBERS},
    "FP-Quant": {
        ".qweight": BYTES,
        ".scales": BYTES,
        ".forward_hadamard_matrix": NUMBERS,
        ".backward_hadamard_matrix": NUMBERS,
    },
    "AQLM": {".codes": SHORTS, ".codebooks": NUMBERS[:, :, None], ".scales": NUMBERS},
    "MLX": {".weight": WORDS.to(torch.uint32), ".scales": NUMBERS, ".biases": NUMBERS},
}
WAY_OUT = "dequantise the model with its own library, save it and pass the copy"


@pytest.mark.parametrize("sides", ["both", "base", "tuned"])
@pytest.mark.parametrize("kind", STORED)
def test_a_quantised_module_is_left_out_whole(tmp_path, kind, sides):
    """For the same reason beside one that is not quantised, and also if it has no configuration."""
    content = {f"a{end}": tensor.clone() for end, tensor in STORED[kind].items()}
    quantised = {**content, "a.bias": normal(20), "b.weight": normal(20, 20)}
    dense = {"a.weight": normal(20, 20), "a.bias": normal(20), "b.weight": normal(20, 20, seed=1)}
    changed = {**quantised, "b.weight": dense["b.weight"]}
    base, tuned = quantised, changed if sides == "both" else dense
    base, tuned = (tuned, base) if sides == "tuned" else (base, tuned)
    pair = open_pair(folder_of(tmp_path / "base", base), folder_of(tmp_path / "tuned", tuned))
    assert list(pair.matrices) == ["b.weight"]
    assert {skipped.name for skipped in pair.skipped} == {"a.weight", "a.bias"}
    (reason,) = {skipped.reason for skipped in pair.skipped}
    assert re.fullmatch(rf"quantised \((U8|I8|I16|I32|U32|F8_E4M3)\); {WAY_OUT}", reason)
    assert not any(skipped.damaged for skipped in pair.skipped)


# The quantisation that a configuration states, and tensors that hold numbers all the same.
PLAIN = {
    "a mask in a module with others": (None, {"a.bias": BYTES, "a.q.weight": NUMBERS}),
    "indices": (None, {"a.position_ids": WIDE, "a.table": NUMBERS}),
    "the state of code": (None, {"a.fc1_weight": NUMBERS, "a._extra_state": BYTES}),
    "a module that was not converted": ("gptq", {"a.weight": NUMBERS, "a.q.qweight": WORDS}),
    "experts that were not": ("bitsandbytes", {"a.experts.up_proj": normal(2, 20, 20)}),
    "FP8 without scales": (None, {"a.weight": FLOAT8, "a.norm": NUMBERS[0]}),
}


@pytest.mark.parametrize(("method", "content"), PLAIN.values(), ids=PLAIN)
def test_what_is_not_quantised_is_read(tmp_path, method, content):
    content = {name: tensor.clone() for name, tensor in content.items()}
    config = {"quantization_config": {"quant_method": method}} if method else None
    checkpoint = open_checkpoint(folder_of(tmp_path, content, config))
    weights = {name for name, tensor in content.items() if tensor.is_floating_point()}
    assert weights <= checkpoint.entries.keys()


def test_a_method_that_is_not_read_is_named(tmp_path):
    """Also where its tensors float."""
    content = {"a.dqweight": normal(20, 20), "a.hadamard": normal(20, 20), "b.weight": NUMBERS}
    config = {"quantization_config": {"quant_method": "fp_quant"}}
    checkpoint = open_checkpoint(folder_of(tmp_path, content, config))
    assert set(checkpoint.entries) == {"b.weight"}
    assert {name: str(reason) for name, reason in checkpoint.left_out.items()} == {
        "a.weight": f"quantised (fp_quant); {WAY_OUT}"
    }


def test_the_way_out_is_said_if_nothing_else_is_left(tmp_path):
    folder = folder_of(tmp_path, {"a.qweight": WORDS, "a.scales": NUMBERS})
    with pytest.raises(InvalidArgumentError, match=rf"quantised \(I32\); {WAY_OUT}"):
        open_pair(folder, folder)


UNFIT = "its scales do not fit its shape"
WRONG = [(P + 1,), (P, 2, 2), (7, 3), (0,), (2, P, 1)]
WEIGHT = {"a.weight": stored(P, Q)}
# Tensors of a checkpoint, what is said of a.weight, and whether it is damaged.
REASONS = {
    **{
        f"wrong shape {shape}": (
            {**WEIGHT, "a.weight_scale": positive(*shape)},
            f"{UNFIT}: a.weight_scale of shape {'x'.join(map(str, shape))}, and 40x36",
            True,
        )
        for shape in WRONG
    },
    "no scales, unlike others": (
        {**WEIGHT, "c.weight": stored(P, Q), "c.weight_scale": positive(P)},
        f"FP8 without scales; {WAY_OUT}",
        False,
    ),
    "no scales, in spite of the configuration": (
        WEIGHT,
        f"FP8 without scales; {WAY_OUT}",
        False,
    ),
}


@pytest.mark.parametrize("case", REASONS)
def test_what_cannot_be_read_is_one_reason(tmp_path, case):
    content, reason, is_damaged = REASONS[case]
    config = {"quantization_config": {"quant_method": "fp8"}} if "configuration" in case else None
    base = folder_of(tmp_path / "base", {"a.weight": normal(P, Q), "b.weight": normal(P, Q)})
    content = {name: tensor.clone() for name, tensor in content.items()}
    content["b.weight"] = normal(P, Q, seed=1)
    pair = open_pair(base, folder_of(tmp_path / "tuned", content, config))
    assert list(pair.matrices) == ["b.weight"]
    (left_out,) = (skipped for skipped in pair.skipped if skipped.name != "c.weight")
    assert (left_out.name, left_out.reason, left_out.damaged) == ("a.weight", reason, is_damaged)


def test_a_missing_shard_costs_the_weight_of_its_scales_and_no_scales_are_a_weight(tmp_path):
    content = {"a.weight_scale_inv": positive(P, 1), "b.weight": stored(P, Q)}
    content |= {"b.weight_scale_inv": positive(P, 1), "c.weight": stored(P, Q)}
    save_file(content, tmp_path / "1.safetensors")
    missing = dict.fromkeys(["a.weight", "c.weight_scale_inv"], "2.safetensors")
    index = {"weight_map": {**dict.fromkeys(content, "1.safetensors"), **missing}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    checkpoint = open_checkpoint(tmp_path)
    assert set(checkpoint.entries) == {"b.weight"}
    damaged = {name: str(reason) for name, reason in checkpoint.left_out.items() if reason.damaged}
    assert damaged.keys() >= {"a.weight", "c.weight"}
    assert "a part of it cannot be read: c.weight_scale_inv: " in damaged["c.weight"]
    assert "2.safetensors" in damaged["c.weight"]


@pytest.mark.parametrize("scale", [math.nan, math.inf])
def test_scales_that_are_not_finite_are_damage(tmp_path, scale):
    content = {"a.weight": stored(P, Q), "a.scale": positive(P)}
    content["a.scale"][3] = scale
    checkpoint = open_checkpoint(folder_of(tmp_path, content))
    with pytest.raises(DamagedError, match=r"a\.weight has scales that are not finite: a.scale"):
        checkpoint.load("a.weight")


@settings(deadline=None, derandomize=True, max_examples=150)
@given(
    weight=st.lists(st.integers(0, 6), max_size=4),
    scale=st.lists(st.integers(0, 6), max_size=4),
    kind=st.sampled_from([FP8, torch.int8, torch.uint8]),
    name=st.sampled_from(["a.weight", "mlp.experts.w", "weight", "a.weight_scale"]),
    block=st.none() | st.lists(st.integers(-1, 5), max_size=3),
)
def test_any_shapes_are_read_or_refused(tmp_path_factory, weight, scale, kind, name, block):
    content = {name: torch.ones(weight).to(kind), f"{name}_scale": torch.ones(scale)}
    config = {"quantization_config": {"weight_block_size": block}}
    checkpoint = open_checkpoint(folder_of(tmp_path_factory.mktemp("any"), content, config))
    for key, entry in checkpoint.entries.items():
        assert tuple(checkpoint.load(key).shape) == entry.shape
