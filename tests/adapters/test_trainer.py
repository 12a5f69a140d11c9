"""LoCA in the Trainer of transformers: phases, checkpoints, accumulation, what a user forgets."""

import copy
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from peft import PeftModel, TaskType, get_peft_model
from transformers import (
    RobertaConfig,
    RobertaForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from loca_theory.adapters import (
    AlternatingSchedule,
    LoCACallback,
    LoCAConfig,
    LoCALayer,
    LoCALinear,
    LocationsNotTrainedError,
    LocationTraining,
    parameter_groups,
)

COEFFICIENT_STEPS, LOCATION_STEPS, ALTERNATING_STEPS, STEPS = 3, 4, 14, 18
CHECKPOINT = 5  # two steps into the first phase of the locations

# PEFT calls it by the name that transformers 5 has replaced.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning"
)


class Sentences(torch.utils.data.Dataset):
    """Random tokens; the class is whether more than half are above the middle."""

    def __init__(self, count=64):
        generator = torch.Generator().manual_seed(0)
        self.ids = torch.randint(4, 40, (count, 6), generator=generator)
        self.labels = (self.ids > 21).float().mean(1).gt(0.5).long()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        ids = self.ids[i]
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "labels": self.labels[i],
        }


def base():
    torch.manual_seed(1)
    return RobertaForSequenceClassification(
        RobertaConfig(
            vocab_size=40,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=32,
            num_labels=2,
            initializer_range=0.3,
            hidden_dropout_prob=0.1,
        )
    )


def adapted(**options):
    settings = {
        "n_frequency": 12,
        "coefficient_steps": COEFFICIENT_STEPS,
        "location_steps": LOCATION_STEPS,
        "alternating_steps": ALTERNATING_STEPS,
    }
    config = LoCAConfig(task_type=TaskType.SEQ_CLS, **settings | options)
    return get_peft_model(base(), config)


def spectra(model):
    return [m.spectrum("default") for m in model.modules() if isinstance(m, LoCALayer)]


def training_of(model):
    return model.base_model.location_training["default"]


class Recorder(TrainerCallback):
    """Locations and coefficients after every step, and the phase that made them."""

    def __init__(self, model):
        self.model, self.steps = model, []

    def on_train_begin(self, *_, **__):
        self.note()

    def on_step_end(self, *_, **__):
        self.note()

    def note(self):
        found = spectra(self.model)
        for s in found:
            s.refresh()
        indices = torch.stack([s.indices.clone() for s in found])
        a = torch.stack([s.coefficients.detach().clone() for s in found])
        self.steps.append((indices, a))


def trainer_for(model, folder, *, optimizer="loca", callbacks=None, eval_dataset=None, **options):
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
    }
    arguments = TrainingArguments(output_dir=str(folder), **settings | options)
    if optimizer == "loca":
        groups = parameter_groups(model, lr=5e-2, location_lr=5e-2)
        optimizer = torch.optim.AdamW(groups)
    return Trainer(
        model,
        arguments,
        train_dataset=Sentences(),
        eval_dataset=eval_dataset,
        optimizers=(optimizer, None),
        callbacks=[LoCACallback()] if callbacks is None else callbacks,
    )


