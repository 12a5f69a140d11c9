"""Matching two checkpoints: prefixes, ties, shapes, types; and LoRA adapters as increments."""

import json
import pickle

import pytest
import torch
from safetensors.torch import save_file

from loca_theory.checkpoints.pairs.opening import open_pair
from loca_theory.checkpoints.pairs.selection import Selection
from loca_theory.checkpoints.weights.checkpoint import DamagedError
from loca_theory.errors import InvalidArgumentError


def tensors(seed=0, shape=(20, 24), **more):
    source = torch.Generator().manual_seed(seed)
    names = ("a.0.q.weight", "a.0.v.weight")
    return {name: torch.randn(*shape, generator=source) for name in names} | more


def write(folder, name, content):
    path = folder / f"{name}.safetensors"
    save_file(content, path)
    return path


def pair(folder, base, tuned, selection=None):
    return open_pair(write(folder, "base", base), write(folder, "tuned", tuned), selection)


def reasons(opened):
    return {one.name: one.reason for one in opened.skipped}


def test_the_increment_is_the_difference(tmp_path):
    opened = pair(tmp_path, tensors(0), tensors(1))
    assert list(opened.names) == ["a.0.q.weight", "a.0.v.weight"]
    for name in opened.names:
        assert torch.equal(opened.increment(name), tensors(1)[name] - tensors(0)[name])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_narrow_types_are_widened_before_they_are_subtracted(tmp_path, dtype):
    base, tuned = ({k: v.to(dtype) for k, v in tensors(seed).items()} for seed in (0, 1))
    opened = pair(tmp_path, base, tuned)
    name = "a.0.q.weight"
    found = opened.increment(name)
    assert found.dtype == torch.float32
    assert torch.equal(found, tuned[name].float() - base[name].float())


def test_double_precision_is_kept(tmp_path):
    base = {k: v.double() for k, v in tensors(0).items()}
    opened = pair(tmp_path, base, tensors(1))
    assert opened.increment("a.0.q.weight").dtype == torch.float64


@pytest.mark.parametrize("longer", ["base", "tuned"])
@pytest.mark.parametrize("prefix", ["model.", "base_model.model.", "module."])
def test_a_prefix_of_either_side_is_found(tmp_path, longer, prefix):
    base, tuned = tensors(0), tensors(1)
    renamed = {
        prefix + name: value for name, value in (base if longer == "base" else tuned).items()
    }
    sides = (renamed, tuned) if longer == "base" else (base, renamed)
    opened = pair(tmp_path, *sides)
    assert opened.prefix == prefix
    assert list(opened.names) == list(sides[0])
    assert list(opened.names.values()) == list(sides[1])
    for name in opened.names:
        short = name.removeprefix(prefix)
        assert torch.equal(opened.increment(name), tuned[short] - base[short])


def test_a_prefix_does_not_cost_the_names_that_match_as_they_are(tmp_path):
    head = {"lm_head.weight": torch.ones(20, 24)}
    renamed = {f"model.{name}": value for name, value in tensors(1).items()}
    opened = pair(tmp_path, {**tensors(0), **head}, {**renamed, **head})
    assert opened.names["lm_head.weight"] == "lm_head.weight"
    assert len(opened.names) == 3
    assert opened.skipped == []


def test_what_is_no_plain_tensor_is_listed(tmp_path):
    content = {**tensors(1), "sparse.weight": torch.eye(20).to_sparse()}
    torch.save(content, tmp_path / "tuned.pt")
    opened = open_pair(write(tmp_path, "base", tensors(0)), tmp_path / "tuned.pt")
    assert "not a plain tensor" in reasons(opened)["sparse.weight"]


def test_a_tensor_that_declares_more_than_it_holds_is_damaged(tmp_path):
    content = {**tensors(1), "wide.weight": torch.ones(1).expand(10_000_000, 10_000_000)}
    torch.save(content, tmp_path / "tuned.pt")
    base = {**tensors(0), "wide.weight": torch.ones(20, 20)}
    opened = open_pair(write(tmp_path, "base", base), tmp_path / "tuned.pt")
    (found,) = [one for one in opened.skipped if one.name == "wide.weight"]
    assert found.damaged
    assert "declares more entries than the file holds" in found.reason


def test_what_cannot_be_compared_is_listed_with_its_reason(tmp_path):
    odd = {
        "bias": torch.ones(20),
        "stack": torch.ones(2, 2, 2, 2, 2, 2),
        "tiny": torch.ones(3, 400),
        "quantised": torch.ones(20, 20, dtype=torch.int8),
        "linear": torch.ones(30, 20),
    }
    base = tensors(0, gone=torch.ones(20, 20), **odd)
    tuned = tensors(1, new=torch.ones(20, 20), **{**odd, "linear": torch.ones(32, 20)})
    found = reasons(pair(tmp_path, base, tuned))
    assert found == {
        "bias": "not a matrix: 1 dimensions",
        "stack": "not a matrix: 6 dimensions",
        "tiny": "too small: 3x400",
        "quantised": "I8 is not a floating type: quantised, or not a weight",
        "linear": "resized from 30x20 to 32x20",
        "new": "only in the fine-tuned checkpoint",
        "gone": "only in the base checkpoint",
    }


def test_tied_weights_are_analysed_once(tmp_path):
    base, tuned = tensors(0), tensors(1)
    for content, name in ((base, "base"), (tuned, "tuned")):
        content["head.weight"] = content["a.0.q.weight"]
        torch.save(content, tmp_path / f"{name}.pt")
    opened = open_pair(tmp_path / "base.pt", tmp_path / "tuned.pt")
    assert reasons(opened) == {"head.weight": "tied to a.0.q.weight"}


