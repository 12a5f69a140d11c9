"""Prune-and-regrow searches at the steps of a schedule: with any optimiser, and compiled."""

from functools import partial
from itertools import cycle

import pytest
import torch
from torch import nn

from loca_theory.adapters import AlternatingSchedule, LoCALinear, LocationTraining
from loca_theory.transforms import idct2

from .searching import (
    EXCHANGES,
    adamw,
    all_indices,
    assert_distinct,
    batches,
    by_prune_and_regrow,
    close,
    coefficients,
    everything,
    flat,
    normal,
    same,
    same_state,
    small,
    spectra,
    steps_of_regrowth,
    train,
)

TIMES = {
    "in turn": AlternatingSchedule(2, 3, 23, recorded_steps=2),
    "to the end of a period": AlternatingSchedule(2, 3, 20, recorded_steps=2),
    "as printed": AlternatingSchedule(2, 3, 23, as_printed=True, recorded_steps=2),
    "records all the time": AlternatingSchedule(2, 3, 23, recorded_steps=9),
    "records once": AlternatingSchedule(2, 3, 23, recorded_steps=1),
    "for ever": AlternatingSchedule(2, 3, None, recorded_steps=2),
    "every other step": AlternatingSchedule(1, 1, 9, recorded_steps=1),
    "records always": AlternatingSchedule(1, 2, 9, recorded_steps=5),
}
STEPS = 30


@pytest.mark.parametrize(
    ("search", "schedule"), list(zip(cycle(EXCHANGES), TIMES.values())), ids=TIMES
)
def test_layers_prune_and_regrow_after_the_last_step_of_their_periods(search, schedule):
    model = small()
    training = LocationTraining(model, schedule, search=search)
    happened = steps_of_regrowth(model, training)
    optimizer, moved = adamw(model), [[], []]
    end = STEPS if schedule.alternating_steps is None else schedule.alternating_steps
    for step in range(STEPS):
        before = all_indices(model)
        assert training.phase == schedule.phase(step)
        train(model, optimizer, 1, start=step)
        for number, layer in enumerate(spectra(model)):
            assert_distinct(layer)
            is_over = step + 1 >= end and schedule.alternating_steps is not None
            assert (layer.search is None) == is_over
            if not torch.equal(before[number], layer.indices):
                moved[number].append(step)
    for number in range(2):
        ahead = number * schedule.period // 2 + schedule.as_printed
        last = range(schedule.period - 1 - ahead, end, schedule.period)
        assert happened[number] == [step for step in last if step >= 0]
        assert set(moved[number]) <= set(happened[number])
        assert bool(moved[number]) == bool(happened[number])
    assert training.steps_done == end


@by_prune_and_regrow
@pytest.mark.parametrize("clip", [None, 1e-3], ids=["unclipped", "clipped"])
def test_a_scaled_loss_makes_the_same_moves(search, clip):
    plain, scaled = small(dtype=torch.float32), small(dtype=torch.float32)
    models = [(plain, 1.0), (scaled, 2.0**10)]
    for model, scale in models:
        LocationTraining(model, AlternatingSchedule(2, 3, 20, recorded_steps=2), search=search)
        scaler, optimizer = torch.amp.GradScaler("cpu", init_scale=scale), adamw(model)
        for x, y in batches(20):
            optimizer.zero_grad()
            scaler.scale((model(x.float()) - y.float()).square().mean()).backward()
            scaler.unscale_(optimizer)
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            scaler.step(optimizer)
            scaler.update()
    assert same(all_indices(plain), all_indices(scaled))


def test_layers_take_turns():
    model = nn.Sequential(
        *(LoCALinear(nn.Linear(12, 12), 9, zero_init=False, seed=k) for k in range(4))
    )
    schedule = AlternatingSchedule(2, 4, 12, recorded_steps=1)
    training = LocationTraining(model, schedule, search="swap-raw")
    happened = steps_of_regrowth(model, training)
    optimizer = adamw(model)
    for _ in range(12):
        optimizer.zero_grad()
        model(normal(5, 12, dtype=torch.float32)).square().mean().backward()
        optimizer.step()
    assert happened == [[5, 11], [4, 10], [2, 8], [1, 7]]


