"""A search that follows the steps of one optimiser."""

import copy
import gc
import math
import pickle
import weakref
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from loca_theory.adapters import AlternatingSchedule, CosineSpectrum, follow
from loca_theory.adapters.indices import continuous
from loca_theory.adapters.search import following
from loca_theory.adapters.search.state import HOW_TO_FOLLOW
from loca_theory.errors import InvalidArgumentError

from .searching import (
    EXCHANGES,
    SEARCHES,
    SHORT,
    adamw,
    all_indices,
    assert_distinct,
    close,
    coefficients,
    everything,
    followed,
    loss_of,
    offsets,
    same,
    same_state,
    sgd,
    small,
    spectra,
    train,
    trained,
)

A, L = "coefficients", "locations"
JOINT = AlternatingSchedule(2, 3, 10, joint=True)
ENDLESS = AlternatingSchedule(2, 3, None)
by_set_to_none = pytest.mark.parametrize("set_to_none", [True, False], ids=["None", "zeros"])
by_schedule = pytest.mark.parametrize("schedule", [SHORT, JOINT], ids=["in turn", "jointly"])
by_kind = pytest.mark.parametrize("search", ["central", "reselect"])
by_start = pytest.mark.parametrize("start", ["random", "gradient"])
OPTIMISERS = {
    "AdamW with decay": adamw,
    "fused AdamW": partial(adamw, fused=True),
    "SGD with momentum": partial(sgd, momentum=0.9, weight_decay=0.1),
}
by_optimiser = pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)

# --- phases ---


@by_set_to_none
@by_optimiser
@pytest.mark.parametrize("schedule", [ENDLESS, JOINT], ids=["in turn", "jointly"])
def test_a_phase_moves_what_it_learns_and_nothing_else(schedule, make, set_to_none):
    # SGD's steps are as small as the gradients.
    lr = 10.0 if getattr(make, "func", make) is sgd else 0.1
    model, optimizer = followed(make, schedule=schedule, location_lr=lr)
    for step in range(9):
        phase = schedule.phase(step)
        assert {layer.phase for layer in spectra(model)} == {phase}
        a, indices = coefficients(model), all_indices(model)
        train(model, optimizer, 1, step, set_to_none=set_to_none)
        assert same(coefficients(model), a) == (phase == L)
        assert same(all_indices(model), indices) == (phase == A)
        assert [int(layer.steps) for layer in spectra(model)] == [step + 1] * 2


def located(layer):
    return continuous(layer.indices, layer._size, torch.float64) + layer.offset.detach()


def test_the_optimiser_steps_the_locations_without_decay_and_indices_follow():
    model, optimizer = followed(schedule=ENDLESS)
    train(model, optimizer, 2)
    layer = spectra(model)[0]
    u = located(layer).requires_grad_()
    reference = torch.optim.AdamW([u], lr=0.1, weight_decay=0.0)
    for step in range(2, 10):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        if layer.phase == L:
            u.grad = layer.offset.grad.clone()
            reference.step()
            u.data.clamp_(0.0, 1.0)
        optimizer.step()
        close(located(layer), u.detach())
        assert torch.equal(layer.indices, (u.detach() * (layer.shape - 1)).round().long())


@by_schedule
def test_at_the_end_the_offset_is_gone_and_coefficients_go_on(schedule):
    model, optimizer = followed(schedule=schedule)
    assert sum(p.numel() for p in trained(model)) == 3 * 16
    train(model, optimizer, 9)
    assert {"offset", "steps"} <= {key.rpartition(".")[2] for key in model.state_dict()}
    train(model, optimizer, 1, 9)
    (group,) = optimizer.param_groups
    held = [id(layer.coefficients) for layer in spectra(model)]
    assert [id(p) for p in group["params"]] == [id(p) for p in trained(model)] == held
    assert [id(p) for p in optimizer.state] == held
    assert {key.rpartition(".")[2] for key in model.state_dict()} == {
        "weight",
        "bias",
        "coefficients",
        "indices",
        "shape",
    }
    for layer in spectra(model):
        assert layer.search is layer.following is None
        assert not layer.is_searching
        assert_distinct(layer)
    a, indices = coefficients(model), all_indices(model)
    train(model, optimizer, 3, 10)
    assert same(all_indices(model), indices)
    assert not any(map(torch.equal, coefficients(model), a))


