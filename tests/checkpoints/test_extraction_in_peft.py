"""Extracted adapters in PEFT: they change the layers that they name, by the stated error."""

import warnings

import peft
import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

import loca_theory.adapters  # noqa: F401  makes LoCA a method of PEFT
from loca_theory.checkpoints import Extraction, extract
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.transforms import idct2

# Of torch, once per process, when SHiRA makes a sparse tensor.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")


def model_of(modules):
    """A model whose modules have these dotted names."""
    torch.manual_seed(0)
    root = nn.Module()
    for name, module in modules.items():
        parent = root
        *folders, last = name.split(".")
        for folder in folders:
            if not hasattr(parent, folder):
                parent.add_module(folder, nn.Module())
            parent = getattr(parent, folder)
        parent.add_module(last, module)
    return root


def finetuned(model):
    """Other weights for a model: changes of rank 2 and noise, of all its parameters."""
    generator = torch.Generator().manual_seed(1)
    tuned = {}
    for name, value in model.state_dict().items():
        change = 0.05 * torch.randn(value.shape, generator=generator)
        if value.ndim == 2:
            p, q = value.shape
            change += torch.randn(p, 2, generator=generator) @ torch.randn(
                2, q, generator=generator
            )
        tuned[name] = value + change
    return tuned


def loaded(model, folder):
    """The model with an adapter in it; a warning of PEFT, such as of an unused key, is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return peft.PeftModel.from_pretrained(model, folder)


def errors_of(before, after, tuned, names):
    """Relative squared error of the change of each weight."""
    found = {}
    for name in names:
        change = tuned[name] - before[name]
        left = tuned[name] - after[name]
        found[name] = float(left.square().sum() / change.square().sum())
    return found


def round_trip(model, tuned, folder, /, *arguments, **options):
    """Extract, save, load and merge: the result, the weights before and after."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = extract(before, tuned, *arguments, **options)
    found.save(folder)
    after = loaded(model, folder / found.method).merge_and_unload().state_dict()
    return found, before, after


def check(found, before, after, tuned):
    """Adapted weights have the stated errors, and no other weight has changed."""
    stated = {one.name: one.error for one in found.matrices}
    errors = errors_of(before, after, tuned, stated)
    assert errors == pytest.approx(stated, rel=1e-3, abs=1e-6)
    for name, value in before.items():
        if name not in stated:
            torch.testing.assert_close(after[name], value, rtol=0, atol=0)


SUFFIXES = {
    "fc": (24, 20),
    "block.fc": (40, 36),
    "block.xfc": (16, 20),
    "block.0.fc": (24, 28),
    "block.0.out": (20, 28),
}


@pytest.mark.parametrize(
    ("method", "size"),
    [
        ("lora", {"rank": 22}),
        ("lora", {"allocate": 900}),
        ("loca", {"rank": 4}),
        ("loca", {"allocate": 700}),
        ("entries", {"rank": 3}),
    ],
)
@pytest.mark.parametrize("only", [None, r"^fc\.|0\.fc"], ids=["all layers", "two of three"])
def test_a_name_that_ends_another_is_another_layer(tmp_path, method, size, only):
    """Different sizes for ``fc`` and ``block.fc``, or no adapter at all for one of them."""
    model = model_of({name: nn.Linear(q, p, bias=False) for name, (p, q) in SUFFIXES.items()})
    tuned = finetuned(model)
    found, before, after = round_trip(model, tuned, tmp_path, method, include=only, **size)
    assert len({one.numbers for one in found.matrices}) > 1
    assert {one.name for one in found.matrices} == {
        f"{name}.weight" for name in SUFFIXES if only is None or name in ("fc", "block.0.fc")
    }
    check(found, before, after, tuned)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("method", ["lora", "loca", "entries"])
