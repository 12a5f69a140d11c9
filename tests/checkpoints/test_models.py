"""The model that checkpoints belong to: where tensors and adapters have their place in it."""

import json

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn

from loca_theory.checkpoints import analyze, extract
from loca_theory.checkpoints.change.opening import open_pair
from loca_theory.checkpoints.change.selection import MatrixSelection
from loca_theory.checkpoints.model.model import Model
from loca_theory.checkpoints.source.checkpoint import Checkpoint
from loca_theory.errors import InvalidArgumentError
from tests.checkpoints import zoo
from tests.checkpoints.files import folder_of, normal

EVERYTHING = MatrixSelection(smallest_side=1)
HALVES = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": 61,
    "max_position_embeddings": 40,
}  # fmt: skip
TOWER = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
}  # fmt: skip
said_by_peft = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def halves():
    """A model with an encoder and a decoder of the same sizes."""
    torch.manual_seed(0)
    return transformers.PegasusForConditionalGeneration(transformers.PegasusConfig(**HALVES))


def towers():
    """A model of images and texts, whose halves have the same names and other sizes."""
    torch.manual_seed(0)
    texts = {**TOWER, "vocab_size": 61, "max_position_embeddings": 16}
    images = {
        **TOWER,
        "hidden_size": 48,
        "intermediate_size": 64,
        "image_size": 16,
        "patch_size": 4,
    }
    config = transformers.SiglipConfig(text_config=texts, vision_config=images)
    return transformers.SiglipModel(config)


# A model, the part of it that is trained, and modules of that part.
PARTS = {
    "encoder": (halves, "model.encoder", ["q_proj", "fc1"]),
    "decoder": (halves, "model.decoder", ["self_attn.q_proj", "fc1"]),
    "images": (towers, "vision_model", ["q_proj", "fc1"]),
    "texts": (towers, "text_model", ["q_proj", "fc1"]),
}
ADAPTERS = {
    "LoRA": lambda modules: peft.LoraConfig(r=2, target_modules=modules),
    "DoRA": lambda modules: peft.LoraConfig(r=2, target_modules=modules, use_dora=True),
    "HRA": lambda modules: peft.HRAConfig(r=2, target_modules=modules),
}


def trained_part(folder, make, part, modules, kind, *, notes_class=True):
    """An adapter of a part of a model, and the weights of the part that PEFT merges it into."""
    module = make().get_submodule(part)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    adapted = peft.get_peft_model(module, ADAPTERS[kind](modules))
    generator = torch.Generator().manual_seed(1)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data += 0.05 * torch.randn(parameter.shape, generator=generator)
    adapted.save_pretrained(folder)
    if not notes_class:
        config = json.loads((folder / "adapter_config.json").read_text())
        (folder / "adapter_config.json").write_text(json.dumps({**config, "auto_mapping": None}))
    after = adapted.merge_and_unload().state_dict()
    return {f"{part}.{name}": after[name] - was for name, was in before.items()}


@said_by_peft
@pytest.mark.parametrize("kind", ADAPTERS)
@pytest.mark.parametrize("part", PARTS)
def test_an_adapter_of_one_part_is_put_on_that_part(tmp_path, part, kind):
    make, path, modules = PARTS[part]
    make().save_pretrained(tmp_path / "base")
    expected = trained_part(tmp_path / "adapter", make, path, modules, kind)
    pair = open_pair(tmp_path / "base", tmp_path / "adapter", EVERYTHING)
    changed = {name for name, change in expected.items() if change.ndim == 2 and change.any()}
    assert pair.matrices.keys() == changed
    for name in changed:
        torch.testing.assert_close(pair.increment(name), expected[name], rtol=1e-4, atol=1e-6)


@said_by_peft
def test_the_norms_of_rows_that_dora_stores_tell_its_part(tmp_path):
    make, path, modules = PARTS["encoder"]
    make().save_pretrained(tmp_path / "base")
    folder = tmp_path / "adapter"
    expected = trained_part(folder, make, path, modules, "DoRA", notes_class=False)
    pair = open_pair(tmp_path / "base", folder, EVERYTHING)
    assert {name.startswith(path) for name in pair.matrices} == {True}
    name = next(iter(pair.matrices))
    torch.testing.assert_close(pair.increment(name), expected[name], rtol=1e-4, atol=1e-6)