# --- counting ---


@by_set_to_none
@by_kind
@by_optimiser
def test_a_step_with_a_closure_is_one_without(search, make, set_to_none):
    (plain, first), (closed, second) = (followed(make, location_search=search) for _ in range(2))
    train(plain, first, 9)
    for step in range(9):

        def closure(step=step):
            second.zero_grad(set_to_none)
            value = loss_of(closed, step)
            value.backward()
            return value

        second.step(closure)
    assert same_state(everything(closed), everything(plain))


@by_kind
@by_start
def test_two_optimisers_with_a_layer_each_are_one_with_both(search, start):
    options = {"schedule": SHORT, "location_search": search, "init_locations": start}
    single, split = small(**options), small(**options)
    optimizers = [[adamw(single)], [adamw(layer) for layer in (split[0], split[2])]]
    for model, optimizers_of_model in zip((single, split), optimizers, strict=True):
        for optimizer in optimizers_of_model:
            follow(model, optimizer)
    for step in range(12):
        for model, optimizers_of_model in zip((single, split), optimizers, strict=True):
            for optimizer in optimizers_of_model:
                optimizer.zero_grad()
            loss_of(model, step).backward()
            for optimizer in optimizers_of_model:
                optimizer.step()
        assert same_state(everything(split), everything(single))


def test_a_new_optimiser_takes_the_search_over_and_a_removed_search_rests():
    model, old = followed()
    train(model, old, 3)
    new = adamw(model)
    for _ in range(2):  # a step still counts once
        search = follow(model, new)
    train(model, old, 1)
    assert {layer.steps_done for layer in spectra(model)} == {3}
    train(model, new, 2)
    search.remove()
    before = everything(model)
    train(model, new, 1, 5)
    after = everything(model)
    assert not any(map(torch.equal, after[0], before[0]))
    assert same_state(after[1:], before[1:])
    follow(model, new)
    train(model, new, 5)
    assert not any(layer.is_searching for layer in spectra(model))
    assert len(new.param_groups[0]["params"]) == 2


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@by_start
@pytest.mark.parametrize("search", SEARCHES)
def test_a_copy_of_the_model_is_followed_by_itself_and_goes_on(search, start, copied):
    model, optimizer = followed(sgd, location_search=search, init_locations=start)
    for step in range(10):
        twin = copied(model)
        assert {layer.phase for layer in spectra(twin)} == {None}
        train(model, optimizer, 1, step)
        own_optimizer = sgd(twin)
        follow(twin, own_optimizer)
        train(twin, own_optimizer, 1, step)
        assert same_state(everything(twin), everything(model)), step


# --- nobody follows, and other things that are said ---


@pytest.fixture
def _untold(monkeypatch):
    monkeypatch.setattr(CosineSpectrum, "_was_told", False)


KINDS_OF_ADAMW = [{"foreach": False}, {"foreach": True}, {"fused": True}]


@pytest.mark.usefixtures("_untold")
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("kind", KINDS_OF_ADAMW, ids=["plain", "foreach", "fused"])
def test_where_nobody_follows_coefficients_train_locations_rest_and_one_warning_says_so(
    kind, compiled
):
    model = small(schedule=SHORT)
    optimizer, indices, a = adamw(model, **kind), all_indices(model), coefficients(model)
    torch._dynamo.reset()
    run = torch.compile(model, fullgraph=True, backend="aot_eager") if compiled else None
    with pytest.warns(UserWarning, match=r"nobody follows .* call follow\(model, opt") as said:
        train(model, optimizer, 4, run=run)
    assert [str(warning.message) for warning in said].count(HOW_TO_FOLLOW) == 1
    assert same(all_indices(model), indices)
    assert not any(map(torch.equal, coefficients(model), a))
    assert len(list(model.parameters())) == 2 + 4