def assert_same_state(one, other):
    one, other = one.state_dict(), other.state_dict()
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(other[name], tensor, rtol=1e-6, atol=1e-6, msg=name)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A model trained to the end, the folder of its checkpoints, and what it was at each step."""
    folder, model = tmp_path_factory.mktemp("uninterrupted"), adapted()
    recorder = Recorder(model)
    trainer_for(model, folder, callbacks=[LoCACallback(), recorder]).train()
    return model, folder, recorder.steps


def test_locations_move_in_the_phases_of_the_locations_alone(uninterrupted):
    model, _, steps = uninterrupted
    assert len(steps) == STEPS + 1
    schedule, moved = training_of(model).schedule, set()
    for step, ((indices, a), (next_indices, next_a)) in enumerate(pairwise(steps)):
        phase = schedule.phase(step)
        if not torch.equal(indices, next_indices):
            moved.add(step)
            assert phase == "locations"
        # Step 13 ends the learning of locations, when components that share one are joined.
        if step != ALTERNATING_STEPS - 1:
            assert torch.equal(a, next_a) == (phase == "locations")
    assert {step // (COEFFICIENT_STEPS + LOCATION_STEPS) for step in moved} == {0, 1}
    assert training_of(model).phase is None
    assert not any(s.learns_locations for s in spectra(model))


@pytest.mark.parametrize("checkpoint", [5, 10, 15], ids=["locations", "second round", "frozen"])
def test_a_resumed_training_ends_as_the_uninterrupted_one(uninterrupted, tmp_path, checkpoint):
    model, folder, _ = uninterrupted
    resumed = adapted()
    trainer = trainer_for(resumed, tmp_path, save_strategy="no")
    trainer.train(resume_from_checkpoint=str(folder / f"checkpoint-{checkpoint}"))
    assert trainer.state.global_step == STEPS
    assert_same_state(model, resumed)


def test_accumulated_batches_are_one_step(tmp_path):
    model = adapted()
    options = {"gradient_accumulation_steps": 3, "max_steps": 4, "save_strategy": "no"}
    trainer_for(model, tmp_path, **options).train()
    assert training_of(model).steps_done == 4
    assert training_of(model).phase == "locations"


def test_with_the_optimiser_of_the_trainer_the_callback_says_what_to_do(tmp_path):
    trainer = trainer_for(adapted(), tmp_path, optimizer=None)
    with pytest.raises(LocationsNotTrainedError, match=r"parameter_groups\(model.*optimizers="):
        trainer.train()


def test_with_fixed_locations_any_optimiser_will_do(tmp_path):
    model = adapted(alternating_steps=0)
    before = [s.indices.clone() for s in spectra(model)]
    trainer_for(model, tmp_path, optimizer=None, max_steps=3, save_strategy="no").train()
    assert all(torch.equal(s.indices, b) for s, b in zip(spectra(model), before, strict=True))
    assert all(s.coefficients.abs().max() > 0 for s in spectra(model))


def test_without_the_callback_the_schedule_is_kept_all_the_same(uninterrupted, tmp_path):
    model = adapted()
    trainer_for(model, tmp_path, callbacks=[], save_strategy="no").train()
    assert training_of(model).steps_done == ALTERNATING_STEPS
    assert training_of(model).phase is None
    assert_same_state(uninterrupted[0], model)


def test_without_the_callback_a_forgotten_optimiser_is_warned_of_once(tmp_path):
    model = adapted()
    trainer = trainer_for(
        model, tmp_path, optimizer=None, callbacks=[], save_strategy="no", max_steps=6
    )
    with pytest.warns(UserWarning, match="the optimiser has no LoCA locations") as said:
        trainer.train()
    assert sum("LoCA locations" in str(w.message) for w in said) == 1
    assert training_of(model).phase == "coefficients"


def test_a_trained_model_predicts_the_same_after_its_file(uninterrupted, tmp_path):
    trainer = trainer_for(uninterrupted[0], tmp_path / "run")
    expected = trainer.predict(Sentences()).predictions
    trainer.save_model(str(tmp_path / "final"))
    loaded = PeftModel.from_pretrained(base(), tmp_path / "final")
    arguments = trainer.args
    found = Trainer(loaded, arguments).predict(Sentences()).predictions
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=1e-6, atol=1e-6)
    untrained = Trainer(base(), arguments).predict(Sentences()).predictions
    assert abs(untrained - expected).max() > 0.1


def spectrum_of(indices, a):
    """Components that share a location add up: a file for inference joins them."""
    return torch.zeros(16, 16).index_put(tuple(indices.T), a, accumulate=True)


def test_a_checkpoint_of_the_trainer_is_an_adapter(uninterrupted):
    _, folder, steps = uninterrupted
    loaded = PeftModel.from_pretrained(base(), folder / f"checkpoint-{CHECKPOINT}")
    for s, indices, a in zip(spectra(loaded), *steps[CHECKPOINT], strict=True):
        found = spectrum_of(s.indices, s.coefficients.detach())
        torch.testing.assert_close(found, spectrum_of(indices, a))


def test_the_best_checkpoint_is_loaded_at_the_end(tmp_path):
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
    evaluate, calls = trainer.evaluate, []

    def worse_every_time(*args, **kwargs):
        calls.append(1)
        return evaluate(*args, **kwargs) | {"eval_rank": -len(calls)}

    trainer.evaluate = worse_every_time
    trainer.train()
    best = tmp_path / f"checkpoint-{CHECKPOINT}"
    assert trainer.state.best_model_checkpoint == str(best)
    expected = trainer_for(PeftModel.from_pretrained(base(), best), tmp_path / "x", optimizer=None)
    torch.testing.assert_close(
        trainer.predict(Sentences()).predictions,
        expected.predict(Sentences()).predictions,
        rtol=1e-5,
        atol=1e-5,
    )


def test_a_second_training_goes_on_with_frozen_locations(uninterrupted, tmp_path):
    model = copy.deepcopy(uninterrupted[0])
    indices = [s.indices.clone() for s in spectra(model)]
    before = [s.coefficients.detach().clone() for s in spectra(model)]
    trainer_for(model, tmp_path, save_strategy="no", max_steps=3).train()
    for s, set_indices, a in zip(spectra(model), indices, before, strict=True):
        assert torch.equal(s.indices, set_indices)
        assert not torch.equal(s.coefficients, a)


def test_the_callback_finds_layers_without_peft():
    layer = LoCALinear(torch.nn.Linear(6, 5), 4)
    training = LocationTraining(layer, AlternatingSchedule(2, 2, 9))
    state = SimpleNamespace(global_step=3)
    model = torch.nn.Sequential(layer)
    optimizer = torch.optim.SGD(parameter_groups(layer, lr=0.1))
    LoCACallback().on_train_begin(None, state, None, model=model, optimizer=optimizer)
    assert training.steps_done == 3
    assert training.phase == "locations"
    lacking = torch.optim.SGD([layer.spectrum.coefficients], lr=0.1)
    with pytest.raises(LocationsNotTrainedError, match="parameter_groups"):
        LoCACallback().on_train_begin(None, state, None, model=model, optimizer=lacking)
