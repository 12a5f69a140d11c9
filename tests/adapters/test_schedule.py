"""What is learned when: the phases, and that optimiser steps alone move them on."""

import copy
import gc
import pickle
import warnings
from itertools import cycle

import pytest
import torch
from torch import nn

from loca_theory.adapters import (
    AlternatingSchedule,
    CosineSpectrum,
    LoCALinear,
    LocationTraining,
    parameter_groups,
)
from loca_theory.errors import InvalidArgumentError

A, L = "coefficients", "locations"
SHORT = AlternatingSchedule(2, 3, 10)


def adamw(model, **options):
    groups = parameter_groups(
        model, **{"lr": 1e-2, "location_lr": 1e-2, "weight_decay": 0.1, **options}
    )
    return torch.optim.AdamW(groups)


def heavy(optimizer_class, **options):
    """An optimiser that decays and pushes everything it is given."""

    def make(model):
        parameters = [p for m in model.modules() for p in own(m)]
        return optimizer_class(parameters, lr=1e-2, weight_decay=0.1, **options)

    return make


def own(module):
    if not isinstance(module, CosineSpectrum):
        return []
    return list(module.parameters(recurse=False))


OPTIMISERS = {
    "AdamW in groups": adamw,
    "AdamW with decay of all": heavy(torch.optim.AdamW),
    "SGD with momentum": heavy(torch.optim.SGD, momentum=0.9),
}


def small(seed=0, **options):
    torch.manual_seed(seed)
    model = nn.Sequential(
        LoCALinear(nn.Linear(12, 8), 9, **{"zero_init": False, "seed": seed, **options}),
        nn.Tanh(),
        LoCALinear(nn.Linear(8, 10), 7, **{"zero_init": False, "seed": seed + 1, **options}),
    )
    model.register_buffer("target", torch.randn(16, 10))
    model.register_buffer("input", torch.randn(16, 12))
    return model


def loss(model, rows=slice(None)):
    return (model(model.input[rows]) - model.target[rows]).square().mean()


def train(model, optimizer, steps, set_to_none=True):
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=set_to_none)
        loss(model).backward()
        optimizer.step()


def spectra(model):
    return [m for m in model.modules() if isinstance(m, CosineSpectrum)]


def snapshot(model):
    """Copies of everything a spectrum holds, by kind."""
    found = {A: [], L: [], "indices": []}
    for s in spectra(model):
        found[A].append(s.coefficients.detach().clone())
        found["indices"].append(s.indices.clone())
        if s.locations is not None:
            found[L].append(s.locations.detach().clone())
    return found


def same(first, second):
    return len(first) == len(second) and all(map(torch.equal, first, second))


# --- the schedule ---

PHASES = {
    "in turn": (AlternatingSchedule(2, 3, 10), [A, A, L, L, L, A, A, L, L, L, None, None]),
    "cut off": (AlternatingSchedule(2, 3, 4), [A, A, L, L, None, None]),
    "one each": (AlternatingSchedule(1, 1, 3), [A, L, A, None]),
    "as printed": (
        AlternatingSchedule(2, 3, 9, as_printed=True),
        [A, L, L, L, A, A, L, L, L, None],
    ),
    "as printed, one": (AlternatingSchedule(1, 2, 5, as_printed=True), [L, L, A, L, L, None]),
    "jointly": (AlternatingSchedule(2, 3, 3, joint=True), ["both"] * 3 + [None] * 2),
    "jointly for ever": (AlternatingSchedule(2, 3, None, joint=True), ["both"] * 20),
    "never": (AlternatingSchedule(2, 3, 0), [None] * 4),
    "never, jointly": (AlternatingSchedule(2, 3, 0, joint=True), [None] * 4),
    "for ever": (AlternatingSchedule(2, 1, None), [A, A, L] * 5),
}


@pytest.mark.parametrize(("schedule", "phases"), PHASES.values(), ids=PHASES)
def test_phases_are_those_of_the_definition(schedule, phases):
    assert [schedule.phase(t) for t in range(len(phases))] == phases


