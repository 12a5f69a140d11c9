"""Searches across the spectrum, and starts by gradient, as adapters of PEFT."""

import copy

import pytest
import torch
from peft import PeftConfig, PeftModel, get_peft_model
from torch import nn
from transformers import (
    RobertaConfig,
    RobertaForSequenceClassification,
    Trainer,
    TrainingArguments,
)

from loca_theory.adapters import LoCACallback, LoCAConfig
from loca_theory.errors import InvalidArgumentError

from .searching import (
    adamw,
    all_indices,
    assert_distinct,
    batches,
    close,
    in_groups,
    normal,
    same,
    spectra,
    steps_of_regrowth,
)

# A float32 pass through two layers is some forty roundings of 6e-8 in sequence, of values that
# cancel and are amplified to ten times their result.
ROUNDING = 1e-4

TINY = {"coefficient_steps": 2, "location_steps": 3, "alternating_steps": 20, "recorded_steps": 2}
# PEFT calls it by the name that transformers 5 has replaced.
of_peft = pytest.mark.filterwarnings(
    r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning"
)


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def roberta(dtype=torch.float32):
    torch.manual_seed(1)
    config = RobertaConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
        num_labels=2,
        initializer_range=0.3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return RobertaForSequenceClassification(config).to(dtype)


def adapted(dtype=torch.float32, **options):
    config = LoCAConfig(task_type="SEQ_CLS", **{"n_frequency": 12} | TINY | options)
    return get_peft_model(roberta(dtype), config)


def tokens(step=0):
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(4, 40, (8, 6), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids),
            "labels": (ids > 21).float().mean(1).gt(0.5).long()}  # fmt: skip


def fine_tune(model, steps, optimizer=None, start=0):
    optimizer = optimizer or adamw(model)
    for step in range(start, start + steps):
        optimizer.zero_grad()
        model(**tokens(step)).loss.backward()
        optimizer.step()
    return model


def logits(model):
    with torch.no_grad():
        return model.eval()(**tokens()).logits