@said_by_peft
def test_an_adapter_that_fits_two_parts_equally_well_is_refused(tmp_path):
    make, path, _ = PARTS["encoder"]
    make().save_pretrained(tmp_path / "base")
    trained_part(tmp_path / "adapter", make, path, ["q_proj"], "LoRA", notes_class=False)
    match = r"equally well .*: model\.encoder\.\* and model\.decoder\.\*; pass that part"
    with pytest.raises(InvalidArgumentError, match=match):
        open_pair(tmp_path / "base", tmp_path / "adapter")
    # The part alone can be passed.
    part = make().get_submodule(path)
    assert open_pair(part.state_dict(), tmp_path / "adapter", EVERYTHING).matrices


@pytest.mark.parametrize("is_known", [True, False], ids=["a known model", "a plain file"])
@pytest.mark.parametrize("part", PARTS)
def test_full_weights_of_one_part_are_compared_with_that_part(tmp_path, part, is_known):
    make, path, _ = PARTS[part]
    whole = make()
    whole.save_pretrained(tmp_path / "base")
    base = tmp_path / "base" if is_known else whole.state_dict()
    tuned = {
        name: value + 0.01 * normal(*value.shape)
        for name, value in whole.get_submodule(path).state_dict().items()
        if value.is_floating_point()
    }
    pair = open_pair(base, tuned, EVERYTHING)
    # The embedding, which both parts share, goes by its first name.
    owns = {name: name.removeprefix(f"{path}.") for name in pair.matrices}
    owns |= {"model.shared.weight": "embed_tokens.weight"} if is_known and make is halves else {}
    assert set(owns.values()) <= tuned.keys()
    for name in pair.matrices:
        change = tuned[owns[name]] - whole.state_dict()[name]
        torch.testing.assert_close(pair.increment(name), change.flatten(1), rtol=0, atol=1e-7)


def test_full_weights_that_resemble_no_part_are_refused():
    base = {f"{part}.layers.{i}.weight": normal(32, 32, seed=i) for part in "ab" for i in (0, 1)}
    tuned = {f"layers.{i}.weight": normal(32, 32, seed=i) for i in (0, 1)}
    # Both parts have the same weights.
    with pytest.raises(InvalidArgumentError, match=r"equally well .*: a\.\* and b\.\*"):
        open_pair(base, tuned)
    base |= {f"b.layers.{i}.weight": normal(32, 32, seed=i + 9) for i in (0, 1)}
    assert list(open_pair(base, tuned).matrices) == ["a.layers.0.weight", "a.layers.1.weight"]


# Names of an embedding and a head on each side, of which the embeddings are not the same tensor.
UNTIED = [
    (("decoder.embed_tokens", "lm_head"), ("shared", "lm_head")),
    (("transformer.wte", "lm_head"), ("model.embed_tokens", "lm_head")),
    (("layer", "lm_head"), ("word_embeddings", "lm_head")),
]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("first", "second"), UNTIED)
def test_an_embedding_is_not_compared_with_a_head_that_both_sides_have(
    tmp_path, first, second, turned
):
    """Whatever the configuration says, which transformers writes so for every T5."""
    config = {"tie_word_embeddings": True, "architectures": ["MT5ForConditionalGeneration"]}
    sides = (second, first) if turned else (first, second)
    for folder, names in zip(("a", "b"), sides, strict=True):
        content = {f"{name}.weight": normal(30, 20, seed=len(name)) for name in names}
        folder_of(tmp_path / folder, content, config)
    pair = open_pair(tmp_path / "a", tmp_path / "b")
    assert list(pair.matrices) == ["lm_head.weight"]
    assert pair.matrices["lm_head.weight"].note == ""


def test_a_head_is_not_tied_if_either_configuration_says_so(tmp_path):
    names = ["model.embed_tokens.weight", "model.layers.0.q.weight", "lm_head.weight"]
    content = {name: normal(30, 20, seed=i) for i, name in enumerate(names)}
    config = {"architectures": ["XForCausalLM"], "tie_word_embeddings": False}
    base = folder_of(tmp_path / "base", content, config)
    tuned = folder_of(tmp_path / "tuned", {name: content[name] + 1 for name in names[:2]})
    assert list(open_pair(base, tuned).matrices) == names[:2]


