"""What is learned when: the phases, and that steps of an optimiser move them on."""

import copy
import gc
import math
import pickle
import weakref

import pytest
import torch
from torch import nn

from loca_theory.adapters import AlternatingSchedule, LocationTraining
from loca_theory.errors import InvalidArgumentError

from .searching import (
    SEARCHES,
    adamw,
    all_indices,
    assert_distinct,
    batches,
    close,
    coefficients,
    everything,
    same,
    same_state,
    small,
    spectra,
    train,
)

A, L = "coefficients", "locations"
SHORT = AlternatingSchedule(2, 3, 10, recorded_steps=2)
JOINT = AlternatingSchedule(2, 3, 10, joint=True)
ENDLESS = AlternatingSchedule(2, 3, None)


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, **options})


def loss(model, step=0, rows=slice(None)):
    x, y = batches(1, step)[0]
    return (model(x[rows]) - y[rows]).square().mean()


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
    "the paper's": (AlternatingSchedule(), ([A] * 10 + [L] * 20) * 20 + [None] * 100),
}


@pytest.mark.parametrize(("schedule", "phases"), PHASES.values(), ids=PHASES)
def test_phases_are_those_of_the_definition(schedule, phases):
    assert [schedule.phase(t) for t in range(len(phases))] == phases


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coefficient_steps": 0}, "coefficient_steps must be an integer of at least 1, not 0"),
        ({"coefficient_steps": -2}, "coefficient_steps must be an integer of at least 1, not -2"),
        ({"coefficient_steps": 2.5}, "coefficient_steps must be an integer of at least 1, not 2.5"),
        ({"location_steps": 0}, "location_steps must be an integer of at least 1, not 0"),
        ({"recorded_steps": 0}, "recorded_steps must be an integer of at least 1, not 0"),
        ({"alternating_steps": -1}, "alternating_steps must be an integer of at least 0, or None"),
        ({"alternating_steps": math.nan}, "alternating_steps must be an integer of at least 0"),
    ],
    ids=str,
)
def test_impossible_schedules_are_refused(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        AlternatingSchedule(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": nn.Linear(2, 2)}, "the model has no LoCA layer"),
        ({"model": []}, "the model has no LoCA layer"),
        ({"search": "nowhere"}, "unknown search 'nowhere'"),
        ({"init_locations": "nowhere"}, "init_locations.*nowhere"),
        ({"location_lr": 0.0}, "location_lr must be positive and finite, not 0.0"),
        ({"location_lr": math.inf}, "location_lr must be positive and finite, not inf"),
        (
            {"search": "reselect", "schedule": JOINT},
            "joint=True learns locations along a gradient, and 'reselect' has none",
        ),
        (
            {"search": "swap", "schedule": AlternatingSchedule(10, 20, 7)},
            "alternating_steps=7 ends before .* every 30 steps",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_impossible_trainings_are_refused(options, message):
    options = {"model": small(), "schedule": SHORT, **options}
    with pytest.raises(InvalidArgumentError, match=message):
        LocationTraining(options.pop("model"), options.pop("schedule"), **options)


# --- phases ---

OPTIMISERS = {
    "AdamW with decay": adamw,
    "SGD with momentum": lambda model: sgd(model, momentum=0.9, weight_decay=0.1),
}


@pytest.mark.parametrize("set_to_none", [True, False], ids=["None", "zeros"])
@pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)
@pytest.mark.parametrize("schedule", [ENDLESS, JOINT], ids=["in turn", "jointly"])
def test_a_phase_moves_what_it_learns_and_nothing_else(schedule, make, set_to_none):
    model = small()
    optimizer, training = make(model), LocationTraining(model, schedule, location_lr=0.1)
    for step in range(9):
        phase = training.phase
        assert phase == schedule.phase(step)
        a, indices = coefficients(model), all_indices(model)
        train(model, optimizer, 1, start=step, set_to_none=set_to_none)
        assert same(coefficients(model), a) == (phase == L)
        assert same(all_indices(model), indices) == (phase == A)
        assert training.steps_done == step + 1


@pytest.mark.parametrize("set_to_none", [True, False], ids=["None", "zeros"])
def test_a_layer_that_is_not_used_in_a_location_phase_stays(set_to_none):
    model = small()
    optimizer, _ = adamw(model), LocationTraining(model, ENDLESS, location_lr=0.1)
    train(model, optimizer, 2)
    before = everything(model)
    optimizer.zero_grad(set_to_none)
    model[0](batches(1)[0][0]).square().mean().backward()
    optimizer.step()
    after = everything(model)
    assert same(after[0], before[0])
    is_same = [list(map(torch.equal, *pair)) for pair in zip(after[1:], before[1:], strict=True)]
    assert is_same == [[False, True]] * 2


def test_locations_move_by_adamw_without_decay_and_indices_follow():
    model = small()
    optimizer, training = adamw(model), LocationTraining(model, ENDLESS, location_lr=0.1)
    train(model, optimizer, 2)
    layer = spectra(model)[0]
    u = layer.search.locations.detach().clone().requires_grad_()
    reference = torch.optim.AdamW([u], lr=0.1, weight_decay=0.0)
    for step in range(2, 10):
        optimizer.zero_grad()
        loss(model, step).backward()
        if training.phase == L:
            u.grad = layer.search.locations.grad.clone()
            reference.step()
            u.data.clamp_(0.0, 1.0)
        optimizer.step()
        close(layer.search.locations.detach(), u.detach(), 1e-6)
        assert torch.equal(layer.indices, (u.detach() * (layer.shape - 1)).round().long())


@pytest.mark.parametrize("schedule", [SHORT, JOINT], ids=["in turn", "jointly"])
def test_after_the_last_step_indices_are_final_and_coefficients_go_on(schedule):
    model = small()
    optimizer, training = adamw(model), LocationTraining(model, schedule, location_lr=0.3)
    train(model, optimizer, 9)
    leaves = [weakref.ref(layer.search.locations) for layer in spectra(model)]
    assert not training.is_over
    train(model, optimizer, 1, start=9)
    assert training.is_over
    assert training.phase is None
    for layer in spectra(model):
        assert layer.search is None
        assert_distinct(layer)
    gc.collect()
    assert [leaf() for leaf in leaves] == [None, None]  # memory of the search is released
    a, indices = coefficients(model), all_indices(model)
    train(model, optimizer, 3, start=10)
    assert same(all_indices(model), indices)
    assert not any(map(torch.equal, coefficients(model), a))
    assert training.steps_done == 10


def test_the_end_separates_components_that_share_a_location_and_leaves_the_increment():
    model = small()
    training = LocationTraining(model, SHORT, location_lr=1.0)
    train(model, adamw(model), 5)
    for layer in spectra(model):
        assert len(torch.unique(layer.indices, dim=0)) < len(layer.indices)
    before = [layer.increment().detach() for layer in spectra(model)]
    training.finish()
    for layer, delta in zip(spectra(model), before, strict=True):
        assert_distinct(layer)
        close(layer.increment().detach(), delta)


@pytest.mark.parametrize("trains", [True, False], ids=["a schedule of no steps", "no schedule"])
def test_without_a_search_coefficients_alone_are_learned(trains):
    model = small()
    a, indices, _ = everything(model)
    if trains:
        training = LocationTraining(model, AlternatingSchedule(alternating_steps=0))
        assert training.is_over
    assert [layer.search for layer in spectra(model)] == [None, None]
    train(model, adamw(model), 3)
    assert same(all_indices(model), indices)
    assert not any(map(torch.equal, coefficients(model), a))


def test_training_lowers_the_loss():
    model = small()
    optimizer = adamw(model)
    LocationTraining(model, SHORT, location_lr=0.02)
    before = float(loss(model).detach())
    for _ in range(30):
        train(model, optimizer, 1)
    assert float(loss(model).detach()) < before


# --- counting ---


def test_only_steps_of_the_optimiser_count():
    model = small()
    optimizer, training = adamw(model), LocationTraining(model, SHORT)
    for done, finite in enumerate((True, True, True, False)):
        optimizer.zero_grad()
        for part in range(4):
            (loss(model, done, slice(4 * part, 4 * part + 4)) / 4).backward()
        assert training.steps_done == done
        if finite:  # otherwise a GradScaler skips the step
            optimizer.step()
    assert training.steps_done == 3
    assert training.phase == L


def with_closure(model, optimizer, steps, set_to_none=True):
    for step in range(steps):

        def closure(step=step):
            optimizer.zero_grad(set_to_none)
            value = loss(model, step)
            value.backward()
            return value

        optimizer.step(closure)


@pytest.mark.parametrize("set_to_none", [True, False], ids=["None", "zeros"])
@pytest.mark.parametrize("search", ["central", "reselect"])
@pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)
def test_a_step_with_a_closure_is_one_without(search, make, set_to_none):
    plain, closed = small(), small()
    for model in (plain, closed):
        LocationTraining(model, SHORT, search=search, location_lr=0.1)
    train(plain, make(plain), 9)
    with_closure(closed, make(closed), 9, set_to_none)
    assert [layer.location_training.steps_done for layer in spectra(closed)] == [9, 9]
    assert same_state(everything(closed), everything(plain))


def test_an_optimiser_that_calls_its_closure_many_times_follows_the_phases():
    model = small()
    optimizer = torch.optim.LBFGS([s.coefficients for s in spectra(model)], lr=0.1, max_iter=3)
    training = LocationTraining(model, ENDLESS, location_lr=0.1)
    for step in range(10):
        phase, a, indices = training.phase, coefficients(model), all_indices(model)
        with_closure(model, optimizer, 1)
        assert training.steps_done == step + 1
        assert same(coefficients(model), a) == (phase == L)
        assert same(all_indices(model), indices) == (phase == A)


@pytest.mark.parametrize("start", ["random", "gradient"])
@pytest.mark.parametrize("search", ["central", "reselect"])
def test_two_optimisers_with_a_layer_each_are_one_with_both(search, start):
    models = small(), small()
    for model in models:
        options = {"search": search, "init_locations": start, "location_lr": 0.1}
        LocationTraining(model, SHORT, **options)
    one, both = models
    optimizers = [[sgd(one)], [sgd(layer) for layer in (both[0], both[2])]]
    for step in range(12):
        for model, mine in zip(models, optimizers, strict=True):
            for optimizer in mine:
                optimizer.zero_grad()
            loss(model, step).backward()
            for optimizer in mine:
                optimizer.step()
        assert same_state(everything(both), everything(one)), step


def test_steps_count_though_no_optimiser_holds_one_of_the_layers():
    model = small()
    optimizer, training = sgd(model[0]), LocationTraining(model, ENDLESS, location_lr=0.1)
    a, indices = coefficients(model), all_indices(model)
    train(model, optimizer, 7)
    assert training.steps_done == 7
    assert torch.equal(coefficients(model)[1], a[1])
    assert not torch.equal(all_indices(model)[0], indices[0])


def test_two_trainings_do_not_disturb_each_other():
    first, second, alone = small(), small(), small()
    trainings = [
        LocationTraining(first, SHORT),
        LocationTraining(second, AlternatingSchedule(1, 1, 4)),
        LocationTraining(alone, SHORT),
    ]
    optimizers = [adamw(model) for model in (first, second, alone)]
    for done in range(6):
        train(first, optimizers[0], 1, start=done)
        train(second, optimizers[1], 1, start=done)
        assert [t.steps_done for t in trainings] == [done + 1, min(done + 1, 4), 0]
    train(alone, optimizers[2], 6)
    assert trainings[2].steps_done == 6
    assert same_state(everything(alone), everything(first))


def test_two_searches_train_side_by_side():
    model = small()
    trainings = [
        LocationTraining([layer], SHORT, search=search, location_lr=0.1)
        for layer, search in zip(spectra(model), ("reselect", "central"), strict=True)
    ]
    before = all_indices(model)
    train(model, adamw(model), 12)
    assert not any(map(torch.equal, before, all_indices(model)))
    assert [training.steps_done for training in trainings] == [10, 10]
    assert [layer.search for layer in spectra(model)] == [None, None]


def test_a_new_training_takes_the_layers_over():
    model = small()
    old = LocationTraining(model, SHORT, search="reselect")
    train(model, adamw(model), 4)
    new = LocationTraining(model, SHORT, location_lr=0.1)
    assert old.is_over
    train(model, adamw(model), 3, start=4)
    assert (old.steps_done, new.steps_done) == (4, 3)


def test_the_model_keeps_its_training():
    model = small()
    LocationTraining(model, SHORT)
    gc.collect()
    train(model, adamw(model), 2)
    assert [layer.location_training.steps_done for layer in spectra(model)] == [2, 2]


@pytest.mark.parametrize("start", ["random", "gradient"])
@pytest.mark.parametrize("search", ["central", "reselect"])
def test_a_loop_that_counts_by_itself_finds_the_same(search, start):
    counted, by_hand = small(), small()
    options = {"search": search, "init_locations": start, "location_lr": 0.1}
    LocationTraining(counted, SHORT, **options)
    training = LocationTraining(by_hand, SHORT, automatic=False, **options)
    optimizers = adamw(counted), adamw(by_hand)
    for step in range(12):
        train(counted, optimizers[0], 1, start=step)
        optimizers[1].zero_grad()
        loss(by_hand, step).backward()
        assert training.steps_done == step
        training.before_step()
        optimizers[1].step()
        assert training.steps_done == step
        training.step(optimizers[1])
        assert same_state(everything(by_hand), everything(counted))


# --- other optimisers ---


def test_an_optimiser_without_the_coefficients_is_remarked_on_once():
    model = nn.Sequential(small(), nn.Linear(10, 10).double())
    before = everything(model)
    optimizer = torch.optim.AdamW(model[1].parameters())
    training = LocationTraining(model, SHORT)
    message = "no optimiser holds the coefficients of LoCA.* build the optimiser from the model"
    with pytest.warns(UserWarning, match=message) as seen:
        train(model, optimizer, 3 * SHORT.period)
    assert len(seen) == 1
    assert training.steps_done == 0
    assert same_state(everything(model), before)


@pytest.mark.parametrize("detaches", [True, False])
@pytest.mark.parametrize("critic_steps", [1, 3, 2 * SHORT.period])
def test_the_steps_of_a_critic_neither_count_nor_disturb(critic_steps, detaches):
    """Warnings are errors here. The gradients that the critic leaves behind are dropped."""
    model, reference = small(), small()
    trainings = [LocationTraining(m, SHORT, location_lr=0.1) for m in (model, reference)]
    critic = nn.Linear(10, 1).double()
    optimizers = [adamw(model), sgd(critic, lr=0.0), adamw(reference)]
    for step in range(10):
        x = batches(1, step)[0][0]
        for _ in range(critic_steps if step else 1):
            optimizers[1].zero_grad()
            made = model(x)
            critic(made.detach() if detaches else made).sum().backward()
            optimizers[1].step()
        for m, optimizer in ((model, optimizers[0]), (reference, optimizers[2])):
            optimizer.zero_grad()
            (critic(m(x)) - 1).square().mean().backward()
            optimizer.step()
        assert [t.steps_done for t in trainings] == [step + 1] * 2
        assert same_state(everything(model), everything(reference))


# --- the rate and the gradient of the locations ---


def test_a_scheduler_of_the_optimiser_scales_the_rate_of_the_locations():
    rates = [0.0, 0.5, 1.0, 0.25, 2.0, 1.0, 0.5, 0.125, 0.5, 1.0]
    scheduled, by_hand = small(), small()
    optimizers = [adamw(model) for model in (scheduled, by_hand)]
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizers[0], lambda t: rates[t % 10])
    LocationTraining(scheduled, SHORT, location_lr=0.1)
    training = LocationTraining(by_hand, SHORT, location_lr=0.1)
    for step, rate in enumerate(rates):
        # Schedulers that begin low call that the initial rate: locations never exceed theirs.
        training.location_lr = 0.1 * min(rate, 1.0)
        optimizers[1].param_groups[0]["lr"] = 0.02 * rate
        train(scheduled, optimizers[0], 1, start=step)
        scheduler.step()
        train(by_hand, optimizers[1], 1, start=step)
        assert same_state(everything(scheduled), everything(by_hand)), step


