"""Weights in FP8 and INT8 with scales, against the scale of each entry by its indices."""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch.utils._python_dispatch import TorchDispatchMode

from loca_theory.checkpoints.pairs.opening import open_pair
from loca_theory.checkpoints.weights.checkpoint import DamagedError
from loca_theory.checkpoints.weights.scales import scaled
from loca_theory.checkpoints.weights.sources import open_checkpoint
from tests.checkpoints.files import folder_of, normal

P, Q = 40, 36
FP8 = torch.float8_e4m3fn


def positive(*shape, seed=5):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) + 0.5


def stored(kind, *shape):
    values = 50 * normal(*shape)
    return values.round().clamp(-127, 127).to(kind) if kind == torch.int8 else values.to(kind)


POWERS = 2.0 ** normal(P, 3).round()
MATRIX, EXPERTS = (P, Q), (2, P, Q)
# The shape of a weight, its scales, and which of them an entry is multiplied by.
GRIDS = {
    "of the tensor": (MATRIX, positive(), lambda s, i, j: s),
    "of rows": (MATRIX, positive(P), lambda s, i, j: s[i]),
    "of rows, bfloat16": (MATRIX, positive(P, 1).bfloat16(), lambda s, i, j: s[i, 0]),
    "of columns": (MATRIX, positive(1, Q), lambda s, i, j: s[0, j]),
    "powers of two": (
        MATRIX, POWERS.to(torch.float8_e8m0fnu), lambda s, i, j: POWERS[i, j // 12]
    ),
    "of blocks": (MATRIX, positive(3, 3), lambda s, i, j: s[i // 16, j // 12]),
    "of blocks that divide": (MATRIX, positive(10, 9), lambda s, i, j: s[i // 4, j // 4]),
    "of blocks, four dimensions": (
        MATRIX, positive(3, 1, 3, 1), lambda s, i, j: s[i // 16, 0, j // 12, 0]
    ),
    "of all experts": (EXPERTS, positive(), lambda s, e, i, j: s),
    "of each expert": (EXPERTS, positive(2), lambda s, e, i, j: s[e]),
    "of experts' rows": (EXPERTS, positive(2, P), lambda s, e, i, j: s[e, i]),
    "of experts' blocks": (EXPERTS, positive(2, 3, 3), lambda s, e, i, j: s[e, i // 16, j // 12]),
}  # fmt: skip


@pytest.mark.parametrize(("shape", "scale", "of"), GRIDS.values(), ids=GRIDS.keys())
def test_a_weight_is_multiplied_by_its_scales(tmp_path, shape, scale, of):
    name = "a.weight" if shape == MATRIX else "mlp.experts.gate_up_proj"
    weight = stored(FP8, *shape)
    content = {name: weight, f"{name}_scale": scale, "a.bias": normal(P)}
    checkpoint = open_checkpoint(folder_of(tmp_path, content))
    assert set(checkpoint.entries) == {name, "a.bias"}
    assert checkpoint.entries[name].is_scaled
    indices = torch.meshgrid(*map(torch.arange, shape), indexing="ij")
    expected = weight.float() * of(scale, *indices)
    assert torch.equal(checkpoint.load(name), expected)
    if shape == EXPERTS:
        assert torch.equal(checkpoint.load(name, 1), expected[1])


# Names of scales, and the type of the weight.
NAMES = {
    "a.weight_scale": torch.int8, "a.weight_scale_inv": torch.float8_e5m2, "a.scale": FP8,
    "a.qscale_weight": FP8, "a.scale_weight": FP8,
}  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), NAMES.items())
def test_every_name_of_scales_is_known(tmp_path, name, kind):
    weight, scale = stored(kind, P, Q), positive(P)
    checkpoint = open_checkpoint(folder_of(tmp_path, {"a.weight": weight, name: scale}))
    assert set(checkpoint.entries) == {"a.weight"}
    assert torch.equal(checkpoint.load("a.weight"), weight.float() * scale[:, None])


def test_zero_points_are_subtracted_first_and_the_configuration_states_the_blocks(tmp_path):
    """Blocks of 128 would be as many."""
    weight, scale = stored(torch.int8, 200, Q), positive(2, 1)
    zero = (20 * normal(2, 1)).round().to(torch.int8)
    content = {"a.weight": weight, "a.weight_scale": scale, "a.weight_zero_point": zero}
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [150, Q]}}
    checkpoint = open_checkpoint(folder_of(tmp_path, content, config))
    assert set(checkpoint.entries) == {"a.weight"}
    scale, zero = (one.repeat_interleave(150, dim=0)[:200] for one in (scale, zero))
    assert torch.equal(checkpoint.load("a.weight"), (weight.float() - zero) * scale)


class Allocated(TorchDispatchMode):
    """Adds up the memory that operations claim."""

    def __init__(self):
        super().__init__()
        self.sizes = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor):
            storage = found.untyped_storage()
            self.sizes[storage.data_ptr()] = storage.nbytes()
        return found


@pytest.mark.parametrize("shape", [(), (512, 1), (1, 512), (4, 4), (512, 4)], ids=str)
def test_scales_take_little_more_memory_than_the_matrix(shape):
    weight, scale = stored(FP8, 512, 512), positive(*shape)
    given = weight.untyped_storage().nbytes() + scale.untyped_storage().nbytes()
    with Allocated() as allocated:
        scaled(weight, scale)
    assert sum(allocated.sizes.values()) <= 1.05 * 512 * 512 * 4 + given


def test_the_fingerprint_covers_the_scales(tmp_path):
    """Of an expert, its own."""
    name, experts = "a.weight", "mlp.experts.down_proj"
    base = folder_of(tmp_path / "base", {name: normal(20, 24), experts: normal(2, 20, 24)})
    content = {name: stored(FP8, 20, 24), experts: stored(FP8, 2, 20, 24)}
    prints = []
    for scale in (1.0, 1.0, 2.0):
        scales = {f"{name}_scale": torch.tensor(scale), f"{experts}_scale": torch.ones(2)}
        scales[f"{experts}_scale"][1] = scale
        pair = open_pair(base, folder_of(tmp_path / "tuned", {**content, **scales}))
        prints.append([pair.fingerprint(one) for one in (name, f"{experts}[0]", f"{experts}[1]")])
    assert prints[0] == prints[1]
    assert [a == b for a, b in zip(prints[1], prints[2], strict=True)] == [False, True, False]


BYTES, WORDS, NUMBERS = torch.ones(4, 4).byte(), torch.ones(4, 4).int(), normal(4, 4)
# Names and types of tensors tell the format.
PACKED = {
    "GPTQ": {"a.qweight": WORDS, "a.qzeros": WORDS, "a.scales": NUMBERS, "a.g_idx": WORDS},
    "AWQ": {"a.qweight": WORDS, "a.qzeros": WORDS, "a.scales": NUMBERS},
    "NF4 of bitsandbytes": {
        "a.weight": BYTES, "a.weight.absmax": NUMBERS, "a.weight.quant_map": NUMBERS,
        "a.weight.quant_state.bitsandbytes__nf4": BYTES,
    },
    "compressed-tensors": {
        "a.weight_packed": WORDS, "a.weight_scale": NUMBERS, "a.weight_shape": WORDS,
    },
    "NVFP4": {"a.weight": BYTES, "a.weight_scale": NUMBERS, "a.weight_scale_2": NUMBERS},
    "MXFP4": {"a.weight_blocks": BYTES, "a.weight_scales": BYTES},
    "bytes": {"a.weight": BYTES, "a.weight_scale": NUMBERS},
    "FP4": {
        "a.weight": BYTES.char(), "a.weight_scale_inv": NUMBERS.to(torch.float8_e8m0fnu),
    },
}  # fmt: skip
WAY_OUT = "dequantise the model with its own library, save it and pass the copy"
WRONG = [(P + 1,), (P, 2, 2), (7, 3), (0,), (2, P, 1)]
WEIGHT = {"a.weight": stored(FP8, P, Q)}
# Tensors of a checkpoint, what is said of a.weight, and whether it is damaged.
REASONS = {
    **{kind: (content, f"packed as {kind}: {WAY_OUT}", False) for kind, content in PACKED.items()},
    **{
        f"wrong shape {shape}": (
            {**WEIGHT, "a.weight_scale": positive(*shape)},
            f"a.weight_scale of shape {'x'.join(map(str, shape))} do not fit its shape 40x36", True,
        )
        for shape in WRONG
    },
    "wrong zero points": (
        {"a.weight": stored(torch.int8, P, Q), "a.weight_scale": positive(P, 1),
         "a.weight_zero_point": torch.ones(P, 5).int()},
        "a.weight_scale and a.weight_zero_point of shape 40x1 and 40x5 do not fit its shape 40x36",
        True,
    ),
    "no numbers": (
        {**WEIGHT, "a.weight_scale": torch.ones(P).byte()},
        f"its scales a.weight_scale are of type U8: {WAY_OUT}", True,
    ),
    "no scales, unlike others": (
        {**WEIGHT, "c.weight": stored(FP8, P, Q), "c.weight_scale": positive(P)},
        f"FP8 without scales: {WAY_OUT}", False,
    ),
    "no scales, in spite of the configuration": (
        WEIGHT, f"FP8 without scales: {WAY_OUT}", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REASONS)
def test_what_cannot_be_read_is_one_reason(tmp_path, case):
    content, reason, is_damaged = REASONS[case]
    config = {"quantization_config": {"quant_method": "fp8"}} if "configuration" in case else None
    base = folder_of(tmp_path / "base", {"a.weight": normal(P, Q), "b.weight": normal(P, Q)})
    content = {name: one.clone() for name, one in content.items()}
    content["b.weight"] = normal(P, Q, seed=1)
    pair = open_pair(base, folder_of(tmp_path / "tuned", content, config))
    assert list(pair.matrices) == ["b.weight"]
    (found,) = (one for one in pair.skipped if one.name != "c.weight")
    assert (found.name, found.reason, found.damaged) == ("a.weight", reason, is_damaged)


def test_a_missing_shard_costs_the_weight_of_its_scales_and_no_scales_are_a_weight(tmp_path):
    content = {"a.weight_scale_inv": positive(P, 1), "b.weight": stored(FP8, P, Q)}
    content |= {"b.weight_scale_inv": positive(P, 1), "c.weight": stored(FP8, P, Q)}
    save_file(content, tmp_path / "1.safetensors")
    missing = dict.fromkeys(["a.weight", "c.weight_scale_inv"], "2.safetensors")
    index = {"weight_map": {**dict.fromkeys(content, "1.safetensors"), **missing}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    checkpoint = open_checkpoint(tmp_path)
    assert set(checkpoint.entries) == {"b.weight"}
    damaged = {name: str(one) for name, one in checkpoint.left_out.items() if one.damaged}
    assert damaged.keys() >= {"a.weight", "c.weight"}
    assert "its c.weight_scale_inv cannot be read" in damaged["c.weight"]
    assert "2.safetensors" in damaged["c.weight"]


def test_scales_that_are_not_finite_and_the_layout_of_a_gpu_are_damage(tmp_path):
    content = {"a.weight": stored(torch.int8, P, Q), "a.SCB": positive(P)}
    rows_first = torch.tensor(0, dtype=torch.uint8)
    for scale in (math.nan, math.inf):
        content["a.SCB"][3] = scale
        with pytest.raises(DamagedError, match=r"a\.weight has scales that are not finite: a.SCB"):
            open_checkpoint(folder_of(tmp_path, content)).load("a.weight")
    content["a.SCB"][3] = 1
    expected = content["a.weight"].float() * content["a.SCB"][:, None] / 127
    for layout in (rows_first, rows_first[None][:0]):
        checkpoint = open_checkpoint(folder_of(tmp_path, content | {"a.weight_format": layout}))
        assert set(checkpoint.entries) == {"a.weight"}
        torch.testing.assert_close(checkpoint.load("a.weight"), expected, rtol=1e-6, atol=0)
    checkpoint = open_checkpoint(folder_of(tmp_path, content | {"a.weight_format": rows_first + 1}))
    with pytest.raises(DamagedError, match="in the layout of a GPU"):
        checkpoint.load("a.weight")


@settings(deadline=None, derandomize=True, max_examples=150)
@given(
    weight=st.lists(st.integers(0, 6), max_size=4),
    scale=st.lists(st.integers(0, 6), max_size=4),
    zero=st.none() | st.lists(st.integers(0, 3), max_size=2),
    kind=st.sampled_from([FP8, torch.int8, torch.uint8]),
    name=st.sampled_from(["a.weight", "mlp.experts.w", "weight", "a.weight_scale"]),
    block=st.none() | st.lists(st.integers(-1, 5), max_size=3),
)
def test_any_shapes_are_read_or_refused(tmp_path_factory, weight, scale, zero, kind, name, block):
    content = {name: torch.ones(weight).to(kind), f"{name}_scale": torch.ones(scale)}
    if zero is not None:
        content[f"{name}_zero_point"] = torch.ones(zero, dtype=torch.int8)
    config = {"quantization_config": {"weight_block_size": block}}
    checkpoint = open_checkpoint(folder_of(tmp_path_factory.mktemp("any"), content, config))
    for own, entry in checkpoint.entries.items():
        assert tuple(checkpoint.load(own).shape) == entry.shape
