"""The configuration that an analysis proposes, as PEFT applies it to the model."""

import re
import warnings

import peft
import pytest
import torch
from torch import nn

from loca_theory.checkpoints import analyze, extract
from loca_theory.errors import InvalidArgumentError
from loca_theory.increments import PrintedTest
from loca_theory.transforms import idct2
from tests.checkpoints import zoo

# Of torch, once per process, when SHiRA makes a sparse tensor.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
ASKED = {"ranks": (2,), "device": "cpu", "printed": PrintedTest(copies=10, samples=5000)}


def low_rank(p, q):
    return torch.randn(p, 2) @ torch.randn(2, q)


def few_cosines(p, q):
    spectrum = torch.zeros(p, q)
    spectrum[torch.randint(p, (12,)), torch.randint(q, (12,))] = torch.randn(12)
    return idct2(spectrum)


def few_entries(p, q):
    change = torch.zeros(p, q)
    change[torch.randperm(p)[:14], torch.randperm(q)[:14]] = torch.randn(14)
    return change


# A change that a method suits, its class in PEFT, and the size of a layer there.
METHODS = {
    "LoRA": (low_rank, "LoraConfig", lambda layer: layer.r["default"]),
    "LoCA": (
        few_cosines,
        "LoCAConfig",
        lambda layer: layer.loca_spectrum["default"].coefficients.numel(),
    ),
}