@by_prune_and_regrow
def test_after_the_last_move_coefficients_go_on_at_their_locations(search):
    model = small()
    training = LocationTraining(model, AlternatingSchedule(2, 3, 10), search=search)
    optimizer = adamw(model)
    train(model, optimizer, 10)
    assert training.is_over
    indices, a = all_indices(model), coefficients(model)
    train(model, optimizer, 12, start=10)
    assert same(all_indices(model), indices)
    assert all(s.coefficients.ne(b).all() for s, b in zip(spectra(model), a, strict=True))
    assert training.steps_done == 10


@pytest.mark.parametrize("search", ["swap", "reselect"])
def test_steps_of_the_optimiser_count_and_parts_of_them_are_recorded_as_one(search):
    whole, parts = small(), small()
    schedule = AlternatingSchedule(2, 3, 20, recorded_steps=2)
    trainings = [LocationTraining(m, schedule, search=search) for m in (whole, parts)]
    optimizers = [adamw(whole), adamw(parts)]
    start = all_indices(whole)
    for step, (x, y) in enumerate(batches(20)):
        for model, cuts, optimizer in zip((whole, parts), (1, 4), optimizers, strict=True):
            optimizer.zero_grad()
            for of_x, of_y in zip(x.chunk(cuts), y.chunk(cuts), strict=True):
                ((model(of_x) - of_y).square().mean() / cuts).backward()
            optimizer.step()
        assert [t.steps_done for t in trainings] == [step + 1] * 2
        assert same(all_indices(whole), all_indices(parts))
    assert not same(start, all_indices(whole))
    for one, other in zip(spectra(whole), spectra(parts), strict=True):
        close(other.coefficients.detach(), one.coefficients.detach(), 1e-9)


MOMENTA = {
    "AdamW": (adamw, "exp_avg"),
    "AdamW, not one by one": (partial(adamw, foreach=True), "exp_avg"),
    "SGD with momentum": (
        lambda model: torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9),
        "momentum_buffer",
    ),
}


@pytest.mark.parametrize(
    ("search", "make", "name"),
    [(search, *momentum) for search, momentum in zip(EXCHANGES, MOMENTA.values(), strict=True)],
    ids=MOMENTA,
)
def test_a_component_that_moves_forgets_its_momentum_and_no_other_does(search, make, name):
    model = small()
    schedule = AlternatingSchedule(2, 3, 20, recorded_steps=2)
    training = LocationTraining(model, schedule, search=search, automatic=False)
    optimizer = make(model)
    moved = 0
    for step in range(15):
        train(model, optimizer, 1, start=step)
        assert training.steps_done == step
        before = all_indices(model)
        saved = [optimizer.state[s.coefficients][name].clone() for s in spectra(model)]
        training.step(optimizer)
        for layer, indices, value in zip(spectra(model), before, saved, strict=True):
            changed = (layer.indices != indices).any(dim=1)
            found = optimizer.state[layer.coefficients][name]
            assert torch.equal(found, torch.where(changed, 0.0, value))
            moved += int(changed.sum())
    assert moved > 0
    assert training.steps_done == 15


@pytest.mark.parametrize("set_to_none", [True, False], ids=["None", "zeros"])
@pytest.mark.parametrize("start", ["random", "gradient"])
@pytest.mark.parametrize("factor", [float("inf"), 3.0], ids=["an overflow", "one elsewhere"])
def test_a_skipped_step_is_not_recorded(factor, start, set_to_none):
    """A GradScaler skips a step by an overflow in any layer, and the next one records again."""
    plain, other = small(), small()
    schedule = AlternatingSchedule(2, 3, 20, recorded_steps=2)
    for model in (plain, other):
        LocationTraining(model, schedule, search="reselect", init_locations=start)
    optimizers = adamw(plain), adamw(other)
    for step, (x, y) in enumerate(batches(12, start=50)):
        optimizers[1].zero_grad(set_to_none)
        for part in (slice(8), slice(8, None)):
            (factor * (other(x[part]) - y[part]).square().mean()).backward()
        train(plain, optimizers[0], 1, start=step)
        train(other, optimizers[1], 1, start=step, set_to_none=set_to_none)
        assert same_state(everything(other), everything(plain))