STACKS = {
    # Experts whose two weights are square, one stored as (inputs, outputs).
    "GPT-OSS": ("GptOssForCausalLM", {"intermediate_size": 16, "num_local_experts": 2}, True),
    "OLMoE": ("OlmoeForCausalLM", {"intermediate_size": 16, "num_experts": 2}, False),
}
SMALL = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
    "vocab_size": 61, "head_dim": 16, "num_experts_per_tok": 1,
}  # fmt: skip


def stack(name, **settings):
    kind, own, _ = STACKS[name]
    kind = getattr(transformers, kind)
    torch.manual_seed(0)
    return kind(kind.config_class(**{**SMALL, **own, **settings})).eval()


@said_by_peft
@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("name", STACKS)
def test_the_model_says_how_square_weights_of_experts_are_stored(tmp_path, name, width):
    """With a width of 16 the two halves of gate and up are square, with 32 the weight of down."""
    parameters = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    model = stack(name, intermediate_size=width)
    model.save_pretrained(tmp_path / "base")
    config = peft.LoraConfig(r=2, target_modules=[], target_parameters=parameters)
    adapted = peft.get_peft_model(model, config)
    for number, parameter in enumerate(adapted.parameters()):
        if parameter.requires_grad:
            parameter.data += normal(*parameter.shape, seed=number)
    adapted.save_pretrained(tmp_path / "adapter")
    expected = zoo.merged(tmp_path / "adapter", stack(name, intermediate_size=width))
    pair = open_pair(tmp_path / "base", tmp_path / "adapter", EVERYTHING)
    assert len(pair.matrices) == 4
    for matrix, weight in pair.matrices.items():
        change = expected[weight.tensor][weight.expert]
        torch.testing.assert_close(pair.increment(matrix), change, rtol=1e-5, atol=1e-6)
    # A file alone does not say it.
    plain = load_file(tmp_path / "base" / "model.safetensors")
    if name == "GPT-OSS":
        alone = open_pair(plain, tmp_path / "adapter", EVERYTHING)
        reasons = {row.name.rpartition(".")[2]: row.reason for row in alone.skipped}
        square = "gate_up_proj" if width == 16 else "down_proj"
        assert "put its config.json beside the base" in reasons[square]


WRAPPERS = ["_checkpoint_wrapped_module", "_orig_mod", "_fsdp_wrapped_module"]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrappers_inside_a_name_do_not_cost_what_they_wrap(tmp_path, wrapper):
    base, tuned = zoo.pair("Qwen2-MoE", tmp_path)
    stored = load_file(tuned / "model.safetensors")
    wrapped = {
        name.replace(".mlp.", f".mlp.{wrapper}.").replace(
            ".self_attn.", f".{wrapper}.self_attn."
        ): value
        for name, value in stored.items()
    }
    assert wrapped.keys() != stored.keys()
    plain, found = (open_pair(base, side, EVERYTHING) for side in (stored, wrapped))
    assert plain.matrices.keys() == found.matrices.keys()
    assert all(torch.equal(plain.increment(name), found.increment(name)) for name in plain.matrices)


# Models whose names in a file are not those of version 5 of transformers.
RENAMED = {
    "OLMoE": lambda: stack("OLMoE"),
    "PaliGemma": lambda: seeing("PaliGemma", "Gemma"),
    "LLaVA": lambda: seeing("Llava", "Llama"),
}


def seeing(name, text):
    """A language model that sees images."""
    torch.manual_seed(0)
    texts = getattr(transformers, f"{text}Config")(**{**SMALL, "intermediate_size": 48})
    images = {**TOWER, "image_size": 16, "patch_size": 4}
    vision = transformers.SiglipVisionConfig(**images)
    kind = getattr(transformers, f"{name}ForConditionalGeneration")
    config = kind.config_class(text_config=texts, vision_config=vision, image_token_index=60)
    return kind(config).eval()


