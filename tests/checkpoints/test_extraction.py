"""A full fine-tune as an adapter: the best of its kind, in its folder, in PEFT and elsewhere."""

import copy
import json
import re
import warnings
from collections import OrderedDict
from dataclasses import replace
from functools import partial

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import loca_theory.adapters  # noqa: F401  makes LoCA a method of PEFT
from loca_theory.checkpoints import Extraction, demo_pair, extract
from loca_theory.checkpoints.form import folder as adapter_folder
from loca_theory.checkpoints.form.folder import check_folder
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.transforms import idct2
from loca_theory.transforms.matrices import dct_matrix
from tests.checkpoints.files import normal
from tests.checkpoints.zoo import fine_tuned

# Of torch, once per process, when SHiRA makes a sparse tensor.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")


LAYERS = {"a.0.q.weight": (24, 20), "a.0.up.weight": (48, 20)}


def checkpoints():
    base = {name: normal(*shape) for name, shape in LAYERS.items()}
    return base, {
        name: weight + 0.1 * normal(*weight.shape, seed=1) for name, weight in base.items()
    }


def written(folder, size=10):
    """A folder with an adapter that was extracted to it."""
    extraction = extract(*checkpoints(), "loca", components=size)
    extraction.save(folder / "adapter")
    return extraction, folder / "adapter"


