"""Adapters in the models that they are for: what is loaded has the errors that were printed."""

import json
import pickle
import re
import sys
from collections import Counter
from functools import cache, partial
from importlib import import_module

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import nn

import loca_theory.adapters  # noqa: F401  makes LoCA a method of PEFT
from loca_theory.checkpoints import Extraction, extract
from loca_theory.checkpoints.model.loading import view_of, views_of
from loca_theory.checkpoints.model.model import Model
from loca_theory.checkpoints.source.checkpoint import LeftOutError
from loca_theory.checkpoints.source.open import open_checkpoint
from loca_theory.errors import InvalidArgumentError, ResourceError
from tests.checkpoints.files import folder_of
from tests.checkpoints.zoo import MODELS, fine_tuned, make, pair

# float32 holds W + ΔW to 6e-8 of W, and here ΔW is not much smaller than W.
TOLERANCE = 1e-5
# It can tie modules for LoRA only, and asks transformers for what it deprecates.
said_by_peft = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
TIED = ("BERT-MLM", "T5", "Whisper", "GPT-2")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Folders of a base and a fine-tune by the name of a model, each made once."""
    return cache(lambda name: pair(name, tmp_path_factory.mktemp("pair")))


def loaded(name, folder):
    return getattr(transformers, MODELS[name][0]).from_pretrained(folder).eval()


def content_of(folder):
    """Weights and configuration of a stored model."""
    config = json.loads((folder / "config.json").read_text())
    return load_file(folder / "model.safetensors"), config


@pytest.mark.parametrize("name", MODELS)
def test_a_checkpoint_as_loaded_is_what_transformers_loads(pairs, name):
    base, tuned = map(open_checkpoint, pairs(name))
    *views, _ = views_of(tuned, base)
    for view, folder in zip(views, pairs(name)[::-1], strict=True):
        expected = loaded(name, folder).state_dict()
        assert view.entries.keys() == expected.keys()
        sent = pickle.loads(pickle.dumps(view))
        for key, value in expected.items():
            assert torch.equal(sent.load(key), value)
            assert view.entries[key].shape == value.shape
            assert list(view.stored(key))


@said_by_peft
@pytest.mark.parametrize("method", ["lora", "loca"])
@pytest.mark.parametrize("name", MODELS)
def test_errors_in_the_loaded_model_are_those_printed(pairs, tmp_path, name, method):
    extraction = extract(*pairs(name), method, rank=3)
    assert extraction.note == ""
    extraction.save(tmp_path)
    before, goal = (loaded(name, folder).state_dict() for folder in pairs(name))
    adapted = peft.PeftModel.from_pretrained(loaded(name, pairs(name)[0]), tmp_path / method)
    with torch.no_grad():
        adapted(**MODELS[name][2])  # it runs before it is merged
    after = adapted.merge_and_unload().state_dict()
    rows = {row.name: row for row in extraction.matrices}
    assert rows.keys() <= after.keys()
    for key, value in after.items():
        change = (goal[key] - before[key]).double().square().sum()
        left = float((goal[key] - value).double().square().sum() / change) if change else 0.0
        if key in rows:
            assert left == pytest.approx(rows[key].error, abs=TOLERANCE)
        else:
            torch.testing.assert_close(value, before[key], rtol=0, atol=0)
    # Every other matrix is named, with a reason.
    skipped = {skipped.name for skipped in extraction.skipped}
    matrices = {key for key, value in goal.items() if value.ndim > 1 and "running" not in key}
    assert matrices <= rows.keys() | skipped


@pytest.mark.parametrize("name", ["Mixtral", "DeepSeek-V3"])
def test_experts_of_one_parameter_are_priced_like_layers_and_read_by_peft_alone(
    pairs, tmp_path, name
):
    extraction = extract(*pairs(name), "lora", check=True, allocate="9k")
    assert not extraction.disagreements
    adapter = extraction.adapters["lora"]
    assert any("experts" in parameter for parameter in adapter.config["target_parameters"])
    needed = sum(row.numbers for row in extraction.matrices)
    assert sum(tensor.numel() for tensor in adapter.tensors.values()) == needed <= 9000
    extraction.save(tmp_path)
    card = (tmp_path / "lora" / "README.md").read_text(encoding="utf-8")
    assert "llama.cpp and vLLM read no LoRA of experts in one parameter" in card
    with pytest.raises(InvalidArgumentError, match=r"llama.cpp reads no LoRA .* \(model\.lay"):
        extract(*pairs(name), "lora", rank=2, serve="llama.cpp")


def test_vllm_gets_a_key_for_each_projection_of_each_expert(pairs, tmp_path):
    """By the names of the checkpoint, with the errors of the layout that PEFT reads."""
    extraction = extract(*pairs("DeepSeek-V3"), "lora", rank=3, serve="vllm")
    adapter = extraction.adapters["lora"]
    assert "target_parameters" not in adapter.config
    base, tuned = (load_file(side / "model.safetensors") for side in pairs("DeepSeek-V3"))
    errors, energies = Counter(), Counter()
    for name, a in adapter.tensors.items():
        module, is_a, _ = name.removeprefix("base_model.model.").partition(".lora_A.weight")
        if is_a and ".experts." in module:
            change = tuned[f"{module}.weight"] - base[f"{module}.weight"]
            b = adapter.tensors[name.replace("lora_A", "lora_B")]
            parameter = "down_proj" if module.endswith("down_proj") else "gate_up_proj"
            errors[parameter] += float((change - b @ a).square().sum())
            energies[parameter] += float(change.square().sum())
    experts = [name for name in base if re.search(r"\.experts\.\d+\.", name)]
    assert len([name for name in adapter.tensors if ".experts." in name]) == 2 * len(experts)
    for parameter, energy in energies.items():
        row = extraction[f"model.layers.1.mlp.experts.{parameter}"]
        assert errors[parameter] / energy == pytest.approx(row.error, rel=1e-4)
    extraction.save(tmp_path)
    card = (tmp_path / "lora" / "README.md").read_text(encoding="utf-8")
    assert "vLLM reads it; PEFT and llama.cpp have no keys for single experts." in card


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Mixtral", {}, r"deepseek_v2, deepseek_v3, qwen3_moe alone\) \(model\.lay"),
        ("DeepSeek-V3", {"exclude": r"experts\.down"}, "with all their projections only"),
        ("DeepSeek-V3", {"check": True}, "PEFT cannot check an adapter with keys for single"),
    ],
)
def test_what_vllm_does_not_read_of_experts_is_refused(pairs, name, options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        extract(*pairs(name), "lora", rank=2, serve="vllm", **options)


BIAS = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
# A method, a layer of a model, and why it can have no adapter.
LEFT_OUT = [
    ("T5", "loca", BIAS, "embedding: not a linear layer"),
    ("Mamba2", "lora", "backbone.layers.0.mixer.out_proj.weight", "Mamba2ForCausalLM uses"),
    ("DeepSeek-V3", "lora", "model.layers.0.mlp.up_proj.weight", "for one of experts"),
    ("Whisper", "lora", "model.encoder.conv1.weight", "read directly"),
    (
        "Mixtral",
        "entries",
        "model.layers.0.mlp.gate.weight",
        "not the weight of a linear layer: weight of MixtralTopKRouter",
    ),
    ("Mixtral", "entries", "model.layers.0.mlp.experts.gate_up_proj", "experts in one tensor"),
    ("ViT", "loca", "vit.embeddings.patch_embeddings.projection.weight", "convolution: LoCA ada"),
    ("GPT-2 with a head", "entries", "transformer.h.0.attn.c_attn.weight", "Conv1D: SHiRA adapts"),
]


@pytest.mark.parametrize(("name", "method", "layer", "reason"), LEFT_OUT)
def test_layers_that_an_adapter_would_change_in_silence_are_left_out(
    pairs, name, method, layer, reason
):
    extraction = extract(*pairs(name), method, rank=1)
    assert reason in {skipped.name: skipped.reason for skipped in extraction.skipped}[layer]


@said_by_peft
@pytest.mark.parametrize("method", ["lora", "loca"])
@pytest.mark.parametrize("name", TIED)
def test_with_everything_stored_the_outputs_are_those_of_the_fine_tune(
    pairs, tmp_path, name, method
):
    """An embedding brings what is tied to it, under all names of the model."""
    # The whole increment of every layer, and every other module whole.
    size = {"rank": 32} if method == "lora" else {"components": 10**6}
    save_modules = "embed|wte|wpe|shared|norm|LayerNorm|ln_|conv|relative"
    extraction = extract(*pairs(name), method, **size, save_modules=save_modules)
    tokens = MODELS[name][2]
    extraction.save(tmp_path)
    adapted = peft.PeftModel.from_pretrained(loaded(name, pairs(name)[0]), tmp_path / method)
    with torch.no_grad():
        base, goal = (loaded(name, folder)(**tokens).logits for folder in pairs(name))
        ours = adapted(**tokens).logits
    assert float((goal - ours).norm() / (goal - base).norm()) < 1e-3
    assert extraction.verify(inputs=tokens).output_error < 1e-6


def test_two_sides_of_which_one_has_a_head(tmp_path):
    """The model is that of the fine-tune; the names of the base lack its prefix."""
    base, tuned = tmp_path / "base", tmp_path / "tuned"
    model = fine_tuned(make("BERT"))
    model.save_pretrained(tuned)
    make("BERT").bert.save_pretrained(base)
    extraction = extract(base, tuned, "lora", rank=2)
    assert extraction.manifest["grid"]["model"] == "BertForSequenceClassification"
    assert extraction.matrices[0].name.startswith("bert.encoder.layer.0.attention")
    assert extraction.verify().disagreements == []
    with pytest.raises(InvalidArgumentError, match=r"has no classifier\..*outputs would be random"):
        extraction.verify(inputs=MODELS["BERT"][2])


def test_verify_measures_the_loaded_model(pairs, tmp_path):
    extraction = extract(*pairs("ViT"), "lora", rank=3)
    extraction.save(tmp_path)
    card = (tmp_path / "lora" / "README.md").read_text(encoding="utf-8")
    assert "llama.cpp and vLLM read no LoRA of experts in one parameter or of conv" in card
    for result in (extraction, Extraction.load(tmp_path)):
        verified = result.verify(inputs=MODELS["ViT"][2])
        for row in verified.matrices:
            assert row.loaded_error == pytest.approx(row.error, abs=TOLERANCE)
        assert verified.disagreements == []
        assert 0 < verified.output_error < 2
    with pytest.raises(InvalidArgumentError, match="does not run on these inputs: "):
        extraction.verify(inputs={"bad": 1})
    # Errors that were wrong are found, and what PEFT cannot load is said.
    adapter = extraction.adapters["lora"]
    next(iter(adapter.tensors.values())).zero_()
    assert len(extraction.verify().disagreements) == 1
    adapter.config["target_modules"] = ["nothing"]
    with pytest.raises(ResourceError, match="PEFT cannot load the adapter into ViTForImage"):
        extraction.verify()


def test_verify_takes_a_model_of_any_kind():
    torch.manual_seed(0)
    base, tuned = (nn.Sequential(nn.Linear(20, 24), nn.Tanh(), nn.Linear(24, 4)) for _ in "ab")
    tuned[0].bias, tuned[2].bias = base[0].bias, base[2].bias
    extraction = extract(base.state_dict(), tuned.state_dict(), "lora", rank=20)
    with pytest.raises(
        InvalidArgumentError, match=r"not known \(no config.json .*pass it as model"
    ):
        extraction.verify()
    inputs = torch.randn(3, 20, generator=torch.Generator().manual_seed(1))
    with pytest.raises(InvalidArgumentError, match="Sequential cannot be built from its class"):
        extraction.verify(base, inputs)
    assert extraction.verify(base).disagreements == []
    assert extract(base, tuned, "lora", rank=20).verify(inputs=inputs).output_error < 1e-9
    assert not hasattr(base[0], "base_layer")


def test_a_check_prints_nothing_and_needs_no_configuration_of_the_base(pairs, tmp_path, capfd):
    base, tuned = pairs("Llama")
    (weights, config), odd = content_of(base), {"\x1b[31mred.weight": torch.ones(2, 2)}
    checked = partial(extract, tuned=tuned, method="lora", rank=2, check=True)
    for folder in (
        folder_of(tmp_path / "odd", weights | odd, config),
        folder_of(tmp_path / "bare", weights),
    ):
        capfd.readouterr()
        assert checked(folder).disagreements == []
        assert capfd.readouterr() == ("", "")
    # An index without metadata, which transformers cannot load.
    index = {"weight_map": dict.fromkeys(weights, "a.safetensors")}
    (tmp_path / "odd" / "model.safetensors").rename(tmp_path / "odd" / "a.safetensors")
    (tmp_path / "odd" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ResourceError, match="cannot load the weights into Llama"):
        checked(tmp_path / "odd")


NO_MODEL = [
    (None, "no config.json names the class of the model"),
    ({"architectures": []}, "no config.json names the class"),
    ({"architectures": ["path"]}, r"asks for path: transformers \S+ has no such model"),
    ({"architectures": "TheirModel"}, r"TheirModel: transformers \S+ has no such model"),
    ({"architectures": ["PreTrainedModel"]}, r"transformers \S+ has no such model"),
    (
        {"architectures": ["TheirModel"], "auto_map": {"AutoModel": "code.TheirModel"}},
        "TheirModel: code of its own, which is not executed",
    ),
    ({"hidden_size": "wide"}, "transformers cannot build LlamaForCausalLM from config.json: "),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers 1000000000 is too many for the stored"),
    ({"num_hidden_layers": 1300}, "number of parts 1421 is too many"),
    ({"num_labels": 10**8}, "num_labels 100000000 is too many"),
    ({"model_type": ["llama"]}, "transformers cannot read the configuration"),
    ({"hidden_size": 64}, "LlamaForCausalLM is not the model of the fine-tuned checkpoint"),
    (
        {"architectures": ["BertModel"], "model_type": "bert"},
        "BertModel is not the model of the fine-tuned checkpoint: it has only 0% of the",
    ),
]


@pytest.mark.parametrize(("config", "reason"), NO_MODEL, ids=str)
def test_without_a_model_names_are_those_of_the_file(pairs, tmp_path, config, reason):
    folders = []
    for folder in pairs("Llama"):
        weights, stored_config = content_of(folder)
        settings = None if config is None else stored_config | config
        folders.append(folder_of(tmp_path / folder.name, weights, settings))
    extraction = extract(*folders, "lora", rank=2)
    assert extraction.manifest["grid"]["model"] is None
    assert extraction.note.startswith("Names are those of the file; not checked against a model: ")
    assert re.search(reason, extraction.note)
    assert "model.layers.0.self_attn.q_proj.weight" in {row.name for row in extraction.matrices}
    extraction.save(tmp_path / "out")
    assert extraction.note in (tmp_path / "out" / "lora" / "README.md").read_text()


def test_a_name_that_transformers_cannot_read_costs_the_model(pairs, tmp_path):
    base, tuned = pairs("Llama")
    weights, config = content_of(tuned)
    odd = folder_of(tmp_path / "odd", weights | {"a.²³.weight": torch.ones(2, 2)}, config)
    note = extract(base, odd, "lora", rank=2).note
    assert "transformers cannot read the names of the tensors: invalid literal for int()" in note


def test_kernels_and_weights_that_a_configuration_asks_for_are_not_fetched(pairs, monkeypatch):
    def fetch(self, implementation, *_, **__):
        fetched.append(implementation)
        return "eager"

    fetched = []
    name = "_check_and_adjust_attn_implementation"
    monkeypatch.setattr(transformers.PreTrainedModel, name, fetch)
    config = dict(open_checkpoint(pairs("Llama")[1]).config)
    kernels = {"attn_implementation": "org/kernel", "_attn_implementation": "org/kernel"}
    parts = [{**kernels, "use_pretrained_backbone": True}]
    Model.of_config({**config, **kernels, "parts": parts}, tensors=99)
    assert fetched
    assert "org/kernel" not in fetched
    config_of_model = Model.of_config({**config, "parts": parts}, tensors=99).module.config
    assert config_of_model.parts == [{"use_pretrained_backbone": False}]


def test_names_are_checked_without_conversions_and_what_is_not_is_said(pairs, monkeypatch):
    folders, (_, vit) = pairs("Llama"), pairs("ViT")
    # PEFT's own use of it, which is not meant here, is loaded before.
    import_module("peft.utils.transformers_weight_conversion")
    monkeypatch.setitem(sys.modules, "transformers.conversion_mapping", None)
    extraction = extract(*folders, "lora", rank=2)
    assert extraction.manifest["grid"]["model"] == "LlamaForCausalLM"
    assert extraction.verify().disagreements == []
    tuned = open_checkpoint(vit)
    view = view_of(tuned, Model.of_config(tuned.config, tensors=99))
    assert "not a parameter of ViTForImageClassification" in map(str, view.left_out.values())
    # Without PEFT it is said what is not checked.
    monkeypatch.setattr("loca_theory.checkpoints.model.model.find_spec", lambda name: None)
    extraction = extract(*folders, "lora", rank=2)
    assert extraction.manifest["grid"]["model"] == "LlamaForCausalLM"
    assert extraction.note.startswith("Not checked: what PEFT makes of them: it is not installed")


def test_a_part_that_is_missing_spoils_what_is_made_of_it(pairs):
    base, tuned = map(open_checkpoint, pairs("DINOv2-SwiGLU"))
    _, _, model = views_of(tuned, base)
    name = next(key for key in tuned.entries if key.endswith("weights_in.weight"))
    tuned.left_out[name] = LeftOutError("cut short", damaged=True)
    del tuned.entries[name]
    reasons = {key: str(reason) for key, reason in view_of(tuned, model).left_out.items()}
    assert reasons == {name.replace("weights_in", "gate_proj"): "cut short"}


def test_what_is_made_of_several_tensors_may_be_tied(pairs):
    """In a user's model: the classes of transformers tie only tensors that are stored unchanged."""
    folder, (first, second) = (
        pairs("Qwen2-MoE")[1],
        (f"model.layers.{i}.mlp.experts" for i in (0, 1)),
    )
    tuned, model = open_checkpoint(folder), loaded("Qwen2-MoE", folder)
    same = model.get_submodule(first).gate_up_proj
    model.get_submodule(second).gate_up_proj = same
    for name in [key for key in tuned.entries if key.startswith(second) and "down" not in key]:
        del tuned.entries[name]
    view = view_of(tuned, Model(model))
    assert view.entries[f"{second}.gate_up_proj"].tied_to == f"{first}.gate_up_proj"
    assert torch.equal(view.load(f"{second}.gate_up_proj"), same)
    assert torch.equal(view.load(f"{second}.gate_up_proj", 2), same[2])
    for weight, other in zip(
        view.stored(f"{second}.gate_up_proj", 2),
        view.stored(f"{first}.gate_up_proj", 2),
        strict=True,
    ):
        assert torch.equal(weight, other)