# What the loss is multiplied by, and what the gradients of parameters are: by a GradScaler that
# changes its scale, and by clipping. In the reference the loss is multiplied by both.
SCALES = [(2.0**16, 2.0**-16), (2.0**16, 2.0**-19), (2.0**15, 2.0**-15), (1.0, 0.25), (1.0, 1.0)]
OVERFLOWS = [1, 3, 4, 6]


@pytest.mark.parametrize("set_to_none", [True, False], ids=["None", "zeros"])
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("schedule", [SHORT, JOINT], ids=["in turn", "jointly"])
def test_gradients_of_locations_are_unscaled_and_clipped_as_those_of_coefficients(
    schedule, parts, set_to_none
):
    plain, scaled = small(), small()
    optimizers = [adamw(plain), adamw(scaled)]
    trainings = [LocationTraining(m, schedule, location_lr=0.05) for m in (plain, scaled)]

    def gradients(model, optimizer, step, by, *, overflows=False):
        """Of the loss times a factor, in parts; the last part may overflow."""
        optimizer.zero_grad(set_to_none)
        for part in range(parts):
            factor = math.inf if overflows and part == parts - 1 else by / parts
            (factor * loss(model, step, slice(part, None, parts))).backward()
        found = [p.grad for p in model.parameters() if p.grad is not None]
        return found if all(bool(g.isfinite().all()) for g in found) else None

    for step in range(10):
        by, of_gradients = SCALES[step % len(SCALES)]
        gradients(plain, optimizers[0], step, by * of_gradients)
        optimizers[0].step()
        if step in OVERFLOWS:
            assert gradients(scaled, optimizers[1], 77, by, overflows=True) is None
        for gradient in gradients(scaled, optimizers[1], step, by):
            gradient *= of_gradients
        optimizers[1].step()
        assert [t.steps_done for t in trainings] == [step + 1] * 2
        assert same_state(everything(scaled), everything(plain)), step


