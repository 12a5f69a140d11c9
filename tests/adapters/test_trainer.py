"""LoCA in the Trainer of transformers with its own optimiser: phases, checkpoints, accumulation."""

from itertools import pairwise

import pytest
import torch
from peft import PeftModel
from transformers import Trainer, TrainerCallback, TrainerState, TrainingArguments

from loca_theory.adapters import AlternatingSchedule, LoCACallback, LoCALinear, LocationTraining
from loca_theory.adapters.search.files import SEARCH_FILE
from loca_theory.errors import InvalidArgumentError

from .searching import all_indices, same, spectra
from .tiny_roberta import in_peft, of_peft, roberta, tokens, training_of

pytestmark = of_peft

SCHEDULE = {"coefficient_steps": 3, "location_steps": 4, "alternating_steps": 14}
STEPS, CHECKPOINT = 18, 5
# Step 5 is inside a start by gradient and inside a location phase. Steps 5 and 10 are inside the
# windows of recording of some layers. Step 15 is after the search.
KINDS = {
    "central": {},
    "forward": {"location_search": "forward", "as_printed": True},
    "joint": {"joint": True},
    "central from a start": {"init_locations": "gradient", "recorded_steps": 6},
    "reselect from a start": {
        "location_search": "reselect", "init_locations": "gradient", "recorded_steps": 6,
    },
    "reselect": {"location_search": "reselect", "recorded_steps": 3},
    "swap": {"location_search": "swap", "recorded_steps": 3},
    "swap-raw": {"location_search": "swap-raw", "recorded_steps": 1},
    "fixed locations": {"alternating_steps": 0},
}  # fmt: skip


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count=64):
        self.data = tokens(count=count)

    def __len__(self):
        return len(self.data["labels"])

    def __getitem__(self, i):
        return {name: part[i] for name, part in self.data.items()}


def base():
    return roberta(dropout=0.1)


def adapted(**options):
    return in_peft(base(), **{"location_lr": 0.05} | SCHEDULE | options)


def by_hand():
    """The same without PEFT: the search is the user's."""
    model = base()
    model.requires_grad_(False)
    for layer in model.roberta.encoder.layer:
        attention = layer.attention.self
        attention.query = LoCALinear(attention.query, 12, seed=1)
        attention.value = LoCALinear(attention.value, 12, seed=2)
    return model


def trainer_for(model, folder, *, callbacks=(), optimizer=None, eval_dataset=None, **options):
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
        "weight_decay": 0.1,
    }
    return Trainer(
        model,
        TrainingArguments(output_dir=str(folder), **settings | options),
        train_dataset=Sentences(),
        eval_dataset=eval_dataset,
        optimizers=(optimizer, None),
        callbacks=list(callbacks),
    )