@pytest.mark.usefixtures("_untold")
def test_a_copy_that_nobody_follows_is_said_and_the_layer_is_freed_at_once():
    model = copy.deepcopy(small(schedule=SHORT))
    with pytest.warns(UserWarning, match="nobody follows"):
        train(model, adamw(model, fused=True), 2)
    layers = [weakref.ref(layer) for layer in spectra(model)]
    gc.disable()
    try:
        del model
        assert [layer() for layer in layers] == [None, None]
    finally:
        gc.enable()


def gradient(model, step=0):
    loss_of(model, step).backward()


def follow_later(model):
    optimizer = adamw(model)
    gradient(model)
    follow(model, optimizer)
    train(model, optimizer, 3)


def look_after_a_search(model):
    gradient(model)
    optimizer = adamw(model)
    handle = follow(model, optimizer)
    train(model, optimizer, 3)
    handle.remove()
    gradient(model)


def load_in_between(model):
    gradient(model)
    model.load_state_dict(small(seed=3, schedule=SHORT).state_dict())
    gradient(model)


def cast_in_between(model):
    for dtype in (torch.float64, torch.bfloat16, torch.float32):
        gradient(model.to(dtype))


def train_after_a_search(model):
    optimizer = adamw(model)
    follow(model, optimizer)
    train(model, optimizer, 14)
    assert not any(layer.is_searching for layer in spectra(model))


def train_the_rest(model):
    for layer in spectra(model):
        layer.coefficients.requires_grad_(False)
    model = copy.deepcopy(model).append(nn.Linear(10, 10, dtype=torch.float64))
    train(model, adamw(model), 3)


def recompute(model):
    for step in range(3):
        loss_of(model, step, run=partial(checkpoint, model, use_reentrant=False)).backward()


NO_TRAINING = {
    "accumulated gradients": lambda model: [gradient(model, step) for step in range(3)],
    "gradient checkpointing": recompute,
    "follow after a gradient": follow_later,
    "a gradient after a search": look_after_a_search,
    "steps after a search": train_after_a_search,
    "another state between gradients": load_in_between,
    "casts between gradients": cast_in_between,
    "frozen coefficients": train_the_rest,
}


@pytest.mark.usefixtures("_untold")
@pytest.mark.parametrize("use", NO_TRAINING.values(), ids=NO_TRAINING.keys())
def test_that_nobody_follows_is_said_of_training_only(use):
    use(small(schedule=SHORT))  # a warning is an error


def test_locations_that_never_left_their_index_are_said():
    model, optimizer = followed(location_lr=1e-9)
    train(model, optimizer, 9)
    with pytest.warns(UserWarning, match="none of them has left its index; raise location_lr"):
        train(model, optimizer, 1, 9)


def test_what_cannot_be_followed_is_said(monkeypatch):
    model = small()
    with pytest.warns(UserWarning, match="nothing to follow; set alternating_steps of LoCAConfig"):
        follow(model, adamw(model))
    monkeypatch.setattr(following, "is_distributed", lambda: True)
    model = small(schedule=SHORT)
    with pytest.raises(InvalidArgumentError, match=r"first: .* call follow\(model\) before Distr"):
        follow(model, adamw(model))


@by_schedule
def test_locations_that_are_no_numbers_are_an_error(schedule):
    model, optimizer = followed(schedule=schedule)
    train(model, optimizer, 2)
    (loss_of(model) * math.nan).backward()
    with pytest.raises(InvalidArgumentError, match="first: its locations have become NaN"):
        optimizer.step()


# --- the rate of the locations ---

RATES = [0.0, 0.5, 1.0, 0.25, 2.0, 1.0, 0.5, 0.125, 0.5, 1.0]