class Own(nn.Module):
    """Layers that only their classes tell apart."""

    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(16, 16)
        self.attention = nn.MultiheadAttention(16, 2, bias=False)
        self.grouped = nn.Conv1d(16, 16, 3, groups=4, bias=False)
        self.up = nn.Linear(16, 24, bias=False)
        self.down = nn.Linear(24, 16, bias=False)
        self.again = nn.Linear(24, 16, bias=False)
        self.again.weight = self.down.weight


@pytest.mark.parametrize("how", ["base", "tuned", "model"])
def test_a_module_that_is_passed_decides(how):
    base, tuned = Own(), fine_tuned(Own())
    states = {"base": base.state_dict(), "tuned": tuned.state_dict()}
    modules = {"base": base, "tuned": tuned, "model": base}
    extraction = extract(**{**states, how: modules[how]}, method="lora", rank=2)
    assert extraction.manifest["grid"]["model"] == "Own"
    assert [row.name for row in extraction.matrices] == ["up.weight"]
    assert {skipped.name: skipped.reason.partition(":")[0] for skipped in extraction.skipped} == {
        "tok.weight": "embedding",
        "attention.in_proj_weight": "not the weight of a linear layer",
        "attention.out_proj.weight": "read directly",
        "grouped.weight": "grouped convolution",
        "down.weight": "shares its weight with another layer",
        "again.weight": "tied to down.weight",
    }