def test_the_defaults_are_the_papers():
    phases = [AlternatingSchedule().phase(t) for t in range(700)]
    assert phases == ([A] * 10 + [L] * 20) * 20 + [None] * 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coefficient_steps": 0}, "coefficient_steps must be an integer of at least 1, not 0"),
        ({"coefficient_steps": -2}, "coefficient_steps must be an integer of at least 1, not -2"),
        ({"location_steps": 0}, "location_steps must be an integer of at least 1, not 0"),
        (
            {"alternating_steps": -1},
            "alternating_steps must be an integer of at least 0",
        ),
    ],
    ids=str,
)
def test_impossible_schedules_are_refused(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        AlternatingSchedule(**options)


# --- training ---


def test_a_model_without_locations_to_learn_is_refused():
    with pytest.raises(InvalidArgumentError, match="no LoCA layer that learns locations"):
        LocationTraining(small(learn_locations=False), SHORT)
    with pytest.raises(InvalidArgumentError, match="no LoCA layer that learns locations"):
        LocationTraining(nn.Linear(2, 2), SHORT)


def test_without_alternation_nothing_needs_to_be_learnable():
    model = small()
    before = snapshot(model)
    training = LocationTraining(model, AlternatingSchedule(alternating_steps=0))
    assert training.phase is None
    assert training.parameters() == []
    assert not any(s.learns_locations for s in spectra(model))
    assert same(snapshot(model)["indices"], before["indices"])
    LocationTraining(small(learn_locations=False), AlternatingSchedule(alternating_steps=0))


@pytest.mark.filterwarnings("ignore:the LoCA locations share a group")
@pytest.mark.parametrize("set_to_none", [True, False], ids=["None", "zeros"])
@pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)
def test_a_phase_moves_its_own_group_and_no_other(make, set_to_none):
    model = small()
    optimizer = make(model)
    training = LocationTraining(model, AlternatingSchedule(2, 3, None))
    phases = []
    for _ in range(10):
        phase, before = training.phase, snapshot(model)
        train(model, optimizer, 1, set_to_none)
        after = snapshot(model)
        phases.append(phase)
        assert same(before[A], after[A]) == (phase == L)
        assert same(before[L], after[L]) == (phase == A)
        if phase == A:
            assert same(before["indices"], after["indices"])
    assert phases == [A, A, L, L, L] * 2


def test_locations_move_in_location_phases():
    model = small()
    before = snapshot(model)
    training = LocationTraining(model, SHORT)
    train(model, adamw(model, location_lr=0.2), 5)
    assert training.steps_done == 5
    assert not same(before["indices"], snapshot(model)["indices"])


@pytest.mark.parametrize("schedule", [SHORT, AlternatingSchedule(2, 3, 10, joint=True)], ids=str)
def test_after_the_last_step_locations_are_frozen_and_coefficients_go_on(schedule):
    model = small()
    optimizer = adamw(model, location_lr=0.3)
    training = LocationTraining(model, schedule)
    train(model, optimizer, 10)
    assert training.phase is None
    for s in spectra(model):
        assert not s.learns_locations
        assert torch.unique(s.indices, dim=0).shape == s.indices.shape
    before = snapshot(model)
    train(model, optimizer, 3)
    after = snapshot(model)
    assert same(before["indices"], after["indices"])
    assert not same(before[A], after[A])
    assert training.steps_done == 10


def test_freezing_releases_the_moments_of_the_locations():
    model = small()
    optimizer = adamw(model)
    training = LocationTraining(model, SHORT)
    locations = training.parameters()
    train(model, optimizer, 9)
    assert all(p in optimizer.state for p in locations)
    train(model, optimizer, 1)
    assert not any(p in optimizer.state for p in locations)


def test_a_joint_phase_moves_everything():
    model = small()
    optimizer = adamw(model)
    training = LocationTraining(model, AlternatingSchedule(2, 3, 5, joint=True))
    before = snapshot(model)
    train(model, optimizer, 1)
    after = snapshot(model)
    assert training.phase == "both"
    for first, second in zip(before[A] + before[L], after[A] + after[L], strict=True):
        assert not torch.equal(first, second)


# --- counting ---


def test_optimiser_steps_count_and_backward_passes_do_not():
    model = small()
    optimizer = adamw(model)
    training = LocationTraining(model, SHORT)
    for done in range(4):
        assert training.steps_done == done
        optimizer.zero_grad()
        for part in range(4):
            (loss(model, slice(4 * part, 4 * part + 4)) / 4).backward()
        assert training.steps_done == done
        optimizer.step()


def test_a_skipped_step_does_not_count():
    model = small()
    optimizer = adamw(model)
    training = LocationTraining(model, SHORT)
    for finite in (True, False, False, True):
        optimizer.zero_grad()
        loss(model).backward()
        if finite:
            optimizer.step()
    assert training.steps_done == 2
    assert training.phase == L


def test_a_step_with_a_closure_counts_once():
    model = small()
    optimizer = adamw(model)
    training = LocationTraining(model, SHORT)

    def closure():
        optimizer.zero_grad()
        value = loss(model)
        value.backward()
        return value

    optimizer.step(closure)
    assert training.steps_done == 1


