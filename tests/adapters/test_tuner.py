"""LoCA as a method of PEFT: what its users call, on small models of several families."""

import copy
import re
import sys
from collections import OrderedDict
from contextlib import nullcontext
from importlib import import_module, metadata, reload

import pytest
import torch
from peft import (
    PeftConfig,
    PeftModel,
    PeftType,
    TaskType,
    get_peft_model,
    get_peft_model_state_dict,
    inject_adapter_in_model,
    save_as_lora,
)
from torch import nn

from loca_theory.adapters import (
    CosineSpectrum,
    LoCAConfig,
    LoCALayer,
    LoCALinear,
    LoCAModel,
    follow,
)
from loca_theory.adapters.tuner import registration
from loca_theory.errors import InvalidArgumentError, ResourceError

from .tiny_models import gpt2, llama, of_peft, opt, roberta

pytestmark = of_peft

B = 6
SEARCHES = {"alternating_steps": 600, "location_lr": 0.1}
LAYER = "model.layers.0.self_attn.q_proj"


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    torch.manual_seed(0)


FAMILIES = {"Llama": llama, "OPT": opt, "GPT-2": gpt2, "RoBERTa": roberta}
TASKS = {"RoBERTa": TaskType.SEQ_CLS}
# A linear layer, and one that stores its weight transposed, with a bias.
BOTH_KINDS = pytest.mark.parametrize("family", ["Llama", "GPT-2"])


def config_of(family="Llama", **options):
    options = {"n_frequency": B, "fan_in_fan_out": family == "GPT-2"} | options
    return LoCAConfig(task_type=TASKS.get(family, TaskType.CAUSAL_LM), **options)


def adapted(family="Llama", **options):
    return get_peft_model(FAMILIES[family](), config_of(family, **options)).eval()


def batch():
    ids = torch.randint(4, 40, (2, 7), generator=torch.Generator().manual_seed(2))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def logits(model):
    with torch.no_grad():
        return model(**batch()).logits


def spectra(model, adapter="default"):
    return {
        name: layer.spectrum(adapter)
        for name, layer in model.named_modules()
        if isinstance(layer, LoCALayer) and layer.spectrum(adapter) is not None
    }


def targets(model, adapter="default"):
    return {name.split("base_model.model.")[-1] for name in spectra(model, adapter)}


def trainable(model):
    return {name for name, p in model.named_parameters() if p.requires_grad}