def as_files(folder, base, tuned):
    return write(folder, "base", base), write(folder, "tuned", tuned)


def as_pickles(folder, base, tuned):
    for name, content in (("base", base), ("tuned", tuned)):
        torch.save(content, folder / f"{name}.pt")
    return folder / "base.pt", folder / "tuned.pt"


def as_shards(folder, base, tuned):
    for name, content in (("base", base), ("tuned", tuned)):
        (folder / name).mkdir()
        for key, value in content.items():
            torch.save({key: value}, folder / name / f"{key}.bin")
        index = {"weight_map": {key: f"{key}.bin" for key in content}}
        (folder / name / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return folder / "base", folder / "tuned"


@pytest.mark.parametrize("store", [as_files, as_pickles, as_shards])
def test_a_pair_of_files_is_light_and_can_be_pickled(tmp_path, store):
    wide = {"wide.weight": torch.ones(300, 300)}
    opened = open_pair(*store(tmp_path, tensors(0) | wide, tensors(1) | wide))
    name = "a.0.q.weight"
    before = opened.increment(name)
    content = pickle.dumps(opened)
    assert len(content) < 10_000
    copy = pickle.loads(content)
    assert copy.is_from_files
    assert torch.equal(copy.increment(name), before)
    assert copy.fingerprint(name) == opened.fingerprint(name)
    assert pickle.dumps(opened) == content


def test_a_pair_in_memory_says_so():
    assert not open_pair(tensors(0), tensors(1)).is_from_files


@pytest.mark.parametrize("store", [as_files, as_pickles])
def test_a_file_that_changes_is_noticed(tmp_path, store):
    opened = pickle.dumps(open_pair(*store(tmp_path, tensors(0), tensors(1))))
    store(tmp_path, tensors(0), tensors(1, shape=(20, 25)))
    with pytest.raises(DamagedError, match="changed"):
        pickle.loads(opened).increment("a.0.q.weight")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_weights_are_copies_of_those_of_the_base(dtype):
    base, tuned = ({k: v.to(dtype) for k, v in tensors(seed).items()} for seed in (0, 1))
    opened, name = open_pair(base, tuned), "a.0.q.weight"
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    found = opened.weights(name)
    assert found.dtype == wide
    assert torch.equal(found, base[name].to(wide))
    assert torch.equal(opened.weights(name).zero_(), torch.zeros_like(found))
    assert torch.equal(opened.weights(name), found)
    assert opened.matrices[name].dtype == str(dtype).removeprefix("torch.")
    assert opened.matrices[name].shape == opened.matrices[name].stored_shape == (20, 24)


def test_increments_alone_have_no_weights():
    opened = open_pair(torch.ones(3, 4))
    assert opened.weights("increment") is None


CHANGES = {
    "an entry of the base": lambda base, tuned: base["a.0.q.weight"][19, 23].add_(1),
    "an entry of the fine-tune": lambda base, tuned: tuned["a.0.q.weight"][0, 0].add_(1),
    "the type": lambda base, tuned: tuned.update({"a.0.q.weight": tuned["a.0.q.weight"].double()}),
    "the sides": lambda base, tuned: (
        base.update({"a.0.q.weight": tuned["a.0.q.weight"]}),
        tuned.update({"a.0.q.weight": tensors(0)["a.0.q.weight"]}),
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_fingerprint_covers_both_sides(change):
    name, base, tuned = "a.0.q.weight", tensors(0), tensors(1)
    opened = open_pair(base, tuned)
    first, other = opened.fingerprint(name), opened.fingerprint("a.0.v.weight")
    assert len(bytes.fromhex(first)) == 16
    assert first != other
    change(base, tuned)
    changed = open_pair(base, tuned)
    assert changed.fingerprint(name) != first
    assert changed.fingerprint("a.0.v.weight") == other


def test_the_fingerprint_covers_the_rows_that_are_compared():
    """Zeros in place of rows that one side lacks would change nothing else."""
    name = "wte.weight"
    tuned = torch.zeros(20, 16)
    found = {
        open_pair({name: base}, {name: tuned}).fingerprint(name)
        for base in (torch.zeros(20, 16), torch.zeros(21, 16))
    }
    assert len(found) == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_the_fingerprint_is_that_of_the_stored_bytes(tmp_path, dtype):
    base, tuned = ({k: v.to(dtype) for k, v in tensors(seed).items()} for seed in (0, 1))
    files = open_pair(*as_files(tmp_path, base, tuned))
    pickles = open_pair(*as_pickles(tmp_path, base, tuned))
    name = "a.0.q.weight"
    assert files.fingerprint(name) == pickles.fingerprint(name)
    assert files.fingerprint(name) == open_pair(base, tuned).fingerprint(name)


def test_selection(tmp_path):
    assert list(pair(tmp_path, tensors(0), tensors(1), Selection("q")).names) == ["a.0.q.weight"]
    excluded = Selection(exclude=r"\.q\.")
    assert list(pair(tmp_path, tensors(0), tensors(1), excluded).names) == ["a.0.v.weight"]
    with pytest.raises(InvalidArgumentError, match=r"is left .*: 2 larger than max_size=100"):
        pair(tmp_path, tensors(0), tensors(1), Selection(max_size=100))
    with pytest.raises(InvalidArgumentError, match="include must be a regular expression"):
        Selection("(")


def test_nothing_in_common(tmp_path):
    with pytest.raises(InvalidArgumentError, match="no tensor name in common"):
        pair(tmp_path, {"x": torch.ones(20, 20)}, {"y": torch.ones(20, 20)})


def test_one_checkpoint_alone_is_not_enough(tmp_path):
    with pytest.raises(InvalidArgumentError, match="pass the fine-tuned checkpoint as well"):
        open_pair(write(tmp_path, "base", tensors(0)))