REFUSED = {
    "a search": ({"location_search": "nowhere"}, "location_search.*'nowhere'"),
    "a start": ({"init_locations": "nowhere"}, "init_locations.*'nowhere'"),
    "no steps": ({"recorded_steps": 0}, "recorded_steps must be an integer of at least 1, not 0"),
    "part of a step": ({"recorded_steps": 1.5}, "recorded_steps must be an integer.*not 1.5"),
    "jointly": (
        {"location_search": "swap", "joint": True},
        "joint=True learns locations by a gradient, which location_search='swap' does not use",
    ),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_a_configuration_refuses(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        LoCAConfig(**options)


@pytest.mark.parametrize("search", ["central", "reselect"])
def test_a_configuration_survives_its_file(search, tmp_path):
    options = {"location_search": search, "init_locations": "gradient", "recorded_steps": 3}
    LoCAConfig(**options).save_pretrained(tmp_path)
    loaded = PeftConfig.from_pretrained(tmp_path)
    assert {name: getattr(loaded, name) for name in options} == options
    assert loaded.schedule().recorded_steps == 3


@of_peft
@pytest.mark.parametrize(
    ("search", "start"), [("reselect", "gradient"), ("swap", "random"), ("swap-raw", "random")]
)
def test_a_plain_optimiser_trains_every_layer(search, start):
    model = adapted(location_search=search, init_locations=start)
    assert not any("locations" in name for name, _ in model.named_parameters())
    before, training = all_indices(model), model.base_model.location_training["default"]
    happened = steps_of_regrowth(model, training)
    fine_tune(model, 22)
    assert training.steps_done == 20
    assert not any(map(torch.equal, before, all_indices(model)))
    assert all(happened)
    for layer in spectra(model):
        assert_distinct(layer)
        assert layer.coefficients.ne(0).all()
        assert not layer.learns_locations


# Every pair of these choices is in one of the cases.
FILES = [
    ("reselect", 13, True, True, torch.bfloat16),
    ("reselect", 22, False, False, torch.float32),
    ("swap", 22, True, True, torch.float32),
    ("swap", 13, True, False, torch.bfloat16),
    ("swap", 13, False, False, torch.float32),
    ("swap", 22, False, True, torch.bfloat16),
]


@of_peft
@pytest.mark.parametrize(("search", "steps", "trainable", "low", "dtype"), FILES, ids=str)
def test_an_adapter_survives_its_file(search, steps, trainable, low, dtype, tmp_path):
    options = {"location_search": search, "init_locations": "gradient"}
    model = fine_tune(adapted(dtype, **options), steps)
    model.save_pretrained(tmp_path / "first")
    loaded = PeftModel.from_pretrained(
        roberta(dtype), tmp_path / "first", is_trainable=trainable, low_cpu_mem_usage=low
    )
    assert same(all_indices(loaded), all_indices(model))
    # With low_cpu_mem_usage, PEFT rounds the coefficients of an adapter of any method to the
    # dtype of the base, and widens them again.
    is_rounded = low and dtype != torch.float32
    assert (loaded_logits := logits(loaded)).isfinite().all()
    assert torch.equal(loaded_logits, logits(model)) or is_rounded
    for layer in spectra(loaded):
        assert layer.learns_locations == (trainable and steps == 13)
        assert not layer.needs_initialisation
        if layer.searching is not None:
            assert not layer.searching.is_meta
            assert bool(layer.searching) == (steps == 13)
    loaded.save_pretrained(tmp_path / "second")
    if trainable:
        fine_tune(loaded, 22)
        moved = not same(all_indices(loaded), all_indices(model))
        assert moved == (steps == 13)
    again = PeftModel.from_pretrained(roberta(dtype), tmp_path / "second")
    assert torch.equal(logits(again), loaded_logits)


@of_peft
@pytest.mark.parametrize(
    ("first", "second", "steps", "low"),
    [
        ("central", "swap", 13, True),
        ("reselect", "central", 13, False),
        ("swap", "reselect", 13, True),
        ("central", "swap", 22, False),
    ],
    ids=str,
)
def test_an_adapter_goes_on_by_another_search(first, second, steps, low, tmp_path):
    model = adapted(location_search=first)
    fine_tune(model, steps, in_groups(model))
    model.save_pretrained(tmp_path)
    config = PeftConfig.from_pretrained(tmp_path)
    config.location_search, config.inference_mode = second, False
    loaded = PeftModel.from_pretrained(
        roberta(), tmp_path, config=config, is_trainable=True, low_cpu_mem_usage=low
    )
    close(logits(loaded), logits(model), ROUNDING)
    assert all(s.learns_locations == (steps == 13) for s in spectra(loaded))
    assert not any(buffer.is_meta for buffer in loaded.buffers())
    fine_tune(loaded.train(), 3, in_groups(loaded))


@of_peft
def test_a_merged_model_is_the_adapted_one_while_it_looks():
    model = fine_tune(adapted(location_search="reselect"), 8)
    assert any(s.is_recording for s in spectra(model))
    expected = logits(model)
    close(logits(copy.deepcopy(model).merge_and_unload()), expected, ROUNDING)
    model.merge_adapter()
    close(logits(model), expected, ROUNDING)


class Sentences(torch.utils.data.Dataset):
    """The tokens of four steps."""

    def __len__(self):
        return 32

    def __getitem__(self, i):
        return {name: part[i % 8] for name, part in tokens(i // 8).items()}


def trainer_of(model, folder, **options):
    settings = {
        "max_steps": 24,
        "per_device_train_batch_size": 8,
        "learning_rate": 0.05,
        "lr_scheduler_type": "constant",
        "logging_strategy": "no",
        "save_steps": 12,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 3,
        "dataloader_pin_memory": False,
        "gradient_checkpointing": True,
    }
    arguments = TrainingArguments(output_dir=str(folder), **settings | options)
    return Trainer(model, arguments, train_dataset=Sentences(), callbacks=[LoCACallback()])


@of_peft
def test_the_trainer_with_its_own_optimiser_resumes_a_search_where_it_stood(tmp_path):
    options = {"location_search": "reselect", "recorded_steps": 1}
    model = adapted(**options)
    trainer_of(model, tmp_path).train()
    resumed = adapted(**options)
    happened = steps_of_regrowth(resumed, resumed.base_model.location_training["default"])
    trainer_of(resumed, tmp_path).train(resume_from_checkpoint=str(tmp_path / "checkpoint-12"))
    assert resumed.base_model.location_training["default"].steps_done == 20
    # Four layers, each a step or two ahead of the one before.
    assert happened == [[14, 19], [13, 18], [12, 17], [16]]
    assert same(all_indices(resumed), all_indices(model))


# --- devices ---


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.v_proj = nn.Linear(12, 8), nn.Linear(8, 10)

    def forward(self, x):
        return self.v_proj(self.q_proj(x).tanh())


@pytest.mark.parametrize("search", ["central", "reselect"])
def test_an_adapter_trained_on_the_device_is_the_same_elsewhere(search, accelerator, tmp_path):
    base = TwoLayers()
    config = LoCAConfig(
        n_frequency=9, target_modules=["q_proj", "v_proj"], location_search=search, **TINY
    )
    model = get_peft_model(copy.deepcopy(base), config).to(accelerator)
    optimizer = in_groups(model)
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