@pytest.mark.parametrize("earlier", [True, False], ids=["made earlier", "made later"])
def test_a_scheduler_scales_the_rate_of_the_locations_of_its_group(earlier):
    """Schedulers that begin low call that the initial rate: locations never exceed theirs."""
    model = small(schedule=SHORT)
    optimizer = torch.optim.SGD([{"params": [s.coefficients]} for s in spectra(model)], lr=0.1)

    def made():
        rates = [lambda t: RATES[t % 10], lambda _: 0.0]
        return torch.optim.lr_scheduler.LambdaLR(optimizer, rates)

    scheduler = made() if earlier else None
    follow(model, optimizer)
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 2]
    scheduler = scheduler or made()
    layer, resting = spectra(model)
    start = located(resting)
    for step, rate in enumerate(RATES[:9]):
        before, phase = located(layer), layer.phase
        train(model, optimizer, 1, step)
        if phase == L:
            expected = (before - 0.1 * min(rate, 1.0) * layer.offset.grad).clamp(0.0, 1.0)
            close(located(layer), expected)
        scheduler.step()
    close(located(resting), start)


@pytest.mark.parametrize("search", ["central", *EXCHANGES])
@pytest.mark.parametrize("fused", [False, True])
def test_a_gradscaler_changes_nothing_and_what_it_skips_does_not_count(search, fused):
    """A fused optimiser divides by the scale, and skips an overflow, inside its own step."""
    plain, first = followed(dtype=torch.float32, location_search=search)
    model, optimizer = followed(
        partial(adamw, fused=fused), dtype=torch.float32, location_search=search
    )
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    follow(model, optimizer, scaler=scaler)
    done = 0
    for step in range(10):
        optimizer.zero_grad()
        overflows = step in (1, 4)
        factor = math.inf if overflows else 1.0
        scaler.scale(loss_of(model, done) * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        if not overflows:
            train(plain, first, 1, done)
            done += 1
    assert {layer.steps_done for layer in spectra(model)} == {8}
    assert same(all_indices(model), all_indices(plain))
    for ours, theirs in zip(offsets(model), offsets(plain), strict=True):
        # Fused kernels round otherwise; Adam turns that into a part of a step of 0.1.
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


# --- resuming ---


def rates_of(optimizer):
    """Warm-up from 0, then decay."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(t / 8, (30 - t) / 22))


def resumable(search, start):
    schedule = AlternatingSchedule(2, 4, 18, recorded_steps=3)
    model = small(schedule=schedule, location_search=search, init_locations=start)
    optimizer = adamw(model)
    return model, optimizer, rates_of(optimizer)


def run(model, optimizer, rates, steps, start):
    for step in range(start, start + steps):
        train(model, optimizer, 1, step)
        rates.step()


ORDERS = ["follow, load", "load, follow", "load the model, make the optimiser"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("stop", [2, 5, 11, 20])
@pytest.mark.parametrize(
    ("search", "start"),
    [("central", "random"), ("central", "gradient"), ("reselect", "random"), ("swap", "gradient")],
)
def test_the_states_of_model_and_optimiser_are_enough_to_resume(search, start, stop, order):
    uninterrupted = resumable(search, start)
    follow(*uninterrupted[:2])
    run(*uninterrupted, stop, 0)
    states = copy.deepcopy([part.state_dict() for part in uninterrupted])
    model, optimizer, rates = resumable(search, start)
    if order == "follow, load":
        follow(model, optimizer)
    model.load_state_dict(states[0])
    if order == "load the model, make the optimiser":
        optimizer = adamw(model)
        rates = rates_of(optimizer)
        follow(model)
    if order != "follow, load":
        follow(model, optimizer)
    optimizer.load_state_dict(states[1])
    rates.load_state_dict(states[2])
    run(*uninterrupted, 24 - stop, stop)
    run(model, optimizer, rates, 24 - stop, stop)
    assert same_state(model.state_dict(), uninterrupted[0].state_dict())
    assert not any(layer.is_searching for layer in spectra(uninterrupted[0]))


# --- others ---


def test_a_layer_whose_coefficients_are_frozen_is_not_followed():
    model = small(schedule=SHORT)
    model[2].spectrum.requires_grad_(False)
    optimizer = adamw(model)
    follow(model, optimizer)
    train(model, optimizer, 3)
    assert [layer.steps_done for layer in spectra(model)] == [3, 0]
    assert spectra(model)[1].offset is None