def test_the_error_includes_the_rounding_of_the_stored_numbers(tmp_path, method, dtype):
    model = model_of({"fc": nn.Linear(20, 24, bias=False)})
    tuned = finetuned(model)
    size = {"rank": 10 if method == "entries" else 20}
    found, before, after = round_trip(model, tuned, tmp_path, method, dtype=dtype, **size)
    (row,) = found.matrices
    exact = extract(before, tuned, method, **size).matrices[0].error
    # Two factors, each rounded by at most half a unit in the last place.
    unit = torch.finfo(getattr(torch, dtype)).eps / 2
    assert (unit / 10) ** 2 < row.error - exact < (4 * unit) ** 2
    stored = found.adapters[method].tensors.values()
    assert {one.dtype for one in stored if one.is_floating_point()} == {getattr(torch, dtype)}
    check(found, before, after, tuned)


class Tiny(nn.Module):
    """Embedding, norm, layers and a head, which can be run."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 20)
        self.norm = nn.LayerNorm(20)
        self.up = nn.Linear(20, 24)
        self.down = nn.Linear(24, 20)
        self.score = nn.Linear(20, 3)

    def forward(self, tokens):
        hidden = self.norm(self.embed(tokens))
        return self.score(hidden + self.down(self.up(hidden).tanh()))


TOKENS = torch.arange(11)


def test_plain_entries_are_the_largest_and_only_as_many_as_fit(tmp_path):
    layers = {"fc": nn.Linear(20, 24), "small": nn.Linear(3, 24)}
    model = model_of({**layers, "turned": Conv1D(24, 20)})
    tuned = finetuned(model)
    found, before, after = round_trip(model, tuned, tmp_path, "entries", rank=4, model=model)
    assert [one.name for one in found.matrices] == ["fc.weight"]
    assert {one.name: one.reason for one in found.skipped if one.name.endswith("weight")} == {
        "small.weight": "too small for r = 4: SHiRA would store 108 of 72 entries",
        "turned.weight": "Conv1D: SHiRA adapts nn.Linear only",
    }
    change = (tuned["fc.weight"] - before["fc.weight"]).flatten()
    smallest = change.square().sort().values[: 24 * 20 - 4 * 44].sum()
    assert found.error == pytest.approx(float(smallest / change.square().sum()), rel=1e-5)
    check(found, before, after, tuned)


@pytest.mark.parametrize("method", ["lora", "loca", "entries"])
def test_an_adapter_is_applied_as_if_it_had_been_saved_and_loaded(tmp_path, method):
    torch.manual_seed(0)
    model, other = Tiny(), Tiny()
    other.load_state_dict(model.state_dict())
    found = extract(model, finetuned(model), method, rank=2, save_modules="norm")
    found.save(tmp_path)
    expected = loaded(other, tmp_path / method)(TOKENS)
    torch.testing.assert_close(found.apply(model)(TOKENS), expected)
    kinds = {"lora": "LORA", "loca": "LOCA", "entries": "SHIRA"}
    assert found.config.peft_type == kinds[method]
    assert found.state_dict().keys() == found.adapters[method].tensors.keys()


def test_an_adapter_that_does_not_fit_the_model_is_said():
    model = model_of({"up": nn.Linear(20, 24)})
    found = extract(model, finetuned(model), "lora", rank=2)
    with pytest.raises(ResourceError, match="the adapter does not fit Module: Target modules"):
        found.apply(model_of({"down": nn.Linear(20, 24)}))


def test_of_two_adapters_one_has_to_be_named():
    torch.manual_seed(0)
    model = model_of({"up": nn.Linear(20, 24), "down": nn.Linear(24, 20)})
    tuned = finetuned(model)
    tuned["up.weight"] = model.up.weight.detach() + idct2(torch.eye(24, 20))
    found = extract(model, tuned, "best", rank=2)
    for ask in (lambda: found.config, found.state_dict, lambda: found.apply(model)):
        with pytest.raises(InvalidArgumentError, match=r"two adapters, lora and loca; take one"):
            ask()
    assert found.adapters["lora"].peft_config().peft_type == "LORA"


def test_a_mixed_result_is_two_adapters_that_are_loaded_one_after_the_other(tmp_path):
    torch.manual_seed(0)
    model = Tiny()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    tuned = finetuned(model)
    # Eight cosines, of rank 8: LoCA stores them exactly. The others are of rank 2.
    p, q = before["up.weight"].shape
    spectrum = torch.diag_embed(torch.ones(8), dim1=0, dim2=1)
    spectrum = nn.functional.pad(spectrum, (0, q - 8, 0, p - 8))
    tuned["up.weight"] = before["up.weight"] + idct2(spectrum)
    for name in ("down.weight", "score.weight"):
        rank_2 = torch.randn(before[name].shape[0], 2) @ torch.randn(2, before[name].shape[1])
        tuned[name] = before[name] + rank_2
    found = extract(before, tuned, "best", rank=2, save_modules="norm")
    assert {one.name: one.method for one in found.matrices} == {
        "up.weight": "loca", "down.weight": "lora", "score.weight": "lora",
    }  # fmt: skip
    for row in zip(found.matrices, *(extract(before, tuned, one, rank=2).matrices
                                     for one in ("lora", "loca")), strict=True):  # fmt: skip
        assert row[0].error == pytest.approx(min(row[1].error, row[2].error), rel=1e-6)
    found.save(tmp_path)
    adapted = loaded(model, tmp_path / "lora").merge_and_unload()
    adapted = loaded(adapted, tmp_path / "loca")
    after = adapted.merge_and_unload().state_dict()
    for name in (*(one.name for one in found.matrices), "norm.weight", "norm.bias"):
        torch.testing.assert_close(after[name], tuned[name], rtol=1e-4, atol=1e-4)
    for method in ("lora", "loca"):
        assert "merge_and_unload" in (tmp_path / method / "README.md").read_text()
    back = Extraction.load(tmp_path)
    assert back == found
    for method, adapter in found.adapters.items():
        assert back.adapters[method].config == adapter.config
        assert back.adapters[method].tensors.keys() == adapter.tensors.keys()
    # A result of one method in the same folder replaces both adapters.
    extract(before, tuned, "loca", rank=1).save(tmp_path)
    assert not list((tmp_path / "lora").iterdir())


@pytest.mark.parametrize("method", ["lora", "loca"])
def test_a_module_that_is_stored_whole_is_not_another_whose_name_ends_like_it(tmp_path, method):
    modules = {
        "norm": nn.LayerNorm(20),
        "block.norm": nn.LayerNorm(20),
        "block.fcnorm": nn.Linear(20, 24, bias=False),
        "fc": nn.Linear(20, 24, bias=False),
    }
    model = model_of(modules)
    tuned = finetuned(model)
    size = {"rank": 20} if method == "lora" else {"components": 480}
    found, before, after = round_trip(
        model, tuned, tmp_path, method, **size, save_modules=r"^norm\."
    )
    assert [one.name for one in found.matrices] == ["block.fcnorm.weight", "fc.weight"]
    assert found.adapters[method].config["modules_to_save"] == ["base_model.model.norm"]
    assert not {one.name for one in found.skipped} & {"norm.weight", "norm.bias"}
    assert "norm" in (tmp_path / method / "README.md").read_text()
    for name, value in after.items():
        expected = before[name] if name.startswith("block.norm") else tuned[name]
        torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-4)


def test_a_convolution_has_lora_factors(tmp_path):
    conv = nn.Conv1d(6, 20, 4, stride=2, bias=False)
    model = model_of({"conv": conv, "fc": nn.Linear(20, 24, bias=False)})
    tuned = finetuned(model)
    found, before, after = round_trip(model, tuned, tmp_path, "lora", rank=3)
    assert [one.name for one in found.matrices] == ["conv.weight", "fc.weight"]
    check(found, before, after, tuned)
    left_out = {one.name: one.reason for one in extract(before, tuned, rank=3).skipped}
    assert left_out == {"conv.weight": "convolution: LoCA adapts linear layers only"}
    mixed = extract(before, tuned, "best", rank=3)
    assert mixed.matrices[0].method == "lora"
    with pytest.raises(InvalidArgumentError, match=r"convolutions \(conv.weight\); leave them out"):
        extract(before, tuned, "lora", rank=3, serve="llama.cpp")
    assert "llama.cpp and vLLM read no LoRA" in (tmp_path / "lora" / "README.md").read_text()