def test_the_steps_of_other_optimisers_do_not_count():
    model, other = small(), nn.Linear(2, 2)
    training = LocationTraining(model, SHORT)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    for _ in range(5):
        other(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert training.steps_done == 0


def test_two_trainings_do_not_disturb_each_other():
    first, second = small(0), small(0)
    alone = small(0)
    trainings = [
        LocationTraining(first, SHORT),
        LocationTraining(second, AlternatingSchedule(1, 1, 4)),
        LocationTraining(alone, SHORT),
    ]
    optimizers = [adamw(model) for model in (first, second, alone)]
    for done in range(1, 7):
        train(first, optimizers[0], 1)
        train(second, optimizers[1], 1)
        assert [t.steps_done for t in trainings] == [done, min(done, 4), 0]
    train(alone, optimizers[2], 6)
    assert trainings[2].steps_done == 6
    for mine, theirs in zip(snapshot(alone).values(), snapshot(first).values(), strict=True):
        assert same(mine, theirs)


def test_the_model_keeps_its_schedule():
    model = small()
    optimizer = adamw(model)
    LocationTraining(model, SHORT)
    gc.collect()
    train(model, optimizer, 2)
    assert [s.training_schedule.steps_done for s in spectra(model)] == [2, 2]


def test_what_is_frozen_cannot_be_learned_again():
    model = small()
    training = LocationTraining(model, SHORT)
    training.go_to(SHORT.alternating_steps)
    with pytest.raises(InvalidArgumentError, match="frozen, and step 1 would learn them"):
        training.go_to(1)


@pytest.mark.parametrize(
    "settings",
    [{"coefficient_steps": 2.5}, {"alternating_steps": float("nan")}],
    ids=["a fraction", "no number"],
)
def test_steps_are_whole(settings):
    with pytest.raises(InvalidArgumentError, match="must be an integer"):
        AlternatingSchedule(**settings)


def test_a_loop_may_count_by_itself():
    model = small()
    optimizer = adamw(model)
    training = LocationTraining(model, SHORT, automatic=False)
    train(model, optimizer, 5)
    assert training.steps_done == 0
    for _ in range(2):
        train(model, optimizer, 1)
        training.step()
    assert training.steps_done == 2
    assert training.phase == L
    assert [s.phase for s in spectra(model)] == [L, L]


def test_it_warns_once_if_the_optimiser_has_no_locations():
    model = small()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    training = LocationTraining(model, SHORT)
    assert not training.holds_locations(optimizer)
    train(model, optimizer, 1)
    with pytest.warns(UserWarning, match="the optimiser has no LoCA locations") as seen:
        train(model, optimizer, 6)
    assert len(seen) == 1
    assert training.steps_done == 0


def test_it_does_not_warn_if_the_locations_have_an_optimiser_of_their_own():
    model = small()
    locations = [s.locations for s in spectra(model)]
    optimizers = [
        torch.optim.SGD([s.coefficients for s in spectra(model)], lr=1e-2),
        torch.optim.SGD(locations, lr=1e-2),
    ]
    training = LocationTraining(model, SHORT)
    assert training.holds_locations(optimizers[1])
    for done in range(1, 7):
        loss(model).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        assert training.steps_done == done


# --- resuming ---


@pytest.mark.filterwarnings("ignore:the LoCA locations share a group")
@pytest.mark.parametrize(
    ("steps", "optimiser"), list(zip([1, 3, 6, 10, 12], cycle(OPTIMISERS))), ids=str
)
def test_resumed_training_is_bitwise_the_uninterrupted_one(steps, optimiser, tmp_path):
    make = OPTIMISERS[optimiser]
    model = small()
    optimizer, training = make(model), LocationTraining(model, SHORT)
    train(model, optimizer, steps)
    parts = (model.state_dict(), optimizer.state_dict(), training.state_dict())
    torch.save(parts, tmp_path / "checkpoint.pt")
    train(model, optimizer, 15 - steps)

    resumed = small(seed=3)
    again, continued = make(resumed), LocationTraining(resumed, SHORT)
    of_model, of_optimizer, of_training = torch.load(tmp_path / "checkpoint.pt")
    resumed.load_state_dict(of_model)
    again.load_state_dict(of_optimizer)
    continued.load_state_dict(of_training)
    assert continued.steps_done == min(steps, 10)
    train(resumed, again, 15 - steps)
    assert continued.steps_done == training.steps_done == 10
    for mine, theirs in zip(snapshot(resumed).values(), snapshot(model).values(), strict=True):
        assert same(mine, theirs)


def test_a_pickled_training_goes_on_counting():
    model = small()
    training = LocationTraining(model, SHORT)
    copied_model, copied = pickle.loads(pickle.dumps((model, training)))
    train(copied_model, adamw(copied_model), 3)
    assert copied.steps_done == 3
    assert training.steps_done == 0


def test_a_deep_copy_of_the_model_trains_without_a_schedule():
    model = small()
    training = LocationTraining(model, SHORT)
    twin = copy.deepcopy(model)
    train(twin, adamw(twin), 3)
    assert training.steps_done == 0


# --- without a schedule ---


def test_plain_gradient_descent_moves_all_that_asks_for_a_gradient():
    model = small(learn_locations=False)
    assert not any(s.learns_locations for s in spectra(model))
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    assert set(named) == {"0.spectrum.coefficients", "2.spectrum.coefficients"}
    before = {n: p.detach().clone() for n, p in named.items()}
    train(model, torch.optim.SGD(named.values(), lr=0.5), 3)
    assert all(bool((p != before[n]).any()) for n, p in named.items())


def test_without_a_schedule_learnable_locations_ask_for_no_gradient():
    model = small()
    for s in spectra(model):
        assert not s.locations.requires_grad
        assert s.coefficients.requires_grad
    before = snapshot(model)
    train(model, torch.optim.SGD(model.parameters(), lr=0.5), 3)
    after = snapshot(model)
    for kind, (first, second) in {k: (before[k], after[k]) for k in before}.items():
        assert same(first, second) == (kind != A)


# --- groups ---


def test_groups_are_coefficients_vectors_and_locations():
    model = nn.ModuleDict({"body": small(), "norm": nn.LayerNorm(10), "head": nn.Linear(10, 3)})
    LocationTraining(model, SHORT)
    groups = parameter_groups(model, lr=2e-3, location_lr=3e-5, weight_decay=0.2)
    names = {id(p): n for n, p in model.named_parameters()}
    found = [sorted(names[id(p)].removeprefix("body.") for p in g["params"]) for g in groups]
    assert found == [
        ["0.spectrum.coefficients", "2.spectrum.coefficients", "head.weight"],
        ["head.bias", "norm.bias", "norm.weight"],
        ["0.spectrum.locations", "2.spectrum.locations"],
    ]
    assert [(g["lr"], g["weight_decay"]) for g in groups] == [(2e-3, 0.2), (2e-3, 0.0), (3e-5, 0.0)]


@pytest.mark.parametrize("phase", [A, L, "both"])
def test_groups_do_not_depend_on_the_phase(phase):
    model = small()
    for s in spectra(model):
        s.set_phase(phase)
    groups = parameter_groups(model, lr=1e-3)
    assert [[id(p) for p in g["params"]] for g in groups] == [
        [id(s.coefficients) for s in spectra(model)],
        [id(s.locations) for s in spectra(model)],
    ]
    assert groups[1]["lr"] == 1e-4


def test_fixed_and_inactive_layers_add_no_locations():
    model = small(learn_locations=False)
    assert len(parameter_groups(model, lr=1e-3)) == 1
    model = small()
    spectra(model)[0].set_trainable(False)
    groups = parameter_groups(model, lr=1e-3)
    assert [[id(p) for p in g["params"]] for g in groups] == [
        [id(spectra(model)[1].coefficients)],
        [id(spectra(model)[1].locations)],
    ]


def test_a_model_with_nothing_to_train_has_no_groups():
    with pytest.raises(InvalidArgumentError, match="no trainable parameter"):
        parameter_groups(small().requires_grad_(False), lr=1e-3)


def test_training_lowers_the_loss_and_is_silent():
    model = small()
    training = LocationTraining(model, SHORT)
    before = float(loss(model).detach())
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        train(model, adamw(model), 30)
    assert training.phase is None
    assert float(loss(model).detach()) < before
    assert not seen


def test_locations_among_other_parameters_are_remarked_on_once():
    model = small()
    LocationTraining(model, SHORT)
    optimizer = heavy(torch.optim.AdamW)(model)
    with pytest.warns(UserWarning, match="share a group of the optimiser") as said:
        train(model, optimizer, 4)
    assert len(said) == 1


def test_a_layer_whose_locations_nobody_learns_says_so_once():
    model = small()
    optimizer = adamw(model)
    with pytest.warns(UserWarning, match="are not being learned; make a LocationTraining") as said:
        train(model, optimizer, 80)
    assert len(said) == len(spectra(model))


def test_a_loop_that_sets_phases_itself_is_left_alone():
    model = small()
    optimizer = adamw(model)
    for phase in (L, "coefficients"):
        for spectrum in spectra(model):
            spectrum.set_phase(phase)
        train(model, optimizer, 60)


def test_settled_spectra_need_no_training():
    model = small()
    training = LocationTraining(model, SHORT)
    training.go_to(SHORT.alternating_steps)
    loaded = small()
    again = LocationTraining(loaded, SHORT)
    loaded.load_state_dict(model.state_dict())
    assert again.phase is None
    before = [s.indices.clone() for s in spectra(loaded)]
    train(loaded, torch.optim.SGD([s.coefficients for s in spectra(loaded)], lr=0.1), 12)
    assert all(torch.equal(a, s.indices) for a, s in zip(before, spectra(loaded), strict=True))