def test_locations_that_are_no_numbers_are_an_error():
    model = small()
    optimizer, _ = adamw(model), LocationTraining(model, AlternatingSchedule(1, 2, 9))
    train(model, optimizer, 1)
    (loss(model) * math.nan).backward()
    with pytest.raises(InvalidArgumentError, match="first: its locations have become NaN"):
        optimizer.step()


def test_locations_go_up_the_gradient_where_the_optimiser_maximises():
    down, up = small(), small()
    for model in (down, up):
        LocationTraining(model, SHORT, location_lr=0.1)
    optimizers = adamw(down), adamw(up, maximize=True)
    for step in range(10):
        for model, optimizer, sign in zip((down, up), optimizers, (1, -1), strict=True):
            optimizer.zero_grad()
            (sign * loss(model, step)).backward()
            optimizer.step()
        assert same_state(everything(up), everything(down)), step


@pytest.mark.parametrize("schedule", [SHORT, JOINT], ids=["in turn", "jointly"])
def test_gradients_of_coefficients_alone_are_remarked_on_once(schedule):
    model = small()
    optimizer = sgd(model)
    training = LocationTraining(model, schedule, location_lr=0.1)
    parameters = [p for p in model.parameters() if p.requires_grad]

    def train_by_hand():
        for step in range(9):
            found = torch.autograd.grad(loss(model, step), parameters)
            for p, g in zip(parameters, found, strict=True):
                p.grad = g
            optimizer.step()

    message = "a coefficient of LoCA has a gradient and its location has none.* loss.backward"
    with pytest.warns(UserWarning, match=message) as seen:
        train_by_hand()
    assert len(seen) == 1
    assert training.steps_done == 9


