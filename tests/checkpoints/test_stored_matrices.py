"""Experts, kernels and resized vocabularies as matrices, against tensors that are sliced whole."""

import pytest
import safetensors
import torch
from safetensors.torch import save_file

from loca_theory.checkpoints import analyze
from loca_theory.checkpoints.pairs.opening import open_pair
from loca_theory.checkpoints.pairs.selection import Selection
from loca_theory.checkpoints.weights.checkpoint import DamagedError
from loca_theory.checkpoints.weights.stored_matrices import holds_experts
from loca_theory.errors import InvalidArgumentError
from tests.checkpoints.files import normal

EXPERTS = "model.layers.0.mlp.experts.gate_up_proj"


def files(folder, base, tuned):
    paths = []
    for name, content in (("base", base), ("tuned", tuned)):
        paths.append(folder / f"{name}.safetensors")
        save_file(content, paths[-1])
    return paths


def pickles(folder, base, tuned):
    paths = []
    for name, content in (("base", base), ("tuned", tuned)):
        paths.append(folder / f"{name}.pt")
        torch.save(content, paths[-1])
    return paths


def in_memory(folder, base, tuned):
    return base, tuned


def reasons(pair):
    return {one.name: one.reason for one in pair.skipped}


@pytest.mark.parametrize("store", [files, pickles, in_memory])
def test_each_expert_is_a_matrix(tmp_path, store):
    base, tuned = normal(3, 20, 24), normal(3, 20, 24, seed=1)
    pair = open_pair(*store(tmp_path, {EXPERTS: base}, {EXPERTS: tuned}))
    assert list(pair.names) == [f"{EXPERTS}[{i}]" for i in range(3)]
    for i, name in enumerate(pair.names):
        assert pair.matrices[name].shape == (20, 24)
        assert pair.matrices[name].stored_shape == (3, 20, 24)
        assert torch.equal(pair.increment(name), tuned[i] - base[i])
        assert torch.equal(pair.weights(name), base[i])


def test_experts_can_be_stacked(tmp_path):
    base, tuned = normal(3, 20, 24), normal(3, 20, 24, seed=1)
    paths = files(tmp_path, {EXPERTS: base}, {EXPERTS: tuned})
    pair = open_pair(*paths, Selection(experts="stacked"))
    assert list(pair.names) == [EXPERTS]
    rows = [tuned[i, j] - base[i, j] for i in range(3) for j in range(20)]
    assert torch.equal(pair.increment(EXPERTS), torch.stack(rows))


def test_one_expert_can_be_selected(tmp_path):
    paths = files(tmp_path, {EXPERTS: normal(3, 20, 24)}, {EXPERTS: normal(3, 20, 24, seed=1)})
    pair = open_pair(*paths, Selection(include=r"\[1\]$"))
    assert list(pair.names) == [f"{EXPERTS}[1]"]
    with pytest.raises(InvalidArgumentError, match="interpretation of experts 'all'"):
        Selection(experts="all")


def test_only_the_expert_is_read(tmp_path, monkeypatch):
    paths = files(tmp_path, {EXPERTS: normal(3, 20, 24)}, {EXPERTS: normal(3, 20, 24, seed=1)})
    pair = open_pair(*paths)
    loaded = []

    class Spy:
        def __init__(self, *args, **settings):
            self.file = real(*args, **settings)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def get_tensor(self, name):
            loaded.append(name)
            return self.file.get_tensor(name)

        def get_slice(self, name):
            return self.file.get_slice(name)

    real = safetensors.safe_open
    monkeypatch.setattr(safetensors, "safe_open", Spy)
    increment = pair.increment(f"{EXPERTS}[1]")
    pair.fingerprint(f"{EXPERTS}[1]")
    assert loaded == []
    assert increment.untyped_storage().nbytes() == 20 * 24 * 4


def test_an_expert_of_a_damaged_file_is_one_line(tmp_path):
    paths = files(tmp_path, {EXPERTS: normal(3, 20, 24)}, {EXPERTS: normal(3, 20, 24, seed=1)})
    pair = open_pair(*paths)
    paths[1].write_bytes(paths[1].read_bytes()[:-100])
    for read in (pair.increment, pair.fingerprint):
        with pytest.raises(DamagedError, match=r"tuned\.safetensors is not an intact safetensors"):
            read(f"{EXPERTS}[1]")


