"""Adapters as input of ``extract``: resized, under their own names, with what they store whole."""

import json
from functools import partial

import pytest
import torch
from peft import IA3Config, LoHaConfig, LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from loca_theory.checkpoints import extract
from loca_theory.checkpoints.change.opening import open_pair
from loca_theory.checkpoints.change.pair import CheckpointPair
from loca_theory.errors import InvalidArgumentError, ResourceError
from tests.checkpoints.zoo import TOKENS, make, merged

# Of transformers, when PEFT asks it something.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning"
)

llama, bert = partial(make, "Llama"), partial(make, "BERT")


def written(tmp_path, make, config):
    """Folders with a base, and with an adapter of it whose every parameter has been changed."""
    make().save_pretrained(tmp_path / "base")
    model = get_peft_model(make(), config)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.requires_grad:
            noise = 0.1 * torch.randn(parameter.shape, generator=generator)
            decay = 1 / torch.arange(1, len(noise) + 1)
            parameter.data = (noise.movedim(0, -1) * decay).movedim(-1, 0)
    model.save_pretrained(tmp_path / "adapter")
    return tmp_path / "base", tmp_path / "adapter"


CONFIGS = {
    "lora": LoraConfig(
        r=8,
        lora_alpha=16,
        use_rslora=True,
        target_modules=["q_proj", "down_proj"],
        rank_pattern={"q_proj": 3},
        alpha_pattern={"down_proj": 2},
    ),
    "loha": LoHaConfig(r=2, alpha=4, target_modules=["q_proj", "down_proj"]),
}


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("ViT", LoraConfig(r=2, target_modules=["q_proj", "fc1"])),
        ("Mixtral", LoraConfig(r=2, target_parameters=["mlp.experts.gate_up_proj"])),
    ],
)
def test_an_adapter_is_read_beside_a_base_whose_files_have_other_names(tmp_path, name, config):
    base, adapter = written(tmp_path, partial(make, name), config)
    expected, pair = merged(adapter, make(name)), open_pair(base, adapter)
    assert {matrix.tensor for matrix in pair.matrices.values()} == {
        name for name, change in expected.items() if change.any()
    }
    for matrix, weight in pair.matrices.items():
        weight_change = expected[weight.tensor]
        change = weight_change if weight.expert is None else weight_change[weight.expert]
        assert torch.allclose(pair.increment(matrix), change, atol=1e-6)


def larger():
    """A model with a larger vocabulary than its base, as ``resize_token_embeddings`` makes it."""
    model = llama()
    model.resize_token_embeddings(67, mean_resizing=False)
    return model


