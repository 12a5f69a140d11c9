"""Extracted adapters in PEFT and other engines: the stated errors, of the layers that they name."""

import copy
import json
import warnings
from functools import partial

import peft
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers.pytorch_utils import Conv1D

import loca_theory.adapters  # noqa: F401  makes LoCA a method of PEFT
from loca_theory.checkpoints import Extraction, demo_pair, extract
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.transforms import idct2
from tests.checkpoints.zoo import fine_tuned

# Of torch, once per process, when SHiRA makes a sparse tensor.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")


def model_of(**modules):
    torch.manual_seed(0)
    return nn.ModuleDict(modules)


def tuned_weights(model):
    return fine_tuned(copy.deepcopy(model)).state_dict()


def loaded(model, folder):
    """The model with an adapter in it; a warning of PEFT, such as of an unused key, is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return peft.PeftModel.from_pretrained(model, folder)


def round_trip(model, tuned, folder, /, *arguments, **options):
    """Extract, save, load and merge: the result, the weights before and after.

    Adapted weights have the stated errors, and no other weight has changed.
    """
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = extract(before, tuned, *arguments, **options)
    found.save(folder)
    after = loaded(model, folder / found.method).merge_and_unload().state_dict()
    stated = {one.name: one.error for one in found.matrices}
    whole = found.adapters[found.method].config["modules_to_save"] or ()
    for name, value in before.items():
        if name in stated:
            left, change = tuned[name] - after[name], tuned[name] - value
            error = float(left.square().sum() / change.square().sum())
            assert error == pytest.approx(stated[name], rel=1e-3, abs=1e-6)
        else:
            is_whole = f"base_model.model.{name.rpartition('.')[0]}" in whole
            assert torch.equal(after[name], tuned[name] if is_whole else value)
    return found, before, after


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
    linear = partial(nn.Linear, bias=False)
    inner = nn.ModuleDict({"fc": linear(28, 24), "out": linear(28, 20)})
    block = nn.ModuleDict({"fc": linear(36, 40), "xfc": linear(20, 16), "0": inner})
    model = model_of(fc=linear(20, 24), block=block)
    found, before, _ = round_trip(
        model, tuned_weights(model), tmp_path, method, include=only, **size
    )
    assert len({one.numbers for one in found.matrices}) > 1
    expected = {"fc.weight", "block.0.fc.weight"} if only else set(before)
    assert {one.name for one in found.matrices} == expected


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("method", ["lora", "loca", "entries"])
def test_the_error_includes_the_rounding_of_the_stored_numbers(tmp_path, method, dtype):
    model = model_of(fc=nn.Linear(20, 24, bias=False))
    tuned = tuned_weights(model)
    size = {"rank": 10 if method == "entries" else 20}
    found, before, _ = round_trip(model, tuned, tmp_path, method, dtype=dtype, **size)
    exact = extract(before, tuned, method, **size).error
    # Two factors, each rounded by at most half a unit in the last place.
    unit = torch.finfo(getattr(torch, dtype)).eps / 2
    assert (unit / 10) ** 2 < found.error - exact < (4 * unit) ** 2
    stored = found.adapters[method].tensors.values()
    assert {one.dtype for one in stored if one.is_floating_point()} == {getattr(torch, dtype)}


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
    model = model_of(fc=nn.Linear(20, 24), small=nn.Linear(3, 24), turned=Conv1D(24, 20))
    tuned = tuned_weights(model)
    found, before, _ = round_trip(model, tuned, tmp_path, "entries", rank=4, model=model)
    assert [one.name for one in found.matrices] == ["fc.weight"]
    assert {one.name: one.reason for one in found.skipped if one.name.endswith("weight")} == {
        "small.weight": "too small for r = 4: SHiRA would store 108 of 72 entries",
        "turned.weight": "Conv1D: SHiRA adapts nn.Linear only",
    }
    change = (tuned["fc.weight"] - before["fc.weight"]).flatten()
    smallest = change.square().sort().values[: 24 * 20 - 4 * 44].sum()
    assert found.error == pytest.approx(float(smallest / change.square().sum()), rel=1e-5)


@pytest.mark.parametrize("method", ["lora", "loca", "entries"])
def test_an_adapter_is_applied_as_if_it_had_been_saved_and_loaded(tmp_path, method):
    torch.manual_seed(0)
    model = Tiny()
    other = copy.deepcopy(model)
    found = extract(model, tuned_weights(model), method, rank=2, save_modules="norm")
    found.save(tmp_path)
    expected = loaded(other, tmp_path / method)(TOKENS)
    torch.testing.assert_close(found.apply(model)(TOKENS), expected)
    kinds = {"lora": "LORA", "loca": "LOCA", "entries": "SHIRA"}
    assert found.config.peft_type == kinds[method]
    assert found.state_dict().keys() == found.adapters[method].tensors.keys()
    with pytest.raises(ResourceError, match="the adapter does not fit ModuleDict: Target modules"):
        found.apply(model_of(other=nn.Linear(20, 24)))


def test_a_mixed_result_is_two_adapters_that_are_loaded_one_after_the_other(tmp_path):
    torch.manual_seed(0)
    model = Tiny()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    tuned = tuned_weights(model)
    # Eight cosines, of rank 8: LoCA stores them exactly. The others are of rank 2.
    spectrum = nn.functional.pad(torch.eye(8), (0, 12, 0, 16))
    tuned["up.weight"] = before["up.weight"] + idct2(spectrum)
    for name, p, q in (("down.weight", 20, 24), ("score.weight", 3, 20)):
        tuned[name] = before[name] + torch.randn(p, 2) @ torch.randn(2, q)
    found = extract(before, tuned, "best", rank=2, save_modules="norm")
    assert {one.name: one.method for one in found.matrices} == {
        "up.weight": "loca", "down.weight": "lora", "score.weight": "lora",
    }  # fmt: skip
    for row in zip(found.matrices, *(extract(before, tuned, one, rank=2).matrices
                                     for one in ("lora", "loca")), strict=True):  # fmt: skip
        assert row[0].error == pytest.approx(min(row[1].error, row[2].error), rel=1e-6)
    for ask in (lambda: found.config, found.state_dict, lambda: found.apply(model)):
        with pytest.raises(InvalidArgumentError, match=r"two adapters, lora and loca; take one"):
            ask()
    assert found.adapters["lora"].peft_config().peft_type == "LORA"
    found.save(tmp_path)
    adapted = loaded(model, tmp_path / "lora").merge_and_unload()
    after = loaded(adapted, tmp_path / "loca").merge_and_unload().state_dict()
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


@pytest.mark.parametrize(
    ("method", "size"), [("lora", {"rank": 20}), ("loca", {"components": 480})]
)
def test_a_module_that_is_stored_whole_is_not_another_whose_name_ends_like_it(
    tmp_path, method, size
):
    fcnorm = nn.Linear(20, 24, bias=False)
    block = nn.ModuleDict({"norm": nn.LayerNorm(20), "fcnorm": fcnorm})
    model = model_of(norm=nn.LayerNorm(20), block=block, fc=nn.Linear(20, 24, bias=False))
    tuned = tuned_weights(model)
    found, _, _ = round_trip(model, tuned, tmp_path, method, **size, save_modules=r"^norm\.")
    assert {one.name for one in found.matrices} == {"block.fcnorm.weight", "fc.weight"}
    assert found.error < 1e-6
    assert found.adapters[method].config["modules_to_save"] == ["base_model.model.norm"]
    assert not {one.name for one in found.skipped} & {"norm.weight", "norm.bias"}
    assert "norm" in (tmp_path / method / "README.md").read_text()


def test_a_convolution_has_lora_factors(tmp_path):
    conv = nn.Conv1d(6, 20, 4, stride=2, bias=False)
    model = model_of(conv=conv, fc=nn.Linear(20, 24, bias=False))
    tuned = tuned_weights(model)
    found, before, _ = round_trip(model, tuned, tmp_path, "lora", rank=3)
    assert [one.name for one in found.matrices] == ["conv.weight", "fc.weight"]
    left_out = {one.name: one.reason for one in extract(before, tuned, rank=3).skipped}
    assert left_out == {"conv.weight": "convolution: LoCA adapts linear layers only"}
    mixed = extract(before, tuned, "best", rank=3)
    assert mixed.matrices[0].method == "lora"
    with pytest.raises(InvalidArgumentError, match=r"convolutions \(conv.weight\); leave them out"):
        extract(before, tuned, "lora", rank=3, serve="llama.cpp")
    assert "llama.cpp and vLLM read no LoRA" in (tmp_path / "lora" / "README.md").read_text()


SIZES = {
    "uniform": {"rank": 5},
    "some clipped": {"rank": 8},  # the head has 5 rows
    "split": {"allocate": 9000},
    "half": {"allocate": "40kB", "dtype": "float16"},
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("serve", [None, "vllm"])
def test_every_engine_that_the_card_names_gets_the_same_increment(tmp_path, size, serve):
    """PEFT divides α by a rank in a pattern or by r, llama.cpp by the tensors', vLLM by r."""
    found = extract(*demo_pair(), "lora", serve=serve, **SIZES[size])
    found.save(tmp_path)
    folder = tmp_path / "lora"
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    factors = load_file(folder / "adapter_model.safetensors")
    card = (folder / "README.md").read_text(encoding="utf-8")
    is_uniform = serve == "vllm" or size == "uniform"
    assert ("PEFT, llama.cpp and vLLM read it" in card) == is_uniform
    # vLLM reads no modules that are stored whole, and llama.cpp no patterns of α.
    assert (config["modules_to_save"], config.get("alpha_pattern") or None) == (None, None)
    before, after = map(load_file, demo_pair())
    ranks = set()
    for row in found.matrices:
        if not row.numbers:
            continue
        module = row.name.removesuffix(".weight")
        a, b = (factors[f"base_model.model.{module}.lora_{one}.weight"].double() for one in "AB")
        pattern = "^" + module.replace(".", r"\.")
        assert config["rank_pattern"].get(pattern, config["r"]) == len(a)
        change = after[row.name].double() - before[row.name].double()
        for rank in {len(a), config["r"]} if is_uniform else {len(a)}:
            left = change - config["lora_alpha"] / rank * (b @ a)
            error = float(left.square().sum() / change.square().sum())
            assert error == pytest.approx(row.error, rel=1e-5, abs=1e-6)
        ranks.add(len(a))
    assert (len(ranks) == 1) == is_uniform