@pytest.mark.parametrize("name", RENAMED)
def test_a_state_dict_is_compared_with_a_file_that_has_older_names(tmp_path, name):
    base = RENAMED[name]()
    base.save_pretrained(tmp_path)
    tuned = zoo.fine_tuned(RENAMED[name]()).state_dict()
    torch.save(tuned, tmp_path / "tuned.pt")
    pair = open_pair(tmp_path, tmp_path / "tuned.pt", EVERYTHING)
    before = base.state_dict()
    assert not [row for row in pair.skipped if "only in" in row.reason]
    assert pair.coverage.fraction == 1
    for matrix, weight in pair.matrices.items():
        change = tuned[weight.tensor] - before[weight.tensor]
        change = change if weight.expert is None else change[weight.expert]
        assert torch.equal(pair.increment(matrix), change.flatten(1))


def test_what_is_not_compared_is_in_the_verdict():
    base = {f"layers.{i}.fc.weight": normal(32, 32, seed=i) for i in range(10)}
    tuned = {name: value + 0.1 for name, value in base.items()}
    assert analyze(base, tuned, ranks=1).warnings == ()
    # What is left out by rule, is equal, or is not selected does not count.
    tuned |= {"bias": normal(5000), "layers.0.fc.weight": base["layers.0.fc.weight"]}
    renamed = {
        f"other.{name}": value for name, value in tuned.items() if name.startswith("layers.9")
    }
    assert analyze(base, tuned | renamed, ranks=1, exclude="other").warnings == ()
    del tuned["layers.8.fc.weight"], tuned["layers.9.fc.weight"]
    several = {f"new.{i}": normal(32, 32, seed=50 + i) for i in range(4)}
    found = analyze(base, tuned | several, ranks=1)
    said = (
        "Only 80% of the parameters of the base checkpoint are compared: 2 of its tensors have no "
        "partner of the same name and shape, such as layers.8.fc.weight, layers.9.fc.weight."
    )
    assert found.warnings[0] == said
    assert found.verdict == f"{found.message} {said}"
    assert said in str(found).replace("\n", " ")


def test_an_analysis_and_an_extraction_speak_of_the_same_names_and_layers(tmp_path):
    base, tuned = tmp_path / "base", tmp_path / "tuned"
    stack("OLMoE").save_pretrained(base)
    zoo.fine_tuned(stack("OLMoE"), biases=False).save_pretrained(tuned)
    asked = {"include": r"experts\.gate_up_proj", "allocate": 300}
    analysis, extraction = (
        analyze(base, tuned, ranks=1, **asked),
        extract(base, tuned, "lora", **asked),
    )
    name = "model.layers.0.mlp.experts.gate_up_proj"
    assert [row.name for row in analysis.matrices] == [f"{name}[0]", f"{name}[1]"]
    (row,), (size,) = (
        extraction.matrices,
        [row for row in analysis.allocation if row.method == "LoRA"],
    )
    assert (row.name, row.r, row.numbers) == (size.name, size.size, size.numbers) == (name, 2, 256)
    config = analysis.config("LoRA")
    assert (config.target_parameters, config.target_modules) == ([name], set())


@said_by_peft
@pytest.mark.filterwarnings("ignore:The following rank_pattern keys")
@pytest.mark.filterwarnings("ignore:The following alpha_pattern keys")
@pytest.mark.parametrize("name", ["OLMoE", "LLaVA"])
def test_an_adapter_with_older_names_is_read_as_peft_loads_it(tmp_path, name):
    model = RENAMED[name]()
    model.save_pretrained(tmp_path / "base")
    if name == "LLaVA":
        layers = {f"language_model.model.layers.0.self_attn.{one}_proj": (32, 32) for one in "qk"}
    else:
        layers = {
            f"model.layers.0.mlp.experts.{i}.{one}_proj": (16, 32) if one != "down" else (32, 16)
            for i in range(2) for one in ("gate", "up", "down")
        }  # fmt: skip
    tensors = {}
    for number, (layer, (p, q)) in enumerate(layers.items()):
        factors = {"lora_A": (2, q), "lora_B": (p, 2)}
        tensors |= {
            f"base_model.model.{layer}.{factor}.weight": normal(*shape, seed=number)
            for factor, shape in factors.items()
        }
    (tmp_path / "adapter").mkdir()
    save_file(tensors, tmp_path / "adapter" / "adapter_model.safetensors")
    targets = sorted({layer.rpartition(".")[2] for layer in layers})
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "target_modules": targets}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    expected = zoo.merged(tmp_path / "adapter", RENAMED[name]())
    changed = {own for own, change in expected.items() if change.any()}
    pair = open_pair(tmp_path / "base", tmp_path / "adapter", EVERYTHING)
    assert {weight.tensor for weight in pair.matrices.values()} == changed
    for matrix, weight in pair.matrices.items():
        change = expected[weight.tensor]
        change = change if weight.expert is None else change[weight.expert]
        torch.testing.assert_close(pair.increment(matrix), change, rtol=1e-4, atol=1e-6)