def test_numbers_of_experts_that_differ_are_said(tmp_path):
    other = {"a.weight": normal(20, 24)}
    paths = files(
        tmp_path, {EXPERTS: normal(3, 20, 24), **other}, {EXPERTS: normal(4, 20, 24), **other}
    )
    found = reasons(open_pair(*paths))
    assert found == {
        EXPERTS: "numbers of experts differ: 3 in the base, 4 in the fine-tuned checkpoint"
    }


def test_experts_without_entries_are_not_listed_one_by_one(tmp_path):
    """A header may declare any number of empty experts."""
    content = {"a.weight": normal(20, 24), EXPERTS: torch.empty(2**40, 20, 0)}
    content["mlp.experts.down_proj"] = torch.empty(0, 20, 20)
    paths = files(tmp_path, content, content)
    assert reasons(open_pair(*paths)) == {
        EXPERTS: "too small: 20x0", "mlp.experts.down_proj": "too small: 0x20x20",
    }  # fmt: skip


KERNELS = {
    "conv1d": (20, 8, 3),
    "conv2d": (20, 2, 3, 3),
    "conv3d": (20, 2, 2, 2, 2),
}


@pytest.mark.parametrize("shape", KERNELS.values(), ids=KERNELS.keys())
def test_a_kernel_has_a_row_for_each_output(tmp_path, shape):
    base, tuned = normal(*shape), normal(*shape, seed=1)
    pair = open_pair(*files(tmp_path, {"conv.weight": base}, {"conv.weight": tuned}))
    change = tuned - base
    expected = torch.stack([output.flatten() for output in change])
    assert torch.equal(pair.increment("conv.weight"), expected)
    assert pair.matrices["conv.weight"].shape == tuple(expected.shape)


def test_a_depthwise_kernel_is_too_small(tmp_path):
    content = {"a.weight": normal(20, 24), "conv.weight": normal(20, 1, 3, 3)}
    found = reasons(open_pair(*files(tmp_path, content, content)))
    assert found == {"conv.weight": "too small: 20x9"}


@pytest.mark.parametrize(
    ("name", "is_experts"),
    [
        ("mlp.experts.gate_up_proj", True),
        ("feed_forward.experts.down_proj", True),
        ("block_sparse_moe.input_linear.weight", True),
        ("smoe_norm.weight", False),
        ("encoder.conv1.weight", False),
    ],
)
def test_the_name_tells_experts_from_kernels(name, is_experts):
    assert holds_experts(name, (4, 20, 24)) == is_experts


def test_experts_and_kernels_are_analysed(tmp_path):
    base = {EXPERTS: normal(2, 20, 24), "conv.weight": normal(20, 3, 3, 3)}
    tuned = {name: value + normal(*value.shape, seed=1) for name, value in base.items()}
    found = analyze(*files(tmp_path, base, tuned), ranks=[2])
    assert [(one.name, one.shape) for one in found.matrices] == [
        ("conv.weight", (20, 27)), (f"{EXPERTS}[0]", (20, 24)), (f"{EXPERTS}[1]", (20, 24)),
    ]  # fmt: skip
    assert [one.kind for one in found.matrices] == ["convolution", "MLP in", "MLP in"]


# --- vocabularies ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model.embed_tokens.weight", "lm_head.weight"])
@pytest.mark.parametrize(("was", "now"), [(30, 33), (33, 30)])
def test_the_common_rows_of_a_resized_vocabulary_are_compared(tmp_path, name, was, now):
    base, tuned = normal(was, 20), normal(now, 20, seed=1)
    pair = open_pair(*files(tmp_path, {name: base}, {name: tuned}))
    assert pair.matrices[name].shape == (30, 20)
    assert torch.equal(pair.increment(name), tuned[:30] - base[:30])
    assert torch.equal(pair.weights(name), base[:30])
    assert pair.matrices[name].note == (
        f"resized from {was} to {now} rows: the first 30 are compared"
    )


def test_a_vocabulary_of_other_columns_is_left_out(tmp_path):
    base = {"wte.weight": normal(30, 20), "a.weight": normal(20, 20)}
    tuned = {"wte.weight": normal(33, 24), "a.weight": normal(20, 20)}
    found = reasons(open_pair(*files(tmp_path, base, tuned)))
    assert found == {"wte.weight": "resized from 30x20 to 33x24"}