def changed(model, change, *, but=()):
    """Weights of a model before and after a change of all its matrices, or of all but some."""
    torch.manual_seed(0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    after = dict(before)
    for name, value in before.items():
        if value.ndim > 1 and name not in but:
            after[name] = value + change(len(value), value[0].numel()).view(value.shape)
    return before, after


def adapted(model, config):
    """Names of the modules that PEFT adapts by the source of a configuration."""
    scope = {}
    exec(config, scope)
    peft_model = peft.get_peft_model(model, scope["config"])
    return sorted(peft_model.targeted_module_names), peft_model.base_model.model


def linear(side=20):
    return nn.Linear(side, side)


def block():
    return nn.ModuleDict({"fc": linear(), "down": linear()})


@pytest.mark.parametrize("method", METHODS)
def test_each_module_gets_its_size_whatever_names_it_ends(method):
    """Not those that do not change, embeddings, or parameters that are read directly."""
    change, name, size_of = METHODS[method]
    model = nn.ModuleDict(
        {
            "fc": linear(),
            "block": block(),
            "last": linear(),
            "0": nn.ModuleDict({"0": block()}),
            "embed": nn.Embedding(30, 20),
            "attn": nn.MultiheadAttention(20, 2),
        }
    )
    before, after = changed(model, change, but=["last.weight"])
    after["block.fc.weight"] += 3 * change(20, 20)
    after["fc.weight"] += 0.5 * change(20, 20)
    analysis = analyze(before, after, allocate=600, **ASKED)
    rows = [row for row in analysis.allocation if row.method == method and row.size]
    sizes = {row.name.removesuffix(".weight"): row.size for row in rows}
    assert sizes.keys() == {"fc", "block.fc", "block.down", "0.0.fc", "0.0.down"}
    assert name in analysis.config_source
    names, peft_model = adapted(model, analysis.config_source)
    layers = [peft_model.get_submodule(name) for name in names]
    assert dict(zip(names, map(size_of, layers), strict=True)) == sizes
    assert method != "LoRA" or {layer.scaling["default"] for layer in layers} == {2}


def test_a_configuration_is_an_object_of_peft_of_the_form_and_budget_that_is_asked():
    model = nn.ModuleDict({"fc": linear(), "last": linear(), "tiny": linear(16)})
    analysis = analyze(*changed(model, low_rank), **(ASKED | {"ranks": (2, 4, 9)}))
    assert isinstance(analysis.config(), peft.LoraConfig)
    assert (analysis.config().r, analysis.config(rank=4).r) == (2, 4)
    assert analysis.config().target_modules == {"fc", "last", "tiny"}
    # The smallest has not enough entries for rank 9.
    assert analysis.config(rank=9).target_modules == {"fc", "last"}
    assert analysis.config("entries", 4).r == 2
    assert analysis.config("LoCA").n_frequency == 32 * 2 // 2
    assert analysis.config("fourierft").n_frequency == 32 * 2
    for wrong, said in (
        (("Loka",), "unknown method 'Loka'; did you mean LoRA?"),
        ((None, 3), "unknown rank '3'"),
    ):
        with pytest.raises(InvalidArgumentError, match=re.escape(said)):
            analysis.config(*wrong)
    several = analyze(*changed(model, low_rank), model, **ASKED)
    assert several.config_source == ""
    with pytest.raises(InvalidArgumentError, match="analyse one of them"):
        several.config()


def test_all_modules_have_one_r_of_shira():
    """No total is split for it."""
    model = nn.ModuleDict({"fc": linear(), "last": linear(30)})
    analysis = analyze(*changed(model, few_entries), **ASKED)
    assert "# The entries are random; " in analysis.config_source
    names, peft_model = adapted(model, analysis.config_source)
    assert names == ["fc", "last"]
    assert {peft_model.get_submodule(name).r["default"] for name in names} == {1}


def test_the_modules_of_an_adapter_are_those_of_its_model(tmp_path):
    models = [nn.ModuleDict({"fc": linear(), "block": block()}) for _ in range(2)]
    before, after = changed(models[0], low_rank, but=["block.fc.weight"])
    extract(before, after, "lora", rank=1).save(tmp_path / "adapter")
    for model, base in zip(models, ([], [before]), strict=True):
        config = analyze(*base, tmp_path / "adapter", **ASKED).config_source
        assert adapted(model, config)[0] == ["block.down", "fc"]


@pytest.mark.parametrize("is_ambiguous", [False, True])
def test_many_names_are_printed_in_short_lines(is_ambiguous):
    torch.manual_seed(0)
    names = [f"model.layers.{i}.self_attn.{kind}_proj" for i in range(8) for kind in "qkv"]
    names += ["fc", "block.fc"] * is_ambiguous
    tuned = {f"{name}.weight": low_rank(20, 20) for name in names}
    analysis = analyze({name: torch.zeros(20, 20) for name in tuned}, tuned, **ASKED)
    assert max(map(len, analysis.config_source.splitlines())) <= 100
    assert ('target_modules="|".join(' in analysis.config_source) == is_ambiguous
    assert isinstance(analysis.config().target_modules, str) == is_ambiguous


def test_without_a_module_or_an_error_nothing_is_proposed():
    change = low_rank(20, 20)
    for name, rank in (("in_proj_weight", 2), ("fc.weight", 11)):
        analysis = analyze({name: 0 * change}, {name: change}, **(ASKED | {"ranks": rank}))
        assert (bool(analysis.errors), analysis.config_source) == (rank == 2, "")


@pytest.mark.parametrize("name", ["ViT", "BERT", "T5", "Mixtral", "DeepSeek-V3", "GPT-2"])
def test_a_proposed_configuration_has_the_names_of_the_loaded_model(tmp_path, name):
    """Whatever the file calls them, and only layers that PEFT can adapt."""
    base, tuned = zoo.pair(name, tmp_path)
    analysis = analyze(base, tuned, ranks=[1])
    kinds = {"lora": "Lora", "loca": "LoCA|FourierFT", "entries": "Shira"}
    (method,) = (
        method_name
        for method_name in kinds
        if re.search(f"({kinds[method_name]})Config", analysis.config_source)
    )
    modules = {row.module for row in analysis.matrices if method in row.adapters}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT sets fan_in_fan_out for Conv1D
        names = adapted(zoo.make(name), analysis.config_source)[0]
    assert set(names) == modules
    assert not any("relative_attention_bias" in name or "experts" in name for name in names)