def randomise(model, adapter="default", *, shared=False):
    """Coefficients as after training and, on request, components that share a location."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for spectrum in spectra(model, adapter).values():
            a = spectrum.coefficients
            a.copy_(torch.randn(a.shape, generator=generator))
            if shared:
                spectrum.set_indices(spectrum.indices[[0, 0, 0, *range(3, len(a))]])
    return model


def enter(model, phase):
    """Followed, in this phase until the optimiser steps, or to the end; returns the optimiser."""
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    follow(model, optimizer)
    for spectrum in (m for m in model.modules() if isinstance(m, CosineSpectrum)):
        if phase is None:
            spectrum.finish_search()
        elif spectrum.search is not None:
            spectrum.search.phase = phase
    return optimizer


# A float32 pass through two layers is some forty roundings of 6e-8 in sequence, of values up to 10,
# that what follows amplifies up to fourfold. What an adapter changes is a hundred times as large.
ROUNDING = 1e-4


def close(a, b, tolerance=ROUNDING):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def differ(a, b):
    return not torch.allclose(a, b, rtol=100 * ROUNDING, atol=100 * ROUNDING)


# --- configuration ---


@pytest.mark.parametrize(
    ("family", "ends", "count"),
    [("Llama", {"q_proj", "v_proj"}, 4), ("GPT-2", {"c_attn"}, 2)],
    ids=["Llama", "GPT-2"],
)
def test_without_targets_those_of_the_architecture_are_taken(family, ends, count):
    model = adapted(family, fan_in_fan_out=False)
    assert model.peft_config["default"].fan_in_fan_out == (family == "GPT-2")
    assert {name.rsplit(".", 1)[-1] for name in targets(model)} == ends
    assert len(targets(model)) == count
    assert isinstance(model.base_model, LoCAModel)
    assert all(s.coefficients.shape == (B,) for s in spectra(model).values())


def test_single_layers_can_have_another_number_of_components():
    pattern = {"v_proj": 3, r".*layers\.1\..*q_proj": 4, "nope": 5}
    with pytest.warns(UserWarning, match="n_frequency_pattern 'nope' matches no layer"):
        model = adapted(n_frequency_pattern=pattern)
    counts = {
        name.split("layers.")[-1]: s.coefficients.numel() for name, s in spectra(model).items()
    }
    assert counts == {
        "0.self_attn.q_proj": B,
        "1.self_attn.q_proj": 4,
        "0.self_attn.v_proj": 3,
        "1.self_attn.v_proj": 3,
    }


@pytest.mark.parametrize("general", ["q_proj", "k_proj|q_proj", r"self_attn\..*"])
@pytest.mark.parametrize("special", ["layers.1.self_attn.q_proj", r".*layers\.1\..*q_proj"])
@pytest.mark.parametrize("first", [True, False], ids=["general first", "special first"])
def test_the_key_that_names_most_of_a_layer_sets_its_components_also_once_loaded(
    tmp_path, general, special, first
):
    """PEFT takes the first key that fits, and sorts them when it saves."""
    keys = {general: 4, special: 9}
    pattern = keys if first else dict(reversed(keys.items()))
    model = randomise(adapted(n_frequency_pattern=pattern, target_modules=["q_proj"]))
    model.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(llama(), tmp_path).eval()
    for adapter in (model, loaded):
        assert [len(s.coefficients) for s in spectra(adapter).values()] == [4, 9]
    assert torch.equal(logits(loaded), logits(model))


def test_keys_that_name_as_much_of_a_layer_must_agree():
    keys = {"q_proj": 4, ".*q_proj": 5}
    with pytest.raises(InvalidArgumentError, match=r"'q_proj' and '\.\*q_proj' .* fit the same"):
        adapted(n_frequency_pattern=keys)
    adapted(n_frequency_pattern=dict.fromkeys(keys, 4))


def test_each_layer_draws_its_own_locations_and_the_same_ones_again():
    first, second = ([s.indices for s in spectra(adapted()).values()] for _ in range(2))
    assert all(map(torch.equal, first, second))
    assert not torch.equal(first[0], first[2])
    other = [s.indices for s in spectra(adapted(random_loc_seed=5)).values()]
    assert not any(map(torch.equal, first, other))


@pytest.mark.parametrize("family", ["Llama", "RoBERTa"])
def test_the_trained_parameters_are_counted_with_the_offset_until_the_search_is_over(family):
    model = adapted(family, **SEARCHES)
    expected = {f"{name}.loca_spectrum.default.coefficients" for name in spectra(model)}
    if family == "RoBERTa":
        expected |= {n for n, _ in model.named_parameters() if "modules_to_save" in n}
    count = sum(model.get_parameter(name).numel() for name in expected)
    assert model.get_nb_trainable_parameters()[0] == count
    offsets = {f"{name}.loca_spectrum.default.offset" for name in spectra(model)}
    for phase, further in (("coefficients", offsets), ("locations", offsets), (None, set())):
        enter(model, phase)
        assert trainable(model) == expected | further
        assert model.get_nb_trainable_parameters()[0] == count + 2 * B * len(further)
        assert {s.requires_grad["default"] for s in model.get_layer_status()} == {True}


# --- the start ---


@BOTH_KINDS
def test_it_starts_as_the_base_model_unless_its_coefficients_are_random(family):
    base = logits(FAMILIES[family]())
    close(logits(adapted(family)), base)
    assert differ(logits(adapted(family, init_weights=False)), base)


# --- files ---


@pytest.mark.parametrize("is_trainable", [True, False], ids=["trainable", "for inference"])
@pytest.mark.parametrize("low_cpu_mem_usage", [True, False], ids=["low memory", "as usual"])
@pytest.mark.parametrize("search", ["central", "reselect", "never followed", "over"])
def test_a_saved_adapter_is_the_same_when_it_is_loaded(
    tmp_path, search, low_cpu_mem_usage, is_trainable
):
    """Adapters in mid-search have its state in their file, as in that of any other tensor."""
    kind = search if search in ("central", "reselect") else "central"
    settings = {"coefficient_steps": 2, "location_steps": 3, "recorded_steps": 5}
    model = adapted(scaling=1.5, location_search=kind, **SEARCHES | settings)
    randomise(model)
    if search != "never followed":
        train(model, 4, enter(model, None if search == "over" else "coefficients"))
    model.eval().save_pretrained(tmp_path / "first")
    assert sorted(path.name for path in (tmp_path / "first").iterdir()) == [
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    loaded = PeftModel.from_pretrained(
        llama(),
        tmp_path / "first",
        adapter_name="other",
        is_trainable=is_trainable,
        low_cpu_mem_usage=low_cpu_mem_usage,
    ).eval()
    assert torch.equal(logits(loaded), logits(model))
    ours, theirs = (
        get_peft_model_state_dict(m, adapter_name=name)
        for m, name in ((model, "default"), (loaded, "other"))
    )
    final = {"coefficients", "indices", "shape"}
    assert (theirs.keys() == ours.keys()) == (is_trainable or search == "over")
    assert is_trainable or {key.rsplit(".", 1)[1] for key in theirs} == final
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    goes_on = is_trainable and search != "over"
    assert {s.is_searching for s in spectra(loaded, "other").values()} == {goes_on}
    assert bool(trainable(loaded)) == is_trainable
    loaded.save_pretrained(tmp_path / "second")
    reloaded = PeftModel.from_pretrained(llama(), tmp_path / "second", subfolder="other")
    assert torch.equal(logits(reloaded), logits(model))


def test_biases_of_the_adapted_layers_are_trained_on_request_and_saved(tmp_path):
    model = randomise(adapted("OPT", bias="loca_only"))
    biases = {name for name in trainable(model) if name.endswith("bias")}
    assert biases == {f"{name}.base_layer.bias" for name in spectra(model)}
    for name in biases:
        model.get_parameter(name).data.add_(1.0)
    model.save_pretrained(tmp_path)
    close(logits(PeftModel.from_pretrained(opt(), tmp_path).eval()), logits(model))


def test_the_configuration_is_the_same_after_its_file(tmp_path):
    config = config_of(
        scaling=2.0,
        target_modules=["q_proj"],
        n_frequency_pattern={"q_proj": 4},
        bias="loca_only",
        alternating_steps=None,
        coefficient_steps=3,
        location_steps=5,
        joint=True,
        location_lr=0.01,
        location_search="forward",
        init_locations="gradient",
        recorded_steps=3,
        random_loc_seed=9,
        implementation="implicit",
        inference_mode=True,
    )
    config.save_pretrained(tmp_path)
    loaded = PeftConfig.from_pretrained(tmp_path)
    assert type(loaded) is LoCAConfig
    assert loaded.peft_type == PeftType["LOCA"] == "LOCA"
    assert loaded.to_dict() == config.to_dict()
    assert loaded.schedule() == config.schedule()


# --- merging, several adapters ---


@BOTH_KINDS
def test_merging_changes_no_output_and_can_be_undone(family):
    model = randomise(adapted(family))
    expected, before = logits(model), logits(FAMILIES[family]())
    weights = {n: p.clone() for n, p in model.named_parameters() if n.endswith("base_layer.weight")}
    model.merge_adapter()
    with pytest.warns(UserWarning, match="All adapters are already merged"):
        model.merge_adapter()
    close(logits(model), expected)
    model.unmerge_adapter()
    with pytest.warns(UserWarning, match="Already unmerged"):
        model.unmerge_adapter()
    close(logits(model), expected)
    for name, weight in weights.items():
        # W + ΔW and then W are each rounded once, to 6e-8 of values up to 4.
        close(model.get_parameter(name), weight, 1e-6)
    with model.disable_adapter():
        close(logits(model), before)
    close(logits(model), expected)
    base = copy.deepcopy(model).unload()
    merged = model.merge_and_unload(safe_merge=family == "Llama")
    for actual, logits_before in ((merged, expected), (base, before)):
        assert not any(isinstance(m, LoCALayer | CosineSpectrum) for m in actual.modules())
        close(logits(actual), logits_before)


def changed(model, family="Llama", adapters=("default",), of=lambda delta: delta):
    """The base model with a function of each increment in its weights."""
    base = FAMILIES[family]()
    with torch.no_grad():
        for adapter in adapters:
            for name, spectrum in spectra(model, adapter).items():
                layer, delta = name.split("base_model.model.")[-1], of(spectrum.increment())
                base.get_submodule(layer).weight.add_(delta.T if family == "GPT-2" else delta)
    return base


def of_rank_two(delta):
    u, s, v = torch.linalg.svd(delta)
    return u[:, :2] * s[:2] @ v[:2]


@BOTH_KINDS
@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False but:UserWarning")  # of PEFT
def test_a_conversion_to_lora_is_the_truncated_svd(family, tmp_path):
    model = randomise(adapted(family))
    save_as_lora(tmp_path, model, rank=2)
    loaded = PeftModel.from_pretrained(FAMILIES[family](), tmp_path).eval()
    assert loaded.peft_config["default"].peft_type == "LORA"
    close(logits(loaded), logits(changed(model, family, of=of_rank_two)))
    assert differ(logits(loaded), logits(model))


def two_adapters():
    model = get_peft_model(llama(), config_of(**SEARCHES), adapter_name="first")
    model.add_adapter(
        "second", config_of(n_frequency=4, random_loc_seed=5, scaling=0.5, **SEARCHES)
    )
    return randomise(randomise(model, "first"), "second").eval()


def test_active_adapters_add_up_are_trained_and_are_merged_together():
    model = two_adapters()
    names = ["first", "second"]
    expected = logits(changed(model, adapters=names))
    model.merge_adapter(names)
    close(logits(model), expected)
    model.unmerge_adapter()
    model.base_model.set_adapter(names)
    close(logits(model), expected)
    close(logits(copy.deepcopy(model).merge_and_unload(adapter_names=names)), expected)
    assert {n.rsplit(".", 2)[1] for n in trainable(model)} == set(names)
    train(model, 2, enter(model, "locations"))
    assert {s.steps_done for name in names for s in spectra(model, name).values()} == {2}


@pytest.mark.filterwarnings("ignore:Adapter first was active which is now deleted")
def test_a_deleted_adapter_leaves_nothing():
    model = two_adapters()
    model.delete_adapter("first")
    assert not any(".first." in key for key in model.state_dict())
    assert set(model.peft_config) == {"second"}
    assert model.active_adapters == ["second"]
    assert spectra(model, "first") == {}
    model.delete_adapter("second")
    with torch.no_grad():  # PEFT's wrapper cannot be called without an adapter, the model can
        close(model.base_model.model(**batch()).logits, logits(llama()))


def test_the_active_adapter_alone_is_trainable():
    model = two_adapters()

    def ends():
        return {name.split("loca_spectrum.")[-1] for name in trainable(model)}

    for adapter in ("second", "first"):
        model.set_adapter(adapter)
        follow(model)
        expected_ends = {f"{adapter}.coefficients", f"{adapter}.offset"}
        assert ends() == expected_ends
        expected = logits(model)
        with model.disable_adapter():
            assert ends() == set()
            close(logits(model), logits(llama()))
        assert ends() == expected_ends
        assert torch.equal(logits(model), expected)
        model.set_requires_grad(adapter, requires_grad=False)
        assert ends() == set()
        model.set_requires_grad(adapter, requires_grad=True)
        assert ends() == expected_ends


def test_a_safe_merge_refuses_a_broken_adapter_in_the_words_of_peft():
    model = two_adapters()
    layer = model.get_submodule(f"base_model.model.{LAYER}")
    layer.spectrum("second").coefficients.data[0] = torch.nan
    before = layer.base_layer.weight.clone()
    message = "NaNs detected in the merged weights. The adapter second seems to be broken"
    with pytest.raises(ValueError, match=rf"^{re.escape(message)} \({LAYER}\)$"):
        model.merge_adapter(["first", "second"], safe_merge=True)
    assert torch.equal(layer.base_layer.weight, before)
    assert layer.merged_adapters == []


def in_eight_bits(layer):
    weight = torch.randint(-9, 9, layer.weight.shape, dtype=torch.int8)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return layer


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (nn.utils.parametrizations.weight_norm, "its weight is computed from other"),
        (nn.utils.spectral_norm, "its weight is computed from other"),
        (in_eight_bits, r"its weight is quantised .*int8"),
    ],
)
def test_a_weight_that_is_quantised_or_computed_takes_no_merge(change, message):
    base = change(nn.Linear(6, 5)).eval()
    before = base.weight.clone()
    config = LoCAConfig(n_frequency=8, target_modules=["projection"], init_weights=False)
    model = get_peft_model(nn.Sequential(OrderedDict(projection=base)), config).eval()
    for merge in (model.merge_and_unload, LoCALinear(base, 7, name="projection").merge):
        with pytest.raises(InvalidArgumentError, match=f"projection: {message}"):
            merge()
    torch.testing.assert_close(base.weight, before)


# --- half precision ---


@pytest.mark.parametrize("autocast", [True, False], ids=["float32 adapter", "half adapter"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision_trains_and_generates(dtype, autocast):
    config = config_of(init_weights=False, **SEARCHES)
    model = get_peft_model(llama().to(dtype), config, autocast_adapter_dtype=autocast).eval()
    enter(model, "locations")
    assert logits(model).dtype == dtype
    assert torch.isfinite(logits(model)).all()
    model(**batch()).logits.float().square().mean().backward()
    for spectrum in spectra(model).values():
        assert spectrum.coefficients.dtype == (torch.float32 if autocast else dtype)
        assert torch.isfinite(spectrum.offset.grad).all()
        assert spectrum.offset.dtype == spectrum.offset.grad.dtype == torch.float32
    tokens = model.generate(**batch(), max_new_tokens=2, do_sample=False)
    assert tokens.shape == (2, 9)


# --- training ---


def train(model, steps, optimizer):
    for _ in range(steps):
        optimizer.zero_grad()
        model(**batch()).logits.square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("adapt", ["PEFT", "transformers", "injected"])
def test_a_plain_loop_trains_coefficients_and_locations(adapt):
    config = config_of(coefficient_steps=2, target_modules=["q_proj"], **SEARCHES)
    model = llama()
    if adapt == "PEFT":
        model = get_peft_model(model, config)
    elif adapt == "transformers":
        model.add_adapter(config)
    else:
        model = inject_adapter_in_model(config, model)
    assert targets(model) == {f"model.layers.{i}.self_attn.q_proj" for i in range(2)}
    layers = spectra(model).values()
    drawn = [spectrum.indices.clone() for spectrum in layers]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    follow(model, optimizer)
    train(model, 4, optimizer)
    assert {(s.steps_done, s.phase) for s in layers} == {(4, "locations")}
    assert all(s.coefficients.ne(0).all() for s in layers)
    assert not any(torch.equal(s.indices, b) for s, b in zip(layers, drawn, strict=True))


@pytest.mark.filterwarnings("ignore:.*nothing to follow")
@pytest.mark.parametrize("state", ["locations", None, "never followed"])
@pytest.mark.parametrize("is_trainable", [True, False], ids=["trainable", "for inference"])
def test_transformers_loads_an_adapter_whose_search_is_then_over(is_trainable, state, tmp_path):
    model = randomise(adapted(**SEARCHES), shared=True)
    if state != "never followed":
        enter(model, state)
    model.save_pretrained(tmp_path)
    loaded = llama()
    loaded.load_adapter(tmp_path, is_trainable=is_trainable)
    assert torch.equal(logits(loaded), logits(model))
    assert not any(s.is_searching for s in spectra(loaded).values())
    assert bool(trainable(loaded)) == is_trainable
    if is_trainable:
        optimizer = torch.optim.SGD(loaded.parameters(), lr=1e-3)
        follow(loaded, optimizer)
        train(loaded, 3, optimizer)


# --- registration ---


def test_registering_again_does_nothing():
    members = list(PeftType)
    registration.register(LoCAConfig, LoCAModel)
    reload(import_module("loca_theory.adapters.tuner"))
    assert list(PeftType) == members
    assert members.count("LOCA") == 1
    assert PeftType("LOCA") is PeftType.LOCA


@pytest.fixture
def unregistered(monkeypatch):
    """The package as if nobody had asked for its method of PEFT yet."""
    package = import_module("loca_theory.adapters")
    for part in ("tuner", "trainer"):
        for name in [n for n in sys.modules if n.startswith(f"{package.__name__}.{part}")]:
            monkeypatch.delitem(sys.modules, name)
    for name in ("tuner", "trainer", *package.__all__):
        monkeypatch.delattr(package, name, raising=False)
    return package


@pytest.mark.parametrize(
    "installed", [None, "0.20.1", "0.21.0", "0.22.0", "0.22.0rc1", "0.22.dev0", "1.0.0"]
)
def test_without_a_tested_peft_the_layer_works_and_the_method_says_what_it_needs(
    unregistered, monkeypatch, installed
):
    message = rf"tested with peft>=0\.21\.1,<0\.22, but peft {installed} is installed"
    if installed is None:
        message = r"needs peft: pip install .*adapters\]"

    def version(name):
        if installed is None:
            raise metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(metadata, "version", version)
    said = pytest.warns(UserWarning, match=f"not registered with PEFT: .*{message}")
    if installed is None:
        said = nullcontext()
        monkeypatch.setitem(sys.modules, "peft", None)
    with said:
        adapters = reload(unregistered)
    layer = adapters.LoCALinear(nn.Linear(8, 6), 5, zero_init=False)
    assert layer(torch.ones(2, 8)).shape == (2, 6)
    for name in ("LoCAConfig", "LoCAModel", "LoCALayer"):
        with pytest.raises(ResourceError, match=message):
            getattr(adapters, name)
