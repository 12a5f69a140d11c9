"""LoCA in the Trainer of transformers with its own optimiser: phases, checkpoints, accumulation."""

import sys
from importlib import import_module
from itertools import count

import pytest
import torch
from peft import PeftModel, get_peft_model
from transformers import Trainer, TrainingArguments

from loca_theory.adapters import CosineSpectrum, LoCACallback, LoCAConfig
from loca_theory.adapters.search.state import HOW_TO_FOLLOW
from loca_theory.errors import ResourceError

from .searching import all_indices, coefficients, same_state, spectra
from .tiny_models import of_peft, roberta

pytestmark = of_peft

SCHEDULE = {"coefficient_steps": 3, "location_steps": 4, "alternating_steps": 14}
STEPS, CHECKPOINT = 18, 5
# Step 5 is inside a start by gradient and inside a location phase. Steps 5 and 10 are inside the
# windows of recording of some layers. Step 15 is after the search.
KINDS = {
    "central": {},
    "joint": {"joint": True},
    "central from a start": {"init_locations": "gradient", "recorded_steps": 6},
    "reselect from a start": {
        "location_search": "reselect",
        "init_locations": "gradient",
        "recorded_steps": 6,
    },
    "swap": {"location_search": "swap", "recorded_steps": 3},
}


class Sentences(torch.utils.data.Dataset):
    """Whose class is whether more than half of their tokens are above the middle."""

    def __init__(self, size=64):
        ids = torch.randint(4, 40, (size, 6), generator=torch.Generator().manual_seed(0))
        labels = (ids > 21).float().mean(1).gt(0.5).long()
        self.data = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}

    def __len__(self):
        return len(self.data["labels"])

    def __getitem__(self, i):
        return {name: part[i] for name, part in self.data.items()}


def base():
    return roberta(dropout=0.1)


def adapted(**options):
    settings = {"task_type": "SEQ_CLS", "n_frequency": 12, "location_lr": 0.05}
    return get_peft_model(base(), LoCAConfig(**settings | SCHEDULE | options))


def trainer_for(model, folder, *, eval_dataset=None, callbacks=(LoCACallback,), **options):
    settings = {
        "max_steps": STEPS,
        "save_steps": CHECKPOINT,
        "per_device_train_batch_size": 8,
        "logging_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 3,
        "dataloader_pin_memory": False,
        "learning_rate": 5e-2,
        "warmup_steps": 8,
        "weight_decay": 0.1,
    }
    return Trainer(
        model,
        TrainingArguments(output_dir=str(folder), **settings | options),
        train_dataset=Sentences(),
        eval_dataset=eval_dataset,
        callbacks=list(callbacks),
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Of a kind: the trained model, its checkpoints and the indices it began with. Made once."""
    trainings = {}

    def train(kind):
        if kind not in trainings:
            folder, model = tmp_path_factory.mktemp("checkpoints"), adapted(**KINDS[kind])
            drawn = all_indices(model)
            trainer_for(model, folder).train()
            trainings[kind] = model, folder, drawn
        return trainings[kind]

    return train


@pytest.fixture(autouse=True)
def _told(monkeypatch):
    monkeypatch.setattr(CosineSpectrum, "_was_told", True)


@pytest.mark.parametrize("checkpoint", [5, 10, 15])
@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_training_ends_as_the_uninterrupted_one(trained, tmp_path, kind, checkpoint):
    """Step 5 is in warm-up, the others in mid-decay."""
    model, folder, drawn = trained(kind)
    assert not any(map(torch.equal, drawn, all_indices(model)))
    assert all(a.any() for a in coefficients(model))
    assert not any(layer.is_searching for layer in spectra(model))
    trains = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert all("coefficients" in name or "to_save" in name for name in trains)
    resumed = adapted(**KINDS[kind])
    trainer = trainer_for(resumed, tmp_path, save_strategy="no")
    trainer.train(resume_from_checkpoint=str(folder / f"checkpoint-{checkpoint}"))
    assert trainer.state.global_step == STEPS
    assert same_state(dict(model.state_dict()), dict(resumed.state_dict()))


def test_a_forgotten_callback_is_said_once(tmp_path, monkeypatch):
    """The default optimiser is fused, and does not count as writing in place."""
    monkeypatch.setattr(CosineSpectrum, "_was_told", False)
    model = adapted()
    drawn = all_indices(model)
    with pytest.warns(
        UserWarning, match=r"nobody follows .* callbacks=\[LoCACallback\(\)\]"
    ) as said:
        trainer_for(model, tmp_path, callbacks=[], save_strategy="no", max_steps=4).train()
    assert [str(warning.message) for warning in said].count(HOW_TO_FOLLOW) == 1
    assert all(map(torch.equal, drawn, all_indices(model)))


def test_a_second_training_goes_on_where_the_first_ended(tmp_path):
    model = adapted()
    trainer = trainer_for(model, tmp_path, save_strategy="no", max_steps=CHECKPOINT)
    trainer.train()
    assert {(s.steps_done, s.phase) for s in spectra(model)} == {(CHECKPOINT, None)}
    before = coefficients(model)
    # The second optimiser is another one, while the first lives on.
    trainer_for(model, tmp_path, save_strategy="no", max_steps=6, warmup_steps=1).train()
    assert {s.steps_done for s in spectra(model)} == {CHECKPOINT + 6}
    assert not any(map(torch.equal, coefficients(model), before))


def test_the_best_checkpoint_is_loaded_at_the_end_with_its_search(tmp_path):
    model = adapted()
    trainer = trainer_for(
        model,
        tmp_path,
        max_steps=2 * CHECKPOINT,
        eval_strategy="steps",
        eval_steps=CHECKPOINT,
        load_best_model_at_end=True,
        metric_for_best_model="rank",
        greater_is_better=True,
        eval_dataset=Sentences(16),
    )
    # The first checkpoint, of the middle of a phase, shall be the best whatever the data.
    evaluate, ranks = trainer.evaluate, count()
    trainer.evaluate = lambda *a, **k: evaluate(*a, **k) | {"eval_rank": -next(ranks)}
    trainer.train()
    best = tmp_path / f"checkpoint-{CHECKPOINT}"
    assert trainer.state.best_model_checkpoint == str(best)
    assert {s.steps_done for s in spectra(model)} == {CHECKPOINT}
    loaded = PeftModel.from_pretrained(base(), best, is_trainable=True)
    assert same_state(dict(model.state_dict()), dict(loaded.state_dict()))


def test_without_transformers_the_callback_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "loca_theory.adapters.trainer")
    with pytest.raises(ResourceError, match=r"needs transformers: pip install .*adapters\]"):
        import_module("loca_theory.adapters.trainer")
