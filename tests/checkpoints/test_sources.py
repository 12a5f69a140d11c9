"""Opening checkpoints: every kind of source, and everything that is wrong with one."""

import io
import json
import os
import pickle
import re
import struct
import sys
from functools import partial

import numpy as np
import pytest
import torch
from huggingface_hub import save_torch_state_dict
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save, save_file

from loca_theory.checkpoints.source.checkpoint import DamagedError
from loca_theory.checkpoints.source.open import open_checkpoint
from loca_theory.errors import InvalidArgumentError, LocaTheoryError, ResourceError
from tests.checkpoints.files import folder_of, normal


@pytest.fixture
def tensors():
    return {f"layer.{i}.weight": normal(20, 24, seed=i) for i in range(4)}


def same(checkpoint, tensors):
    assert set(checkpoint.entries) == set(tensors)
    assert checkpoint.left_out == {}
    for name, value in tensors.items():
        assert checkpoint.entries[name].shape == tuple(value.shape)
        assert torch.equal(checkpoint.load(name), value)


# A file for every two tensors, and an index.
as_shards = partial(save_torch_state_dict, max_shard_size=4000)
as_torch_shards = partial(as_shards, safe_serialization=False)
as_old_torch = partial(torch.save, _use_new_zipfile_serialization=False)
INDEX, OTHER_INDEX = "model.safetensors.index.json", "diffusion_model.safetensors.index.json"
DIFFUSERS = "diffusion_model{suffix}.safetensors"
# Files, how they are saved, and what is opened.
FILES = [
    ("odd-name.safetensors", save_file, "odd-name.safetensors"),
    ("odd-name.safetensors", save_file, "."),
    ("model.safetensors", save_file, "."),
    ("weights.ckpt", save_file, "weights.ckpt"),
    ("pytorch_model.bin", torch.save, "."),
    ("weights.pt", as_old_torch, "weights.pt"),
    (".", as_shards, "."),
    (".", as_torch_shards, "."),
    (".", as_shards, INDEX),
    (".", partial(as_shards, filename_pattern=DIFFUSERS), "."),
    (".", partial(as_shards, filename_pattern=DIFFUSERS), OTHER_INDEX),
]


@pytest.mark.parametrize(("file", "store", "opened"), FILES)
def test_every_kind_of_file_gives_the_tensors(tmp_path, tensors, file, store, opened):
    store(tensors, tmp_path / file)
    same(open_checkpoint(tmp_path / opened), tensors)


SCALER = {"scale": torch.tensor(2.0)}
# Names of files, what trainers store in them, and the keys that stay before the tensors' names:
# those of several models, such as the members of an ensemble.
TRAINERS = [
    (
        "best.pth.tar",
        lambda state: {
            "model": {"state_dict": state, "model_args": {"width": 3}},
            "best_loss": torch.tensor(0.3),
            "scaler": SCALER,
            "optimizer": {"state": {0: SCALER}, "param_groups": []},
            "empty": {},
        },
        [""],
    ),
    ("epoch=4", lambda state: {"net": state, "scaler": SCALER}, [""]),
    ("beside.ckpt", lambda state: {"step": torch.tensor(4), "net": state}, [""]),
    ("two.ckpt", lambda state: {"a": state, "nets": {"critic": state}}, ["a.", "nets.critic."]),
    ("list.ckpt", lambda state: [state, state], ["0.", "1."]),
    (
        "members.ckpt",
        lambda state: {"members": [state, state], "optimizer": {"state": {0: state}}},
        ["members.0.", "members.1."],
    ),
]


@pytest.mark.parametrize(("file", "content", "keys"), TRAINERS, ids=[case[0] for case in TRAINERS])
def test_the_models_of_a_trainers_file_are_found(tmp_path, tensors, file, content, keys):
    torch.save(content(tensors), tmp_path / file)
    checkpoint = open_checkpoint(tmp_path / file)
    same(checkpoint, {f"{key}{name}": tensor for key in keys for name, tensor in tensors.items()})