def test_an_adapter_can_be_replaced_by_another_also_if_it_was_cut_short(tmp_path, monkeypatch):
    """Whatever file it was at; hidden files, and those of a killed process, do not matter."""
    extraction, folder = written(tmp_path)
    weights = folder / "loca" / "adapter_model.safetensors"
    first, partial_files = weights.read_bytes(), {".gitattributes", "README.0.md.partial"}
    for name in partial_files:
        (folder / "loca" / name).write_text("not of an adapter")
    write, (adapter,) = adapter_folder.write_atomically, extraction.adapters.values()
    for last in range(3):
        left = iter(range(last))

        def breaks_off(path, content, left=left):
            if next(left, None) is None:
                raise RuntimeError("cut short")
            write(path, content)

        monkeypatch.setattr(adapter_folder, "write_atomically", breaks_off)
        other = replace(adapter, config={**adapter.config, "n_frequency": last})
        with pytest.raises(RuntimeError, match="cut short"):
            replace(extraction, adapters={"loca": other}).save(folder)
        monkeypatch.setattr(adapter_folder, "write_atomically", write)
        assert check_folder(folder, "loca") == folder
        written(tmp_path, size=20 + last)
    assert weights.read_bytes() != first
    assert {path.name for path in (folder / "loca").iterdir()} - partial_files == {
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    assert (folder / "extract.parquet").is_file()
    assert "import loca_theory.adapters" in (folder / "loca" / "README.md").read_text()


FOREIGN = ["model.safetensors", "README.md", "adapter_model.bin", "adapter_model.safetensors"]


@pytest.mark.parametrize("name", FOREIGN)
def test_what_no_extraction_wrote_is_neither_replaced_nor_joined(tmp_path, name):
    """Nor an adapter that was trained since, which PEFT has saved."""
    folder = tmp_path / "adapter" / "loca"
    folder.mkdir(parents=True)
    save_file({"fc.weight": torch.ones(2)}, folder / name, {"format": "pt"})
    content = (folder / name).read_bytes()
    with pytest.raises(
        ResourceError, match=rf"loca holds {re.escape(name)}, which no .*; choose a new folder"
    ):
        written(tmp_path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {name: content}
    with pytest.raises(ResourceError, match=rf"loca holds {re.escape(name)}, which no .*"):
        check_folder(folder.parent, "best")
    assert check_folder(folder.parent, "lora") == folder.parent


@pytest.mark.parametrize("method", ["loca", "lora", "entries"])
@pytest.mark.parametrize("scale", [1, 1e30, 1e-30, 1e-40, 3e-44], ids=str)
def test_the_best_adapter_is_stored_also_if_squares_overflow_or_vanish(method, scale):
    """The largest coefficients or entries, or the truncated decomposition, against dense ones."""
    w = (normal(24, 20).double() * scale).float()
    extraction = extract({"q.weight": torch.zeros(24, 20)}, {"q.weight": w}, method, rank=3)
    (row,) = extraction.matrices
    delta = w.double() / scale
    stored = {name.split(".", 3)[-1]: tensor for name, tensor in extraction.state_dict().items()}
    if method == "lora":
        assert stored["lora_A.weight"].shape == (3, 20)
        rebuilt = stored["lora_B.weight"].double() @ stored["lora_A.weight"].double() / scale
        units, count = torch.linalg.svdvals(delta), 3
    elif method == "entries":
        rebuilt = torch.zeros(24, 20, dtype=torch.float64)
        rebuilt[tuple(stored["shira_indices"].long())] = stored["shira_weight"].double() / scale
        units, count = delta, 3 * 44
    else:
        spectrum = torch.zeros(24, 20, dtype=torch.float64)
        coefficients = stored["loca_spectrum.coefficients"].double() / scale
        spectrum[tuple(stored["loca_spectrum.indices"].T)] = coefficients
        rebuilt = dct_matrix(24).T @ spectrum @ dct_matrix(20)
        units, count = dct_matrix(24) @ delta @ dct_matrix(20).T, 3 * 44 // 2
    energy = delta.square().sum()
    error = float((delta - rebuilt).square().sum() / energy)
    # LoCA spends half of the budget of rank 3 on locations.
    assert row.numbers == (66 if method == "loca" else 132)
    assert row.error == pytest.approx(extraction.error) == pytest.approx(error, rel=1e-5)
    residual = units.square().flatten().sort(descending=True).values[count:].sum() / energy
    # The smallest positive float32 numbers have few digits.
    assert error == pytest.approx(float(residual), rel=1e-4 if scale > 1e-39 else 1)
    assert row.energy == pytest.approx(float(energy) * scale**2, rel=1e-5)


@pytest.mark.parametrize("method", ["loca", "lora", "entries"])
def test_what_has_no_adapter_is_named_with_the_reason(method):
    names = ("fits", "infinite", "unchanged", "large", "small")
    base = {f"{name}.weight": torch.zeros(20, 24) for name in names}
    tuned = {name: normal(20, 24).double() for name in base}
    tuned["infinite.weight"][0, 0] = float("inf")
    tuned["unchanged.weight"] *= 0
    tuned["large.weight"] *= 1e300
    tuned["small.weight"] *= 1e-300
    extraction = extract(base, tuned, method, rank=2)
    assert [row.name for row in extraction.matrices] == ["fits.weight"]
    assert {
        skipped.name: (skipped.damaged, skipped.reason.partition(",")[0])
        for skipped in extraction.skipped
    } == {
        "infinite.weight": (True, "not finite: 1 of 480 entries are NaN or infinite"),
        "unchanged.weight": (False, "unchanged by the fine-tune"),
        "large.weight": (False, "too large or too small: an adapter holds float32 numbers"),
        "small.weight": (False, "too large or too small: an adapter holds float32 numbers"),
    }


# --- in PEFT and other engines ---


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
    extraction = extract(before, tuned, *arguments, **options)
    extraction.save(folder)
    after = loaded(model, folder / extraction.method).merge_and_unload().state_dict()
    stated = {row.name: row.error for row in extraction.matrices}
    stored_modules = extraction.adapters[extraction.method].config["modules_to_save"] or ()
    for name, value in before.items():
        if name in stated:
            left, change = tuned[name] - after[name], tuned[name] - value
            error = float(left.square().sum() / change.square().sum())
            assert error == pytest.approx(stated[name], rel=1e-3, abs=1e-6)
        else:
            is_whole = f"base_model.model.{name.rpartition('.')[0]}" in stored_modules
            assert torch.equal(after[name], tuned[name] if is_whole else value)
    return extraction, before, after


@pytest.mark.parametrize(
    ("method", "size"),
    [
        ("lora", {"rank": 22}),
        ("lora", {"allocate": 900}),
        ("loca", {"allocate": 700}),
        ("entries", {"rank": 3}),
    ],
)
@pytest.mark.parametrize("only", [None, r"^fc\.|0\.fc\."], ids=["all layers", "two of three"])
def test_a_name_that_ends_another_is_another_module(tmp_path, method, size, only):
    """Different sizes for ``fc`` and ``block.fc``, or no adapter at all for one of them.

    Of ``norm``, ``block.norm`` and ``block.fcnorm``, only the first is stored whole.
    """
    linear, norm = partial(nn.Linear, bias=False), nn.LayerNorm(20)
    inner = nn.ModuleDict({"fc": linear(28, 24), "fcnorm": linear(28, 20)})
    block = {"fc": linear(36, 40), "xfc": linear(20, 16), "norm": nn.LayerNorm(20), "0": inner}
    model = nn.ModuleDict({"fc": linear(20, 24), "block": nn.ModuleDict(block), "norm": norm})
    extraction, before, _ = round_trip(
        model, tuned_weights(model), tmp_path, method, include=only, save_modules=r"^norm\.", **size
    )
    assert len({row.numbers for row in extraction.matrices}) > 1
    layers = {name for name, tensor in before.items() if tensor.ndim > 1}
    expected = {"fc.weight", "block.0.fc.weight"} if only else layers
    assert {row.name for row in extraction.matrices} == expected
    assert extraction.adapters[method].config["modules_to_save"] == ["base_model.model.norm"]
    assert not {skipped.name for skipped in extraction.skipped} & {"norm.weight", "norm.bias"}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("method", ["lora", "loca", "entries"])
def test_the_error_includes_the_rounding_of_the_stored_numbers(tmp_path, method, dtype):
    model = nn.ModuleDict({"fc": nn.Linear(20, 24, bias=False)})
    tuned, rank = tuned_weights(model), 10 if method == "entries" else 20
    extraction, before, _ = round_trip(model, tuned, tmp_path, method, dtype=dtype, rank=rank)
    exact = extract(before, tuned, method, rank=rank).error
    # Two factors, each rounded by at most half a unit in the last place.
    unit = torch.finfo(getattr(torch, dtype)).eps / 2
    assert (unit / 10) ** 2 < extraction.error - exact < (4 * unit) ** 2
    stored = extraction.adapters[method].tensors.values()
    assert {tensor.dtype for tensor in stored if tensor.is_floating_point()} == {
        getattr(torch, dtype)
    }


def tiny():
    """Embedding, norm, layers and a head, which can be run."""
    torch.manual_seed(0)
    return nn.Sequential(
        OrderedDict(
            embed=nn.Embedding(11, 20),
            norm=nn.LayerNorm(20),
            up=nn.Linear(20, 24),
            tanh=nn.Tanh(),
            down=nn.Linear(24, 20),
            score=nn.Linear(20, 2),
        )
    )


TOKENS = torch.arange(11)


@pytest.mark.parametrize("method", ["lora", "loca", "entries"])
def test_an_adapter_is_applied_as_if_it_had_been_saved_and_loaded(tmp_path, method):
    model = tiny()
    model.name_or_path = "org/model"
    extraction = extract(model, tuned_weights(model), method, rank=2, save_modules="norm")
    extraction.save(tmp_path)
    card = (tmp_path / method / "README.md").read_text()
    assert 'base_model: "org/model"' in card
    assert 'base_model = ...  # load the model that was fine-tuned: "org/model"' in card
    assert extraction.config.base_model_name_or_path == "org/model"
    expected = loaded(tiny(), tmp_path / method)(TOKENS)
    torch.testing.assert_close(extraction.apply(model)(TOKENS), expected)
    small = [skipped.reason for skipped in extraction.skipped if skipped.name == "score.weight"]
    said = "too small for r = 2: SHiRA would store 44 of 40 entries"
    assert small == ([said] if method == "entries" else [])
    kinds = {"lora": "LORA", "loca": "LOCA", "entries": "SHIRA"}
    assert extraction.config.peft_type == kinds[method]
    assert extraction.state_dict().keys() == extraction.adapters[method].tensors.keys()
    unfit = nn.ModuleDict({"other": nn.Linear(20, 24)})
    unfit.name_or_path = "org/model"
    with pytest.raises(ResourceError, match="the adapter does not fit ModuleDict: Target modules"):
        extraction.apply(unfit)


def test_the_card_of_files_loads_them_into_a_module_of_ones_own(tmp_path):
    model, sides = tiny(), [tmp_path / f"{name}.safetensors" for name in ("base", "tuned")]
    for weights, path in zip((model.state_dict(), tuned_weights(model)), sides, strict=True):
        save_file(weights, path)
    extraction = extract(*sides, "lora", rank=2)
    extraction.save(tmp_path)
    card = (tmp_path / "lora" / "README.md").read_text(encoding="utf-8")
    assert "base_model:" not in card
    code = card.partition("```python\n")[2].partition("```")[0]
    code = code.replace("base_model = ...", "base_model = module")
    scope = {"module": copy.deepcopy(model)}
    with torch.no_grad():
        scope["module"].up.weight.zero_()
    exec(code.replace("PATH_OR_NAME_OF_THIS_ADAPTER", str(tmp_path / "lora")), scope)
    model.name_or_path = str(sides[0])  # which PEFT compares with the adapter's
    torch.testing.assert_close(scope["model"](TOKENS), extraction.apply(model)(TOKENS))


def test_a_mixed_result_is_two_adapters_that_are_loaded_one_after_the_other(tmp_path):
    model = tiny()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    tuned = tuned_weights(model)
    # Eight cosines, of rank 8: LoCA stores them exactly. The others are of rank 2.
    spectrum = nn.functional.pad(torch.eye(8), (0, 12, 0, 16))
    tuned["up.weight"] = before["up.weight"] + idct2(spectrum)
    for name, p, q in (("down.weight", 20, 24), ("score.weight", 2, 20)):
        tuned[name] = before[name] + torch.randn(p, 2) @ torch.randn(2, q)
    extraction = extract(before, tuned, "best", rank=2, save_modules="norm")
    methods = {row.name: (row.method, row.error < 1e-6) for row in extraction.matrices}
    assert methods == {
        "up.weight": ("loca", True),
        "down.weight": ("lora", True),
        "score.weight": ("lora", True),
    }
    for ask in (lambda: extraction.config, extraction.state_dict, lambda: extraction.apply(model)):
        with pytest.raises(InvalidArgumentError, match=r"two adapters, lora and loca; take one"):
            ask()
    config = extraction.adapters["lora"].peft_config()
    assert (config.peft_type, config.base_model_name_or_path) == ("LORA", None)
    extraction.save(tmp_path)
    back = Extraction.load(tmp_path)
    assert back == extraction
    assert {name: adapter.config for name, adapter in back.adapters.items()} == {
        name: adapter.config for name, adapter in extraction.adapters.items()
    }
    assert extraction.verify(model).disagreements == []
    adapted = loaded(model, tmp_path / "lora").merge_and_unload()
    after = loaded(adapted, tmp_path / "loca").merge_and_unload().state_dict()
    for name in (*methods, "norm.weight", "norm.bias"):
        torch.testing.assert_close(after[name], tuned[name], rtol=1e-4, atol=1e-4)
    for method in ("lora", "loca"):
        assert "merge_and_unload" in (tmp_path / method / "README.md").read_text()
    # A result of one method in the same folder replaces both adapters.
    extract(before, tuned, "loca", rank=1).save(tmp_path)
    assert not list((tmp_path / "lora").iterdir())


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
    extraction = extract(*demo_pair(), "lora", serve=serve, **SIZES[size])
    extraction.save(tmp_path)
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
    for row in extraction.matrices:
        if not row.numbers:
            continue
        module = row.name.removesuffix(".weight")
        a, b = (
            factors[f"base_model.model.{module}.lora_{letter}.weight"].double() for letter in "AB"
        )
        pattern = "^" + module.replace(".", r"\.")
        assert config["rank_pattern"].get(pattern, config["r"]) == len(a)
        change = after[row.name].double() - before[row.name].double()
        for rank in {len(a), config["r"]} if is_uniform else {len(a)}:
            left = change - config["lora_alpha"] / rank * (b @ a)
            error = float(left.square().sum() / change.square().sum())
            assert error == pytest.approx(row.error, rel=1e-5, abs=1e-6)
        ranks.add(len(a))
    assert (len(ranks) == 1) == is_uniform