class Recorder(TrainerCallback):
    """Indices and coefficients before the first step and after each."""

    def __init__(self, model):
        self.model, self.steps = model, []

    def on_train_begin(self, *_, **__):
        a = [s.coefficients.detach().clone() for s in spectra(self.model)]
        self.steps.append((all_indices(self.model), a))

    on_step_end = on_train_begin


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Of a kind: the trained model, its checkpoints and what it was after each step. Made once."""
    made = {}

    def train(kind):
        if kind not in made:
            folder, model = tmp_path_factory.mktemp("checkpoints"), adapted(**KINDS[kind])
            recorder = Recorder(model)
            trainer_for(model, folder, callbacks=[recorder]).train()
            made[kind] = model, folder, recorder.steps
        return made[kind]

    return train


def assert_same_state(one, other):
    one, other = one.state_dict(), other.state_dict()
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_plain_trainer_trains_coefficients_and_locations(trained, kind):
    model, _, steps = trained(kind)
    (drawn, _), (indices, a) = steps[0], steps[-1]
    for before, after, coefficients in zip(drawn, indices, a, strict=True):
        assert torch.equal(before, after) == (kind == "fixed locations")
        assert coefficients.any()
    training = training_of(model)
    assert training.is_over
    assert training.steps_done == (0 if kind == "fixed locations" else 14)


def test_locations_move_in_the_phases_of_the_locations_alone(trained):
    model, _, steps = trained("central")
    assert len(steps) == STEPS + 1
    schedule, moved = training_of(model).schedule, set()
    for step, ((indices, a), (next_indices, next_a)) in enumerate(pairwise(steps)):
        phase = schedule.phase(step)
        if not same(indices, next_indices):
            moved.add(step)
            assert phase == "locations"
        # Step 13 ends the search, when components that share a location are separated.
        if step != 13:
            assert same(a, next_a) == (phase == "locations")
    assert {step // schedule.period for step in moved} == {0, 1}


@pytest.mark.parametrize("checkpoint", [5, 10, 15])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "fixed locations"])
def test_a_resumed_training_ends_as_the_uninterrupted_one(trained, tmp_path, kind, checkpoint):
    model, folder, _ = trained(kind)
    folder = folder / f"checkpoint-{checkpoint}"
    assert (folder / SEARCH_FILE).exists() == (checkpoint < 14)
    resumed = adapted(**KINDS[kind])
    trainer = trainer_for(resumed, tmp_path, save_strategy="no")
    trainer.train(resume_from_checkpoint=str(folder))
    assert trainer.state.global_step == STEPS
    assert training_of(resumed).is_over
    assert training_of(resumed).steps_done == (14 if checkpoint < 14 else 0)
    assert_same_state(model, resumed)


@pytest.mark.parametrize("checkpoint", [5, 15])
@pytest.mark.parametrize("kind", ["central from a start", "reselect"])
def test_layers_put_in_by_hand_resume_by_the_callback(tmp_path, kind, checkpoint):
    options = {**KINDS[kind]}
    schedule = AlternatingSchedule(**SCHEDULE, recorded_steps=options.pop("recorded_steps"))
    options["search"] = options.pop("location_search", "central")

    def prepare(folder, **settings):
        model = by_hand()
        training = LocationTraining(model, schedule, location_lr=0.05, **options)
        callback = LoCACallback()
        settings |= {"callbacks": [callback], "gradient_checkpointing": True}
        return training, trainer_for(model, folder, **settings)

    training, trainer = prepare(tmp_path)
    drawn = all_indices(trainer.model)
    trainer.train()
    assert training.is_over
    assert not any(map(torch.equal, drawn, all_indices(trainer.model)))
    again, resumed = prepare(tmp_path, save_strategy="no")
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{checkpoint}"))
    assert again.is_over
    assert_same_state(trainer.model, resumed.model)


def test_layers_put_in_by_hand_do_not_lose_their_search_by_resuming_from_elsewhere(tmp_path):
    def prepare(folder):
        model = by_hand()
        training = LocationTraining(model, AlternatingSchedule(**SCHEDULE))
        callbacks = [LoCACallback(training)]
        return trainer_for(model, folder, callbacks=callbacks, max_steps=CHECKPOINT)

    prepare(tmp_path / "first").train()
    checkpoint = tmp_path / "first" / f"checkpoint-{CHECKPOINT}"
    with pytest.raises(InvalidArgumentError, match=checkpoint.name):
        prepare(tmp_path / "second").train(resume_from_checkpoint=str(checkpoint))


def test_layers_put_in_by_hand_are_saved_in_the_folder_of_a_trial(tmp_path):
    training = LocationTraining(by_hand(), AlternatingSchedule(**SCHEDULE))
    callback = LoCACallback(training)
    args = TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True)
    state = TrainerState(is_hyper_param_search=True, global_step=CHECKPOINT)
    with pytest.raises(InvalidArgumentError, match=r"pass hp_name=lambda trial: .* to it"):
        callback.on_train_begin(args, state, None)
    state.trial_name = "run-3"
    folder = tmp_path / "run-3" / f"checkpoint-{CHECKPOINT}"
    folder.mkdir(parents=True)
    callback.on_save(args, state, None, model=None)
    assert (folder / SEARCH_FILE).is_file()
    callback.on_train_begin(args, state, None, model=None)


@pytest.mark.parametrize("first", [CHECKPOINT, STEPS], ids=["in a location phase", "at the end"])
def test_a_second_training_goes_on_where_the_first_ended(tmp_path, first):
    model = adapted()
    kept = trainer_for(model, tmp_path, save_strategy="no", max_steps=first)
    kept.train()
    before = [s.coefficients.detach().clone() for s in spectra(model)]
    indices, training = all_indices(model), training_of(model)
    # The second optimiser is another one, while the first lives on.
    trainer_for(model, tmp_path, save_strategy="no", max_steps=4).train()
    assert training.steps_done == min(first + 4, 14)
    assert same(indices, all_indices(model)) == (first == STEPS)
    assert not any(
        torch.equal(s.coefficients, a) for s, a in zip(spectra(model), before, strict=True)
    )


def test_accumulated_batches_are_one_step(tmp_path):
    model = adapted()
    options = {"gradient_accumulation_steps": 3, "max_steps": 4, "save_strategy": "no"}
    trainer_for(model, tmp_path, **options).train()
    assert training_of(model).steps_done == 4
    assert training_of(model).phase == "locations"


def test_an_optimiser_made_before_the_adapter_is_warned_of_once(tmp_path):
    inner = base()
    optimizer = torch.optim.AdamW(inner.parameters())
    model = in_peft(inner, **SCHEDULE)
    trainer = trainer_for(model, tmp_path, optimizer=optimizer, save_strategy="no")
    with pytest.warns(UserWarning, match="no optimiser holds the coefficients") as said:
        trainer.train()
    assert sum("coefficients of LoCA" in str(w.message) for w in said) == 1
    assert training_of(model).steps_done == 0


def test_a_trained_model_predicts_the_same_after_its_file(trained, tmp_path):
    trainer = trainer_for(trained("central")[0], tmp_path / "run")
    expected = trainer.predict(Sentences()).predictions
    trainer.save_model(str(tmp_path / "final"))
    loaded = PeftModel.from_pretrained(base(), tmp_path / "final")
    found = Trainer(loaded, trainer.args).predict(Sentences()).predictions
    assert (found == expected).all()
    untrained = Trainer(base(), trainer.args).predict(Sentences()).predictions
    assert abs(untrained - expected).max() > 0.1


def test_a_checkpoint_of_the_trainer_is_an_adapter(trained):
    _, folder, steps = trained("central")
    loaded = PeftModel.from_pretrained(base(), folder / f"checkpoint-{CHECKPOINT}")
    indices, a = steps[CHECKPOINT]
    assert same(all_indices(loaded), indices)
    assert same([s.coefficients for s in spectra(loaded)], a)


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
    evaluate, calls = trainer.evaluate, []

    def worse_every_time(*args, **kwargs):
        calls.append(1)
        return evaluate(*args, **kwargs) | {"eval_rank": -len(calls)}

    trainer.evaluate = worse_every_time
    trainer.train()
    best = tmp_path / f"checkpoint-{CHECKPOINT}"
    assert trainer.state.best_model_checkpoint == str(best)
    assert (training_of(model).steps_done, training_of(model).phase) == (CHECKPOINT, "locations")
    assert_same_state(model, PeftModel.from_pretrained(base(), best, is_trainable=True))