def test_a_fine_tune_with_more_tokens_is_checked_in_a_resized_base(tmp_path):
    model = make("Llama")
    model.save_pretrained(tmp_path / "base")
    model.resize_token_embeddings(64, mean_resizing=False)
    fine_tuned(model).save_pretrained(tmp_path / "tuned")
    sides = tmp_path / "base", tmp_path / "tuned"
    extraction = extract(*sides, "lora", rank=2, check=True)
    assert not extraction.disagreements
    reasons = {skipped.name: skipped.reason for skipped in extraction.skipped}
    assert reasons["model.embed_tokens.weight"] == "embedding: not a linear layer"
    assert "resized from 61 to 64 rows" in reasons["lm_head.weight"]
    stored = extract(
        *sides,
        "lora",
        rank=32,
        check=True,
        save_modules="embed|lm_head|norm",
        inputs={"input_ids": torch.arange(64).reshape(2, 32)},
    )
    assert stored.output_error < 1e-6
    assert stored.saved_numbers == 2 * 64 * 32 + 5 * 32
    stored.save(tmp_path)
    card = (tmp_path / "lora" / "README.md").read_text(encoding="utf-8")
    _, _, code = card.partition("```python\n")
    assert "from transformers import LlamaForCausalLM\n" in code
    assert code.index("base_model = ") < code.index("base_model.resize_token_embeddings(64)")