class Trap:
    """Leaves a trace when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("kind", ["zip", "old format", "bare"])
def test_a_pickle_with_code_is_refused_and_not_run(tmp_path, tensors, kind):
    trace, path = tmp_path / "trace", tmp_path / "pytorch_model.bin"
    content = {**tensors, "trap": Trap(trace)}
    if kind == "bare":
        path.write_bytes(pickle.dumps(Trap(trace)))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=kind == "zip")
    said = "is not an intact PyTorch file" if kind == "bare" else "was refused: it holds Python obj"
    with pytest.raises(DamagedError, match=rf"pytorch_model\.bin {said}"):
        open_checkpoint(tmp_path)
    assert not trace.exists()


def stored(content):
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


INSIDE = {"a.weight": torch.ones(20, 24)}
ITSELF = {}
ITSELF["itself"] = ITSELF
TWICE = {"x": 1}
for _ in range(40):  # 2⁴⁰ ways to the bottom
    TWICE = {"a": TWICE, "b": TWICE}
# The name of a file, its content, and what is said.
REFUSED = [
    *(
        ("a.safetensors", content, r"a\.safetensors is not an intact safetensors")
        for content in (b"", bytes(range(256)) * 4, save(INSIDE)[:-100])
    ),
    *(
        ("a.bin", content, r"a\.bin is not an intact PyTorch .*; fetch it again")
        for content in (b"", stored(INSIDE)[:-100], stored(INSIDE)[:1000], stored(ITSELF))
    ),
    ("a.bin", stored(TWICE), "more than 100000 dictionaries"),
    ("a.bin", bytes(range(256)) * 4, r"a\.bin "),
    ("list.ckpt", stored([1, {"a": 2}]), "no dictionary of tensors; save the state_dict"),
    ("text.pt", b"hello", "is not an intact PyTorch file: KeyError"),
    ("name.pt", stored({"a.\ud800.weight": torch.ones(2, 2)}), "has a name that is no text"),
    (INDEX, b"{", "is not an intact JSON file"),
    (INDEX, b"[]", "holds no JSON object"),
    (INDEX, b"{}", "weight_map"),
    (INDEX, b'{"weight_map": {"a": 1}}', "weight_map"),
    (INDEX, b'{"weight_map": {"\\ud800": "x"}}', "no text: .*; rename the tensor"),
    (INDEX, b'{"weight_map": {"a": "../secret"}}', "outside its own folder"),
    (INDEX, b'{"weight_map": {"a": "/etc/passwd"}}', "outside its own folder"),
]


@pytest.mark.parametrize(("name", "content", "said"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_damaged_or_holds_no_tensors_is_one_line(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DamagedError, match=rf"^[^\n]*{said}[^\n]*$"):
        open_checkpoint(tmp_path if name == INDEX else tmp_path / name)


@pytest.mark.parametrize("store", [as_shards, as_torch_shards])
def test_one_shard_is_not_taken_for_the_model(tmp_path, tensors, store):
    """Neither by its path nor as the only file of a folder."""
    store(tensors, tmp_path)
    shard, *shards = (path for path in tmp_path.iterdir() if path.suffix != ".json")
    refused = rf"{re.escape(str(shard))} is one of 2 shards; .*, and pass the folder$"
    with pytest.raises(InvalidArgumentError, match=refused):
        open_checkpoint(shard)
    for path in (*shards, *tmp_path.glob("*.json")):
        path.unlink()
    if shard.suffix == ".safetensors":
        with pytest.raises(InvalidArgumentError, match=refused):
            open_checkpoint(tmp_path)


def test_the_shards_of_two_models_are_not_chosen_from(tmp_path, tensors):
    for kind in ("unet", "vae"):
        as_shards(tensors, tmp_path, filename_pattern=kind + "{suffix}.safetensors")
    with pytest.raises(InvalidArgumentError, match=r"holds 2 checkpoints \(unet.*, vae.*\); pass"):
        open_checkpoint(tmp_path)
    same(open_checkpoint(tmp_path / "vae.safetensors.index.json"), tensors)


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"is empty; pass a folder with model\.safetens"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InvalidArgumentError, match=r"holds no checkpoint; .* the weights itself$"):
        open_checkpoint(tmp_path)


def test_a_file_that_cannot_be_mapped_is_read(tmp_path, tensors, monkeypatch):
    def load(*arguments, mmap=False, **options):
        if mmap:
            msg = "unable to mmap"
            raise RuntimeError(msg)
        return loaded(*arguments, **options)

    loaded = torch.load
    monkeypatch.setattr(torch, "load", load)
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    assert set(open_checkpoint(tmp_path).entries) == set(tensors)


def test_a_tensor_that_is_gone_is_said_to_have_changed(tmp_path, tensors):
    path = tmp_path / "model.bin"
    torch.save(tensors, path)
    opened = pickle.dumps(open_checkpoint(path))
    torch.save({"other": torch.ones(2, 2)}, path)
    with pytest.raises(DamagedError, match=r"has changed in .*model\.bin since it was opened"):
        pickle.loads(opened).load(next(iter(tensors)))


def test_an_archive_of_numpy_is_not_taken_for_one_of_pytorch(tmp_path, tensors):
    np.savez(tmp_path / "a.npz", **tensors)
    said = r"a\.npz is neither a \.safetensors nor a PyTorch file .*; save its tensors as"
    with pytest.raises(InvalidArgumentError, match=said):
        open_checkpoint(tmp_path / "a.npz")


def test_further_modules_of_sentence_transformers_are_named(tmp_path, tensors):
    for folder in (tmp_path, tmp_path / "2_Dense", tmp_path / "checkpoint_1"):
        folder_of(folder, tensors)
    same(open_checkpoint(tmp_path), tensors)
    (tmp_path / "modules.json").write_text("[]")
    said = open_checkpoint(tmp_path).left_out
    assert {name: str(reason) for name, reason in said.items()} == {
        "2_Dense": "another module of sentence-transformers: pass its folder of both sides"
    }
    same(open_checkpoint(tmp_path / "model.safetensors"), tensors)


@pytest.mark.parametrize("store", [as_shards, as_torch_shards])
def test_a_missing_shard_or_tensor_costs_its_own_tensors_only(tmp_path, tensors, store):
    store(tensors, tmp_path)
    (missing,), (index,) = tmp_path.glob("*-00001-*"), tmp_path.glob("*.index.json")
    missing.unlink()
    content = json.loads(index.read_text())
    content["weight_map"]["ghost.weight"] = content["weight_map"]["layer.3.weight"]
    content["weight_map"]["long.weight"] = 300 * "x"
    index.write_text(json.dumps(content))
    checkpoint = open_checkpoint(tmp_path)
    gone = {"layer.0.weight", "layer.1.weight", "ghost.weight", "long.weight"}
    assert set(checkpoint.left_out) == gone
    assert all(reason.damaged for reason in checkpoint.left_out.values())
    assert missing.name in str(checkpoint.left_out["layer.0.weight"])
    assert "does not hold it" in str(checkpoint.left_out["ghost.weight"])
    assert torch.equal(checkpoint.load("layer.3.weight"), tensors["layer.3.weight"])


def test_a_pipe_in_the_place_of_a_file_is_not_opened(tmp_path, tensors):
    as_shards(tensors, tmp_path)
    (shard,) = tmp_path.glob("*-00001-*")
    shard.unlink()
    for path in (shard, tmp_path / "config.json"):
        os.mkfifo(path)
    checkpoint = open_checkpoint(tmp_path)
    assert f"{shard.name} cannot be read: there" in str(checkpoint.left_out["layer.0.weight"])
    assert set(checkpoint.entries) == {"layer.2.weight", "layer.3.weight"}


def test_a_missing_hub_extra_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ResourceError, match=r"pip install 'loca-theory\[hub\]'"):
        open_checkpoint("hub:org/name")


def test_a_repository_that_is_not_found_is_said_in_plain_words(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    said = "hub:org/name cannot be fetched: no network, no such repository, or no access to it; "
    with pytest.raises(ResourceError, match=said):
        open_checkpoint("hub:org/name")


DTYPES = st.sampled_from(["F32", "BF16", "F16", "I8", "BOOL", "F8_E4M3", "F64", "U4", "x"])
KEYS = st.sampled_from(["dtype", "shape", "data_offsets", "__metadata__", "w", ""])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=4) | DTYPES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
PLAUSIBLE = st.fixed_dictionaries(
    {
        "dtype": DTYPES,
        "shape": st.lists(st.integers(0, 2**40), max_size=3),
        "data_offsets": st.tuples(st.just(0), st.integers(0, 200)),
    }
)


@settings(deadline=None, derandomize=True, max_examples=250)
@given(
    header=JSON | st.fixed_dictionaries({"w": PLAUSIBLE}),
    body=st.binary(max_size=160),
    lie=st.just(0) | st.integers(-8, 8),
)
def test_any_header_is_read_or_refused_in_one_line(tmp_path_factory, header, body, lie):
    text = json.dumps(header).encode()
    path = tmp_path_factory.getbasetemp() / "fuzz.safetensors"
    path.write_bytes(struct.pack("<Q", max(len(text) + lie, 0)) + text + body)
    said = ""
    try:
        checkpoint = open_checkpoint(path)
        for name in checkpoint.entries:
            checkpoint.load(name)
    except LocaTheoryError as error:
        said = str(error)
    assert "\n" not in said