# --- a planted increment ---

SIDE, PLANTED = 32, 20


def recovered(search, seed):
    """How many of the planted locations are found, and the loss at the end."""
    generator = torch.Generator().manual_seed(seed)
    planted = torch.randperm(SIDE * SIDE, generator=generator)[:PLANTED]
    s = torch.zeros(SIDE * SIDE, dtype=torch.float64)
    signs = torch.randn(PLANTED, generator=generator).sign()
    s[planted] = (signs * (0.5 + torch.rand(PLANTED, generator=generator))).double()
    torch.manual_seed(seed)
    layer = LoCALinear(nn.Linear(SIDE, SIDE, bias=False), PLANTED, seed=seed)
    target = layer.base.weight + idct2(s.view(SIDE, SIDE)).float()
    schedule = AlternatingSchedule(5, 5, 300, recorded_steps=3)
    LocationTraining(layer, schedule, search=search, location_lr=0.01)
    optimizer = adamw(layer, lr=0.05, weight_decay=0.0)
    for _ in range(500):
        x = torch.randn(64, SIDE, generator=generator)
        loss = (layer(x) - x @ target.T).square().sum(1).mean() / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return int(torch.isin(flat(layer.spectrum), planted).sum()), float(loss.detach())


# Of eight seeds, reselection found 20 locations each time and ended at 1e-12 of the loss of central
# differences, which found 0 to 4; swaps found 17 or 18, at most at 0.26 of that loss. A random
# location is a planted one with probability 0.02: of 20, six are with probability 2e-6.
LEAST = {"reselect": (19, 1e-6), "swap": (14, 0.5)}
SOME_SEEDS = [0, pytest.param(1, marks=pytest.mark.deep)]


@pytest.fixture(scope="module", params=SOME_SEEDS, ids="seed {}".format)
def by_differences(request):
    """Seed, locations found by the search of the paper, and its loss."""
    return request.param, *recovered("central", request.param)


def test_central_differences_hardly_find_planted_locations(by_differences):
    _, found, loss = by_differences
    assert found <= 6
    assert loss > 1


@pytest.mark.parametrize("search", ["reselect", pytest.param("swap", marks=pytest.mark.deep)])
def test_pruning_and_regrowing_finds_planted_locations(search, by_differences):
    seed, _, of_differences = by_differences
    found, loss = recovered(search, seed)
    least, fraction = LEAST[search]
    assert found >= least
    assert loss < fraction * of_differences


# --- a compiled model ---


# Where a graph is broken at a hook, torch itself looks for a gradient of what goes on.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize(
    ("search", "backend"),
    [
        ("reselect", "eager"),
        pytest.param("reselect", "aot_eager", marks=pytest.mark.deep),
        pytest.param("swap", "aot_eager", marks=pytest.mark.deep),
    ],
)
def test_a_compiled_model_finds_the_locations_of_an_eager_one(search, backend):
    torch._dynamo.reset()
    eager, other = small(), small()
    compiled = torch.compile(other, backend=backend)
    schedule = AlternatingSchedule(2, 3, 10, recorded_steps=2)
    for model in (eager, other):
        LocationTraining(model, schedule, search=search)
    start = all_indices(eager)
    optimizers = [adamw(eager), adamw(other)]
    for step in range(12):
        train(eager, optimizers[0], 1, start=step)
        train(other, optimizers[1], 1, start=step, run=compiled)
        assert same(all_indices(eager), all_indices(other)), step
    assert not any(map(torch.equal, start, all_indices(eager)))
    for one, same_one in zip(spectra(eager), spectra(other), strict=True):
        close(same_one.coefficients.detach(), one.coefficients.detach(), 1e-8)
    x = batches(1)[0][0]
    with torch.no_grad():
        close(compiled(x), eager(x), 1e-8)
