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
    return torch.randn(p, 1) @ torch.randn(1, q)


def few_cosines(p, q):
    spectrum = torch.zeros(p, q)
    spectrum[torch.randint(p, (12,)), torch.randint(q, (12,))] = torch.randn(12)
    return idct2(spectrum)


def few_entries(p, q):
    change = torch.zeros(p, q)
    change[torch.randperm(p)[:14], torch.randperm(q)[:14]] = torch.randn(14)
    return change


CHANGES = {"R": low_rank, "D": few_cosines, "S": few_entries}
CONFIGS = {"R": "LoraConfig", "D": "LoCAConfig", "S": "ShiraConfig"}
# The size of a layer in PEFT.
SIZES = {
    "R": lambda layer: layer.r["default"],
    "D": lambda layer: layer.loca_spectrum["default"].coefficients.numel(),
    "S": lambda layer: layer.r["default"],
}


def changed(model, change, *, but=()):
    """Weights of a model before and after a change of all its matrices, or of all but some."""
    torch.manual_seed(0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    after = {
        name: value + change(value.shape[0], value[0].numel()).view(value.shape)
        if value.ndim > 1 and name not in but
        else value
        for name, value in before.items()
    }
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


# A model, the weights that do not change, what is asked of the analysis, the modules to adapt.
MODELS = {
    "numbers of containers": (
        lambda: nn.Sequential(linear(), nn.ModuleDict({"0": block(), "fc": linear()})),
        ["1.fc.weight"], {}, ["0", "1.0.down", "1.0.fc"],
    ),
    "a name that ends others": (
        lambda: nn.ModuleDict({"fc": linear(), "block": block()}),
        ["block.fc.weight"], {}, ["block.down", "fc"],
    ),
    "a matrix that the rank does not fit": (
        lambda: nn.ModuleDict({"a": linear(40), "b": nn.Linear(16, 16), "c": linear(40)}),
        [], {"ranks": (9, 2)}, ["a", "c"],
    ),
    "embeddings and parameters": (
        lambda: nn.ModuleDict(
            {"embed": nn.Embedding(30, 20), "fc": linear(), "attn": nn.MultiheadAttention(20, 2)}
        ),
        [], {}, ["fc"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("method", CHANGES)
@pytest.mark.parametrize(("make", "but", "asked", "expected"), MODELS.values(), ids=MODELS)
def test_exactly_the_analysed_modules_are_adapted(make, but, asked, expected, method):
    model = make()
    found = analyze(*changed(model, CHANGES[method], but=but), **(ASKED | asked))
    assert CONFIGS[method] in found.config_source
    assert adapted(model, found.config_source)[0] == expected


@pytest.mark.parametrize("method", CHANGES)
def test_each_module_gets_its_size_whatever_names_it_ends(method):
    model = nn.ModuleDict({"fc": linear(), "block": block(), "last": linear()})
    before, after = changed(model, CHANGES[method], but=["last.weight"])
    after["block.fc.weight"] += 3 * CHANGES[method](20, 20)
    after["fc.weight"] += 0.5 * CHANGES[method](20, 20)
    found = analyze(before, after, allocate=400, **ASKED)
    sizes = {
        one.name.removesuffix(".weight"): one.size
        for one in found.allocation
        if one.method == method and one.size
    }
    assert CONFIGS[method] in found.config_source
    names, peft_model = adapted(model, found.config_source)
    assert names == sorted(sizes)
    layers = {name: peft_model.get_submodule(name) for name in sizes}
    assert {name: SIZES[method](layer) for name, layer in layers.items()} == sizes
    if method == "R":
        assert {layer.scaling["default"] for layer in layers.values()} == {2}


def test_a_configuration_is_an_object_of_peft_of_the_form_and_budget_that_is_asked():
    model = nn.ModuleDict({"fc": linear(), "last": linear()})
    found = analyze(*changed(model, low_rank), **(ASKED | {"ranks": (2, 4)}))
    assert isinstance(found.config(), peft.LoraConfig)
    assert (found.config().r, found.config(rank=4).r) == (2, 4)
    assert found.config("entries", 4).r == 2
    assert found.config("LoCA").n_frequency == 40 * 2 // 2
    assert found.config("fourierft").target_modules == {"fc", "last"}
    peft_model = peft.get_peft_model(model, found.config())
    assert sorted(peft_model.targeted_module_names) == ["fc", "last"]
    for wrong, said in (
        (("Loka",), "unknown method 'Loka'; did you mean LoRA?"),
        ((None, 3), "unknown rank '3'"),
    ):
        with pytest.raises(InvalidArgumentError, match=re.escape(said)):
            found.config(*wrong)
    several = analyze(*changed(model, low_rank), model, **ASKED)
    assert several.config_source == ""
    with pytest.raises(InvalidArgumentError, match="analyse one of them"):
        several.config()


@pytest.mark.parametrize("with_base", [False, True])
def test_the_modules_of_an_adapter_are_those_of_its_model(tmp_path, with_base):
    model = nn.ModuleDict({"fc": linear(), "block": block()})
    before, after = changed(model, low_rank, but=["block.fc.weight"])
    extract(before, after, "lora", rank=1).save(tmp_path / "adapter")
    base = tmp_path / "base.pt"
    torch.save(before, base)
    sources = [base, tmp_path / "adapter"][0 if with_base else 1 :]
    config = analyze(*sources, **ASKED).config_source
    assert adapted(model, config)[0] == ["block.down", "fc"]


@pytest.mark.parametrize("is_ambiguous", [False, True])
def test_many_names_are_printed_in_short_lines(is_ambiguous):
    torch.manual_seed(0)
    names = [f"model.layers.{i}.self_attn.{kind}_proj" for i in range(8) for kind in "qkv"]
    tuned = {f"{name}.weight": low_rank(20, 20) for name in names}
    if is_ambiguous:
        tuned |= {"fc.weight": low_rank(20, 20), "block.fc.weight": low_rank(20, 20)}
    found = analyze({name: torch.zeros(20, 20) for name in tuned}, tuned, **ASKED)
    lines = found.config_source.splitlines()
    assert max(map(len, lines)) <= 100
    assert ('target_modules="|".join(' in found.config_source) == is_ambiguous
    assert isinstance(found.config().target_modules, str) == is_ambiguous


def test_without_a_module_or_an_error_nothing_is_proposed():
    torch.manual_seed(0)
    pair = {"in_proj_weight": torch.zeros(20, 20)}, {"in_proj_weight": low_rank(20, 20)}
    assert analyze(*pair, **ASKED).config_source == ""
    pair = {"fc.weight": torch.zeros(20, 20)}, {"fc.weight": low_rank(20, 20)}
    none = analyze(*pair, **(ASKED | {"ranks": (11,)}))
    assert (none.errors, none.config_source) == ((), "")


@pytest.mark.parametrize("name", ["ViT", "BERT", "T5", "Mixtral", "DeepSeek-V3", "GPT-2"])
def test_a_proposed_configuration_has_the_names_of_the_loaded_model(tmp_path, name):
    """Whatever the file calls them, and only layers that PEFT can adapt."""
    base, tuned = zoo.pair(name, tmp_path)
    found = analyze(base, tuned, ranks=[1])
    kinds = {"lora": "Lora", "loca": "LoCA|FourierFT", "entries": "Shira"}
    (method,) = (one for one in kinds if re.search(f"({kinds[one]})Config", found.config_source))
    modules = {one.module for one in found.matrices if method in one.adapters}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT sets fan_in_fan_out for Conv1D
        names = adapted(zoo.make(name), found.config_source)[0]
    assert set(names) == modules
    assert not any("relative_attention_bias" in one or "experts" in one for one in names)