def test_a_skeleton_takes_any_names():
    """Those of torch's own attributes, empty parts, and a tensor beside a module of its name."""
    deep = "a." * 3000 + "weight"
    names = [
        "_modules.weight",
        "_parameters.x.weight",
        "_buffers.weight",
        deep,
        "type.weight",
        "forward.train.weight",
        "a..weight",
        "weight",
        "a.b",
        "a.b.weight",
        "x.",
    ]
    model = Model.of_tensors(dict.fromkeys(names, (20, 30)), "nothing says which model it is")
    assert list(model.shapes) == names
    assert isinstance(model.modules["type"], nn.Linear)
    assert str(model.obstacle("a.b")) == "not the weight of a linear layer"
    assert model.obstacle("forward.train.weight") is None
    sides = [{name: normal(20, 30, seed=i) for name in names} for i in (0, 1)]
    assert list(open_pair(*sides).matrices) == names


def test_what_is_stored_is_looked_up_once_per_checkpoint(monkeypatch):
    """Not once per tensor: files may have many."""
    calls = []
    names = Checkpoint.names.fget
    monkeypatch.setattr(Checkpoint, "names", property(lambda side: calls.append(1) or names(side)))
    sides = [
        {f"l.{i}.fc.weight": normal(16, 16, seed=i + 99 * j) for i in range(60)} for j in (0, 1)
    ]
    assert len(open_pair(*sides).matrices) == 60
    assert len(calls) < 60


def test_few_tensors_of_a_deep_model_are_compared_in_it(tmp_path):
    base = stack("OLMoE", num_hidden_layers=60)
    base.save_pretrained(tmp_path)
    names = ["model.layers.3.mlp.experts.gate_up_proj", "model.layers.3.self_attn.q_proj.weight"]
    tuned = {name: base.state_dict()[name] + 1 for name in names}
    pair = open_pair(tmp_path, tuned, EVERYTHING)
    assert pair.model.title == "OlmoeForCausalLM"
    assert {weight.tensor for weight in pair.matrices.values()} == set(names)


@said_by_peft
def test_the_state_dict_of_a_model_with_an_adapter_is_refused():
    model = zoo.make("Llama")
    base = {name: value.clone() for name, value in model.state_dict().items()}
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"]))
    with pytest.raises(InvalidArgumentError, match=r"with an adapter in it \(.*; pass the model"):
        open_pair(base, adapted.state_dict())


def test_an_empty_name_ties_nothing():
    sides = [{"": normal(32, 32, seed=i), "fc.weight": normal(32, 32, seed=9 + i)} for i in (0, 1)]
    assert list(open_pair(*sides).matrices) == ["", "fc.weight"]


BAD = {
    "an unknown architecture": ({"architectures": ["NoSuchModel"]}, "has no such model"),
    "another model": (
        {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"},
        "is not the model",
    ),
}


@pytest.mark.parametrize(("config", "said"), BAD.values(), ids=BAD)
def test_without_its_class_the_names_and_shapes_are_the_model(tmp_path, config, said):
    weights = [
        {f"layers.{i}.fc.weight": normal(20, 24, seed=i + 9 * j) for i in range(3)} for j in (0, 1)
    ]
    sides = [
        folder_of(tmp_path / name, side, config) for name, side in zip("ab", weights, strict=True)
    ]
    found = extract(*sides, "lora", rank=2)
    assert len(found.matrices) == 3
    assert said in found.note
