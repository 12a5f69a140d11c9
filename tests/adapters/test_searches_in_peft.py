"""Searches for locations, and starts by gradient, as adapters of PEFT."""

import copy
import math

import pytest
import torch
from peft import PeftConfig, PeftModel, get_peft_model
from torch import nn

from loca_theory.adapters import AlternatingSchedule, LoCAConfig, LocationTraining
from loca_theory.adapters.search.files import SEARCH_FILE
from loca_theory.errors import InvalidArgumentError

from .searching import (
    adamw,
    all_indices,
    assert_distinct,
    batches,
    close,
    locations,
    normal,
    same,
    spectra,
    steps_of_regrowth,
)
from .tiny_roberta import in_peft, logits, of_peft, roberta, tokens, training_of

pytestmark = of_peft

# A float32 pass through two layers is some forty roundings of 6e-8 in sequence, of values that
# cancel and are amplified to ten times their result.
ROUNDING = 1e-4

TINY = {"coefficient_steps": 2, "location_steps": 3, "alternating_steps": 20, "recorded_steps": 2,
        "location_lr": 0.05}  # fmt: skip


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def adapted(dtype=torch.float32, **options):
    return in_peft(roberta(dtype), **TINY | options)


def fine_tune(model, steps, optimizer=None, start=0):
    optimizer = optimizer or adamw(model)
    model.train()
    for step in range(start, start + steps):
        model(**tokens(step)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


@pytest.mark.parametrize(
    ("search", "start"),
    [("central", "gradient"), ("reselect", "gradient"), ("swap", "random"), ("swap-raw", "random")],
)
def test_a_plain_optimiser_trains_every_layer(search, start):
    model = adapted(location_search=search, init_locations=start)
    before, training = all_indices(model), training_of(model)
    happened = steps_of_regrowth(model, training) if search != "central" else [[2]]
    fine_tune(model, 22)
    assert (training.steps_done, training.is_over) == (20, True)
    assert not any(map(torch.equal, before, all_indices(model)))
    assert all(happened)
    for layer in spectra(model):
        assert_distinct(layer)
        assert layer.coefficients.ne(0).all()
        assert layer.search is None


def test_a_model_in_mid_search_does_not_mind_that_another_one_is_trained():
    unfinished = adapted()
    fine_tune(unfinished, 4)
    unfinished(**tokens()).loss.backward()
    fine_tune(adapted(), 12)
    assert training_of(unfinished).steps_done == 4


# Every pair of these choices is in one of the cases. Step 4 is inside the start by gradient; step
# 13 is inside a location phase, and inside the windows of recording of some layers.
FILES = [
    ("central", 13, True, torch.float32),
    ("central", 4, False, torch.bfloat16),
    ("reselect", 13, True, torch.bfloat16),
    ("reselect", 4, False, torch.float32),
    ("reselect", 22, False, torch.float32),
    ("swap", 4, True, torch.float32),
    ("swap", 13, False, torch.bfloat16),
    ("swap", 22, True, torch.bfloat16),
    ("central", 22, True, torch.float32),
]


@pytest.mark.parametrize(("search", "steps", "low", "dtype"), FILES, ids=str)
def test_an_adapter_trains_on_from_its_file(search, steps, low, dtype, tmp_path):
    options = {"location_search": search, "init_locations": "gradient", "recorded_steps": 6}
    model = adapted(dtype, **options)
    optimizer = fine_tune(model, steps)
    model.save_pretrained(tmp_path)
    assert (tmp_path / SEARCH_FILE).exists() == (steps < 20)
    loaded = PeftModel.from_pretrained(
        roberta(dtype), tmp_path, is_trainable=True, low_cpu_mem_usage=low
    )
    assert same(all_indices(loaded), all_indices(model))
    assert not any(t.is_meta for t in loaded.state_dict().values())
    assert training_of(loaded).is_over == (steps == 22)
    # With low_cpu_mem_usage, PEFT rounds the coefficients of an adapter of any method to the
    # dtype of the base, and widens them again.
    if low and dtype != torch.float32:
        assert logits(loaded).isfinite().all()
        fine_tune(loaded, 30 - steps, start=steps)
        return
    assert torch.equal(logits(loaded), logits(model))
    again = adamw(loaded)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # it keeps the tensors
    fine_tune(model, 30 - steps, optimizer, steps)
    fine_tune(loaded, 30 - steps, again, steps)
    assert same(all_indices(loaded), all_indices(model))
    assert torch.equal(logits(loaded), logits(model))


@pytest.mark.parametrize(("first", "second"), [("central", "swap"), ("reselect", "central")])
def test_an_adapter_goes_on_by_another_search_as_a_new_one(first, second, tmp_path):
    model = adapted(location_search=first)
    fine_tune(model, 13)
    model.save_pretrained(tmp_path)
    config = PeftConfig.from_pretrained(tmp_path)
    config.location_search, config.inference_mode = second, False
    message = f"the state was saved by the search '{first}', and this one is '{second}'; use"
    with pytest.raises(InvalidArgumentError, match=message):
        PeftModel.from_pretrained(roberta(), tmp_path, config=config, is_trainable=True)
    loaded = PeftModel.from_pretrained(roberta(), tmp_path, is_trainable=True)
    before = all_indices(loaded)
    schedule = AlternatingSchedule(1, 3, 12, recorded_steps=2)
    training = LocationTraining(loaded, schedule, search=second, location_lr=0.1)
    assert torch.equal(logits(loaded), logits(model))
    fine_tune(loaded, 12)
    assert training.is_over
    assert training_of(loaded).steps_done == 13
    assert not any(map(torch.equal, before, all_indices(loaded)))


@pytest.mark.parametrize("search", ["central", "reselect"])
def test_a_merged_model_is_the_adapted_one_in_mid_search(search):
    model = adapted(location_search=search)
    fine_tune(model, 8)
    assert training_of(model).phase == "locations"
    assert search == "central" or any(s.search.is_recording for s in spectra(model))
    expected = logits(model)
    close(logits(copy.deepcopy(model).merge_and_unload()), expected, ROUNDING)
    model.merge_adapter()
    close(logits(model), expected, ROUNDING)


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.v_proj = nn.Linear(12, 8), nn.Linear(8, 10)

    def forward(self, x):
        return self.v_proj(self.q_proj(x).tanh())


def test_locations_move_though_the_gradient_of_a_scaled_loss_is_beyond_half_precision():
    torch.manual_seed(0)
    options = {"target_modules": ["q_proj", "v_proj"], "joint": True, "init_weights": False}
    base = TwoLayers().half()
    model = get_peft_model(base, LoCAConfig(n_frequency=9, location_lr=0.01, **options))
    optimizer, scaler = adamw(model), torch.amp.GradScaler("cpu", init_scale=2.0**16)
    before = locations(model)
    x = normal(64, 12, dtype=torch.float16)
    scaler.scale(100 * model(x).float().square().mean()).backward()
    largest = [float(s.coefficients.grad.abs().max()) for s in spectra(model)]
    assert all(torch.finfo(torch.float16).max < one < math.inf for one in largest)
    scaler.step(optimizer)
    assert training_of(model).steps_done == 1
    for u, v in zip(before, locations(model), strict=True):
        assert v.isfinite().all()
        assert not torch.equal(u, v)


@pytest.mark.parametrize("search", ["reselect", "swap"])
def test_a_search_that_records_at_once_waits_for_coefficients_on_the_meta_device(search):
    options = {"target_modules": ["q_proj", "v_proj"], "location_search": search}
    schedule = {"coefficient_steps": 1, "location_steps": 1, "recorded_steps": 2}
    config = LoCAConfig(n_frequency=9, init_weights=False, **options, **schedule)
    model = get_peft_model(TwoLayers(), config, low_cpu_mem_usage=True)
    before = all_indices(model)
    for layer in spectra(model):
        assert layer.coefficients.is_meta
        assert layer.search.dropped is None
        layer.coefficients = nn.Parameter(normal(9, dtype=torch.float32))
    model(normal(4, 12, dtype=torch.float32)).sum()
    for layer in spectra(model):
        assert (layer.search.dropped is not None) == (search == "reselect")
    optimizer = adamw(model)
    for x, y in batches(2):
        optimizer.zero_grad()
        (model(x.float()) - y.float()).square().mean().backward()
        optimizer.step()
    assert not any(map(torch.equal, before, all_indices(model)))


# --- devices ---


@pytest.mark.parametrize("search", ["central", "reselect"])
def test_an_adapter_trained_on_the_device_is_the_same_elsewhere(search, accelerator, tmp_path):
    base = TwoLayers()
    config = LoCAConfig(
        n_frequency=9, target_modules=["q_proj", "v_proj"], location_search=search, **TINY
    )
    model = get_peft_model(copy.deepcopy(base), config).to(accelerator)
    optimizer = adamw(model)
    for x, y in batches(12):
        optimizer.zero_grad()
        found = model(x.float().to(accelerator))
        (found - y.float().to(accelerator)).square().mean().backward()
        optimizer.step()
    x = normal(16, 12, dtype=torch.float32)
    model.eval()
    with torch.no_grad():
        expected = model(x.to(accelerator)).cpu()
        model.save_pretrained(tmp_path)
        loaded = PeftModel.from_pretrained(base, tmp_path)
        close(loaded(x), expected, ROUNDING)
        loaded.to(accelerator)
        close(loaded(x.to(accelerator)).cpu(), expected, ROUNDING)
        close(loaded.merge_and_unload()(x.to(accelerator)).cpu(), expected, ROUNDING)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_an_input_on_another_device_is_refused_with_the_name_of_the_layer(dtype):
    model = get_peft_model(TwoLayers(), LoCAConfig(n_frequency=7, target_modules=["q_proj"]))
    message = "^q_proj: its input is on meta, and its coefficients are on cpu; move one of them"
    with pytest.raises(InvalidArgumentError, match=message):
        model(torch.ones(4, 12, device="meta", dtype=dtype))