# --- copies ---

COPIES = {
    "a deep copy": copy.deepcopy,
    "a pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("start", ["random", "gradient"])
@pytest.mark.parametrize("search", SEARCHES)
def test_a_copy_of_the_model_trains_on_as_the_model(search, start, copied):
    model = small()
    options = {"search": search, "init_locations": start, "location_lr": 0.1}
    training = LocationTraining(model, SHORT, **options)
    for step in range(10):
        twin = copied(model)
        train(model, sgd(model), 1, start=step)
        assert training.steps_done == step + 1
        train(twin, sgd(twin), 1, start=step)
        assert training.steps_done == step + 1
        assert same_state(everything(twin), everything(model)), step


# --- optimisers of other kinds ---


class Outer(torch.optim.Optimizer):
    """A step of another optimiser, as Lookahead and SAM make it."""

    def __init__(self, inner):
        self.inner = inner
        super().__init__(inner.param_groups, inner.defaults)

    def step(self, closure=None):
        return self.inner.step(closure)


@pytest.mark.parametrize("search", ["central", "reselect"])
def test_an_optimiser_inside_another_makes_one_step(search):
    plain, wrapped = small(), small()
    trainings = [
        LocationTraining(m, SHORT, search=search, location_lr=0.1) for m in (plain, wrapped)
    ]
    train(plain, adamw(plain), 7)
    train(wrapped, Outer(adamw(wrapped)), 7)
    assert trainings[0].steps_done == trainings[1].steps_done == 7
    assert same_state(everything(plain), everything(wrapped))


def test_an_optimiser_inside_another_scales_gradients_of_locations_once():
    plain, wrapped = small(), small()
    optimizers = adamw(plain), Outer(adamw(wrapped))
    for model in (plain, wrapped):
        LocationTraining(model, JOINT, location_lr=0.1)
    for step in range(10):
        for model, optimizer in zip((plain, wrapped), optimizers, strict=True):
            optimizer.zero_grad()
            loss(model, step).backward()
            # So little that the ε of AdamW matters to the size of the step.
            nn.utils.clip_grad_norm_(model.parameters(), 1e-7)
            optimizer.step()
        assert same_state(everything(wrapped), everything(plain)), step


class SharpnessAware(Outer):
    """Steps by the gradient a little up the slope, from where it was."""

    @torch.no_grad()
    def step(self, closure):
        parameters = [p for group in self.param_groups for p in group["params"]]
        before = {p: p.clone() for p in parameters if p.grad is not None}
        for p in before:
            p.add_(0.05 * p.grad / p.grad.norm())
        self.zero_grad()
        with torch.enable_grad():
            closure()
        for p in parameters:
            if p.grad is not None:
                p.copy_(before[p])
        self.inner.step()
        self.zero_grad()


def test_an_optimiser_that_restores_coefficients_moves_them_in_their_phases_alone():
    model = small()
    training = LocationTraining(model, SHORT, location_lr=0.1)
    optimizer = SharpnessAware(sgd(model))
    for step in range(9):
        phase, a, indices = training.phase, coefficients(model), all_indices(model)

        def closure(step=step):
            loss(model, step).backward()

        closure()
        optimizer.step(closure)
        assert training.steps_done == step + 1
        assert same(coefficients(model), a) == (phase == L)
        assert same(all_indices(model), indices) == (phase == A)


@pytest.mark.parametrize("search", ["central", "reselect"])
def test_a_fused_optimiser_that_skips_a_step_skips_it_for_the_locations(search):
    """A fused optimiser divides by the scale, and skips an overflow, inside its own step."""
    results = []
    for fused in (False, True):
        model = small(dtype=torch.float32)
        training = LocationTraining(model, SHORT, search=search, location_lr=0.1)
        optimizer = adamw(model, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        for step in range(8):
            optimizer.zero_grad()
            factor = math.inf if step in (1, 4) else 1.0
            x, y = (part.float() for part in batches(1, step)[0])
            scaler.scale((model(x) - y).square().mean() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
        assert training.steps_done == 6
        results.append([layer.search.state_dict() for layer in spectra(model)])
    for mine, theirs in zip(*results, strict=True):
        for name in mine.keys() & {"locations", "exp_avg", "exp_avg_sq"}:
            # Fused kernels round otherwise; Adam turns that into a part of a step of 0.1.
            torch.testing.assert_close(mine[name], theirs[name], rtol=1e-3, atol=1e-5)


def test_optimisers_of_others_get_the_arguments_that_they_were_called_with():
    class Odd(torch.optim.SGD):
        def step(self, loss=None, *, closure=None):
            return loss, closure() if closure else None

    training = LocationTraining(small(), SHORT)
    odd, loss = Odd([nn.Parameter(torch.zeros(1))], lr=0.1), torch.ones(1)
    assert odd.step(loss) == (loss, None)
    assert odd.step(closure=lambda: 3) == (None, 3)
    assert training.steps_done == 0


def test_each_layer_follows_the_rate_of_its_own_group():
    model = small()
    training = LocationTraining(model, AlternatingSchedule(joint=True), location_lr=0.01)
    groups = [{"params": [layer.coefficients]} for layer in spectra(model)]
    optimizer = torch.optim.AdamW(groups, lr=0.02)
    torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda _: 1.0, lambda _: 0.0])
    before = [layer.search.locations.detach().clone() for layer in spectra(model)]
    train(model, optimizer, 1)
    after = [layer.search.locations.detach() for layer in spectra(model)]
    assert [not torch.equal(*pair) for pair in zip(before, after, strict=True)] == [True, False]
    assert training.steps_done == 1


def test_a_cast_between_backward_and_step_keeps_the_gradient_of_the_locations():
    model = small()
    LocationTraining(model, AlternatingSchedule(joint=True), location_lr=0.01)
    loss(model).backward()
    (search, _) = (layer.search for layer in spectra(model))
    before = search.locations.grad.clone()
    model.float()
    assert torch.equal(search.locations.grad, before)
    assert search.locations.dtype == torch.float32