# The model that is adapted, that of the base, the weight, and the one that the base has of it.
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
OTHER_ROWS = {
    "LoRA": (larger, llama, LoraConfig(r=4, target_modules=["embed_tokens"]), EMBEDDING, EMBEDDING),
    "stored whole": (
        larger,
        llama,
        LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["lm_head"]),
        HEAD,
        HEAD,
    ),
    "tied": (
        partial(make, "GPT-2"),
        partial(make, "GPT-2"),
        LoraConfig(target_modules=["c_attn"], modules_to_save=["lm_head"], fan_in_fan_out=True),
        HEAD,
        "transformer.wte.weight",
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", OTHER_ROWS)
def test_embeddings_and_heads_of_which_the_base_has_others(tmp_path, case):
    adapted, original, config, name, of_base = OTHER_ROWS[case]
    base, adapter = written(tmp_path, adapted, config)
    expected = merged(adapter, adapted())[name]
    original().save_pretrained(base)
    pair, before = open_pair(base, adapter), original().state_dict()[of_base]
    torch.testing.assert_close(pair.increment(name), expected[: len(before)], rtol=0, atol=1e-6)
    assert torch.equal(pair.weights(name), before)
    remark = "61 to 67 rows: the first 61" if adapted is larger else f"ties it to {of_base}"
    assert remark in pair.matrices[name].note


def in_memory(config, kind):
    """A base and a model with a random adapter in it."""
    base = llama()
    if kind == "of the same model":
        return base, get_peft_model(base, config)
    model = llama()
    if kind == "of transformers":
        model.add_adapter(config)
        return base, model
    tuned = get_peft_model(model, config)
    return base, torch.compile(tuned) if kind == "compiled" else tuned


@pytest.mark.filterwarnings("ignore:The PEFT config's `base_model_name_or_path` was renamed")
@pytest.mark.parametrize("kind", ["alone", "of the same model", "of transformers", "compiled"])
@pytest.mark.parametrize(
    "config",
    [
        LoraConfig(target_modules=["q_proj"], modules_to_save=["lm_head"], init_lora_weights=False),
        IA3Config(target_modules=["q_proj"], feedforward_modules=[], init_ia3_weights=False),
    ],
)
def test_the_adapter_of_a_model_in_memory_is_read(tmp_path, config, kind):
    base, tuned = in_memory(config, kind)
    for name, parameter in tuned.named_parameters():
        if "modules_to_save" in name:
            parameter.data *= 1.5
    tuned.save_pretrained(tmp_path / "adapter")
    expected, pair = open_pair(llama(), tmp_path / "adapter"), open_pair(base, tuned)
    assert len(pair.matrices) == 2 + (config.peft_type == "LORA")
    assert pair.matrices.keys() == expected.matrices.keys()
    for name in pair.matrices:
        assert torch.equal(pair.increment(name), expected.increment(name))
        assert torch.equal(pair.weights(name), expected.weights(name))
    assert torch.equal(open_pair(tuned).increment(name), expected.increment(name))


def test_an_adapter_in_memory_that_does_not_tell_one_increment_is_refused():
    config = LoraConfig(target_modules=["q_proj"], init_lora_weights=False)
    base, tuned = in_memory(config, "alone")
    resized = extract(base, tuned, "lora", rank=2)
    with pytest.raises(InvalidArgumentError, match="save it and pass its folder"):
        resized.verify(base)
    tuned.add_adapter("other", config)
    tuned.base_model.set_adapter(["default", "other"])
    with pytest.raises(
        InvalidArgumentError, match=r"\(default, other\): merge them first, and pass"
    ):
        open_pair(base, tuned)
    tuned.merge_adapter()
    pissa = LoraConfig(target_modules=["q_proj"], init_lora_weights="pissa")
    changed = "an adapter has changed the weights of the base in memory; pass"
    for sides in ((tuned, base), in_memory(pissa, "of the same model")):
        with pytest.raises(InvalidArgumentError, match=changed):
            open_pair(*sides)


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize(
    ("method", "size"),
    [
        ("lora", {"rank": 2}),
        ("lora", {"allocate": 900}),
        ("loca", {"components": 200}),
        ("entries", {"rank": 3}),
    ],
)
def test_a_resized_adapter_has_the_stated_error_in_the_model(tmp_path, kind, method, size):
    base, adapter = written(tmp_path, llama, CONFIGS[kind])
    extraction = extract(base, adapter, method, check=True, **size)
    assert len(extraction.matrices) == 4
    assert not extraction.disagreements
    extraction.save(tmp_path / "out")
    goal, got = (merged(folder, llama()) for folder in (adapter, tmp_path / "out" / method))
    for row in extraction.matrices:
        left = (goal[row.name] - got[row.name]).square().sum() / goal[row.name].square().sum()
        assert float(left) == pytest.approx(row.error, rel=1e-3, abs=1e-6)
    unchanged = goal.keys() - {row.name for row in extraction.matrices}
    assert all(not goal[name].any() and not got[name].any() for name in unchanged)


def test_lora_is_resized_without_its_increment(tmp_path, monkeypatch):
    """Of its own rank or more it is the same adapter."""
    base, adapter = written(tmp_path, llama, CONFIGS["lora"])
    dense = [extract(base, adapter, method, rank=2).matrices for method in ("lora", "best")]
    monkeypatch.delattr(CheckpointPair, "increment")
    extraction = extract(base, adapter, "lora", rank=2)
    assert extraction.matrices == dense[0]
    for row, other in zip(*dense, strict=True):  # of which the second is found from ΔW
        if other.method == "lora":
            assert row.error == pytest.approx(other.error, rel=1e-4)
        assert row.energy == pytest.approx(other.energy, rel=1e-5)
    assert extract(base, adapter, "lora", allocate=600).error < extraction.error
    full_rank = extract(base, adapter, "lora", rank=20)
    assert [row.r for row in full_rank.matrices] == [8, 3] * 2
    assert full_rank.error < 1e-12
    assert {row.r for row in extract(base, adapter, "lora", energy=0.5).matrices} < set(range(9))
    with pytest.raises(AttributeError, match="increment"):
        extract(base, adapter, "loca", rank=2)


@pytest.mark.parametrize("size", [{"rank": 2}, {"allocate": 900}])
def test_factors_whose_product_is_beyond_all_numbers_are_left_out(tmp_path, size):
    base, adapter = written(tmp_path, llama, CONFIGS["lora"])
    stored = adapter / "adapter_model.safetensors"
    tensors = {name: tensor.double() for name, tensor in load_file(stored).items()}
    huge = [name for name in tensors if ".0.self_attn.q_proj.lora" in name]
    save_file(tensors | {name: tensors[name] * 1e200 for name in huge}, stored)
    skipped = extract(base, adapter, "lora", **size).skipped
    assert [(skipped.name.split(".")[2:4], skipped.reason[:10]) for skipped in skipped] == [
        (["0", "self_attn"], "not finite")
    ]


def test_modules_that_are_stored_whole_stay(tmp_path):
    config = LoraConfig(r=4, target_modules=["query"], task_type="SEQ_CLS", bias="none")
    base, adapter = written(tmp_path, bert, config)
    extraction = extract(base, adapter, "lora", rank=2, check=True)
    extraction.save(tmp_path / "out")
    goal, got = (merged(folder, bert()) for folder in (adapter, tmp_path / "out" / "lora"))
    assert goal["classifier.weight"].any()
    for name in ("classifier.weight", "classifier.bias"):
        torch.testing.assert_close(got[name], goal[name], rtol=0, atol=0)
    assert not [skipped for skipped in extraction.skipped if "classifier" in skipped.name]
    with pytest.raises(InvalidArgumentError, match="leave save_modules out"):
        extract(base, adapter, "lora", rank=2, save_modules="classifier")
    with pytest.raises(InvalidArgumentError, match="vLLM reads no modules"):
        extract(base, adapter, "lora", rank=2, serve="vllm")
    config = adapter / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"modules_to_save": [3]}))
    with pytest.raises(ResourceError, match="modules_to_save is not a list of names"):
        extract(base, adapter, "lora", rank=2)


def test_the_model_of_an_adapter_must_be_known_for_a_check(tmp_path):
    base, adapter = written(tmp_path, llama, CONFIGS["lora"])
    (base / "config.json").unlink()
    extract(base, adapter, "lora", rank=2)
    with pytest.raises(InvalidArgumentError, match="pass it as model"):
        extract(base, adapter, "lora", rank=2, check=True)
    options = {"check": True, "model": llama(), "inputs": TOKENS}
    rough, full_rank = (extract(base, adapter, "lora", rank=rank, **options) for rank in (2, 8))
    assert not rough.disagreements
    assert 0 < rough.output_error < 1
    assert full_rank.output_error < 1e-6
