"""A spectrum that prunes and regrows components: its moves, and the steps that they follow."""

import copy
from functools import partial

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from loca_theory.adapters import AlternatingSchedule, CosineSpectrum
from loca_theory.adapters.search.regrow import GradientStart
from loca_theory.locations.prune_and_regrow import most_moved, swap
from loca_theory.transforms import dct2

from .searching import (
    EACH_STEP,
    adamw,
    all_indices,
    assert_distinct,
    backward,
    batches,
    by_prune_and_regrow,
    close,
    coefficients,
    dense,
    everything,
    flat,
    followed,
    loss_of,
    move,
    normal,
    recording,
    same,
    same_state,
    sgd,
    small,
    spectra,
    train,
)


def spectrum(search="reselect", shape=(6, 9), count=10, schedule=EACH_STEP, **options):
    torch.manual_seed(0)
    settings = {"zero_init": False, "scaling": 1.5, "schedule": schedule}
    return CosineSpectrum(shape, count, location_search=search, **settings | options).double()


# --- the moves of a spectrum ---


@by_prune_and_regrow
@pytest.mark.parametrize("count", [1, 10, 53, 54], ids=lambda n: f"{n} of 54")
def test_locations_stay_distinct_and_a_component_that_moves_starts_from_zero(search, count):
    layer = spectrum(search, count=count, schedule=AlternatingSchedule(1, 1, 24, recorded_steps=2))
    with torch.no_grad():
        layer.coefficients.mul_(0.1)  # so little that even a swap of one component is worth it
    total = 0
    for turn in range(12):
        before, a = flat(layer).clone(), layer.coefficients.detach().clone()
        recording(layer, 2 * turn)
        assert layer.recorded is not None
        backward(layer, seed=turn)
        moved = move(layer, 2 * turn + 1)
        assert layer.recorded is None
        assert_distinct(layer)
        assert torch.equal(moved, flat(layer) != before)
        assert torch.equal(layer.coefficients.detach(), torch.where(moved, 0.0, a))
        assert not layer.coefficients.grad[moved].any()
        close(layer.increment().detach(), dense(layer))
        total += int(moved.sum())
        with torch.no_grad():
            layer.coefficients.add_(0.01 * normal(count, seed=turn))
            layer.coefficients.grad = None
    # Where all locations are taken, none is free to move to.
    assert (total > 0) == (count < 54)


@by_prune_and_regrow
@pytest.mark.parametrize("gradient", ["none", "not finite"])
def test_without_a_gradient_nothing_moves(search, gradient):
    layer = recording(spectrum(search), 1)
    before = copy.deepcopy(layer.state_dict())
    if gradient == "not finite":
        layer(normal(3, 9)).backward(torch.full((3, 6), float("nan"), dtype=torch.float64))
    assert not move(layer, 1).any()
    after = layer.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in after if name != "dropped")
    close(layer(normal(3, 9)).detach(), normal(3, 9) @ dense(layer).T)


def dropped_of(layer):
    """The four of least |a|, of ten."""
    return layer.coefficients.detach().abs().topk(4, largest=False).indices.tolist()


LONG = AlternatingSchedule(1, 1, 10**9, recorded_steps=1)  # hardly any of it is over


def test_reselection_drops_the_least_where_gradients_are_enabled():
    layer, x = spectrum(schedule=LONG), normal(5, 9)
    full = x @ dense(layer).T
    without = x @ dense(layer, dropped_of(layer)).T
    assert (full - without).abs().max() > 0.01
    recording(layer)
    close(layer(x).detach(), full)
    recording(layer, 1)
    close(layer(x).detach(), without)
    # As dropout: a first pass without gradients, of a checkpoint, is a training pass too.
    with torch.no_grad():
        close(layer(x), without)
        close(layer.eval()(x), full)
    with torch.inference_mode():
        close(layer(x), full)
    layer.train().requires_grad_(False)
    close(layer(x), full)
    close(layer.increment(), dense(layer))
    layer.requires_grad_()
    close(copy.deepcopy(layer)(x).detach(), full)  # nobody follows a copy
    backward(layer)
    move(layer, 1)
    close(layer(x).detach(), x @ dense(layer).T)


def test_reselection_finds_the_best_locations_for_what_it_dropped():
    # On the rows of an orthogonal input, Z²/h at a location is the square of what ΔW lacks there,
    # up to a factor of its row of the spectrum.
    layer = spectrum(shape=(8, 8), count=10, schedule=LONG)
    x, target = torch.eye(8, dtype=torch.float64), normal(8, 8, seed=3)
    chosen = dropped_of(layer)
    recording(layer, 1)
    ((layer(x) - x @ target.T).square().sum() / 2).backward()
    g = x @ (dense(layer, chosen) - target).T
    z = layer.scaling * dct2(g.T @ x).flatten()
    rows, columns = dct2(g.T @ g).diagonal(), dct2(x.T @ x).diagonal()
    decrease = z.square() / (layer.scaling**2 * torch.outer(rows, columns).flatten())
    stay = [k for k in range(10) if k not in chosen]
    decrease[flat(layer)[stay]] = -1
    expected = set(decrease.topk(4).indices.tolist())
    saved = flat(layer)[stay].clone()
    move(layer, 1)
    assert set(flat(layer)[chosen].tolist()) == expected
    assert torch.equal(flat(layer)[stay], saved)


@pytest.mark.parametrize(("repeats", "scale"), [(1, 1.0), (5, 1.0), (5, 4.0)])
def test_a_swap_moves_what_pays_however_often_it_is_recorded_and_scaled(repeats, scale):
    # Of n equal losses, gradient and curvature are n times as large, and so are predicted decrease
    # and saliency. They are compared: a layer must not get more reluctant by recording longer.
    schedule = AlternatingSchedule(5, 5, None, recorded_steps=repeats)
    layer = spectrum("swap", shape=(12, 12), count=40, schedule=schedule)
    x, g = normal(7, 12, seed=1), normal(7, 12, seed=51)
    with torch.no_grad():
        layer.coefficients.mul_(3.0)
    a, before = layer.coefficients.detach().clone(), flat(layer).clone()
    z = 1.5 * dct2(g.T @ x).flatten()
    of_g, of_x = dct2(g.T @ g).diagonal(), dct2(x.T @ x).diagonal()
    h = 1.5**2 * torch.outer(of_g, of_x).flatten()
    limit = most_moved(40, schedule.progress(0), use_curvature=True)
    expected = swap(a, before, z.square() / h, h[before], limit)
    recording(layer, 10 - repeats)
    for _ in range(repeats):
        layer(x).backward(scale * g)
        layer.search.before_step()
    layer.steps_done = 9
    moved = layer.search.prune_and_regrow(scale)
    assert torch.equal(flat(layer), expected)
    assert 0 < int(moved.sum()) < limit


# --- ways of running the model ---


@pytest.mark.parametrize("change", [torch.relu_, lambda y: y.add_(1.0)], ids=["relu", "sum"])
def test_an_output_that_is_changed_in_place_is_recorded_all_the_same(change):
    layer = recording(spectrum("swap"), 1)
    change(layer(normal(3, 4, 9))).sum().backward()
    layer.search.before_step()
    seen = layer.recorded.gradient().view(6, 9)[tuple(layer.indices.T)]
    close(seen, layer.coefficients.grad)


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
@pytest.mark.parametrize("search", ["swap", "reselect"])
def test_checkpointed_layers_are_recorded_once(search, reentrant):
    seen, (x, y) = [], batches(1)[0]
    x.requires_grad_()
    for checkpointed in (False, True):
        model = small(schedule=EACH_STEP, location_search=search)
        layers = [recording(layer, 1) for layer in spectra(model)]
        output = checkpoint(model, x, use_reentrant=reentrant) if checkpointed else model(x)
        (output - y).square().mean().backward()
        for layer in layers:
            layer.search.before_step()
        seen.append([layer.recorded.gradient() for layer in layers])
    for plain, checkpointed_gradient in zip(*seen, strict=True):
        close(checkpointed_gradient, plain)


# --- steps of an optimiser ---

WINDOWS = AlternatingSchedule(2, 3, 20, recorded_steps=2)


MOMENTA = {
    "AdamW": (adamw, "exp_avg"),
    "AdamW, not one by one": (partial(adamw, foreach=True), "exp_avg"),
    "SGD with momentum": (partial(sgd, lr=0.02, momentum=0.9), "momentum_buffer"),
}


@pytest.mark.parametrize(("make", "name"), MOMENTA.values(), ids=MOMENTA)
def test_a_component_that_moves_forgets_its_momentum_and_no_other_does(make, name):
    model, optimizer = followed(make, schedule=WINDOWS, location_search="swap-raw")
    layers, moves = spectra(model), [[], []]
    for number, layer in enumerate(layers):

        def noted(scale, number=number, layer=layer, regrow=layer.search.prune_and_regrow):
            momentum = optimizer.state[layer.coefficients][name].clone()
            moves[number].append((layer.steps_done, momentum, moved := regrow(scale)))
            return moved

        layer.search.prune_and_regrow = noted
    for step in range(15):
        before = all_indices(model)
        train(model, optimizer, 1, step)
        for layer, indices, swaps in zip(layers, before, moves, strict=True):
            has_moved = (layer.indices != indices).any(dim=1)
            assert has_moved.any() == (bool(swaps) and swaps[-1][0] == step)
            if has_moved.any():
                _, momentum, moved = swaps[-1]
                assert torch.equal(moved, has_moved)
                now = optimizer.state[layer.coefficients][name]
                assert torch.equal(now, torch.where(moved, 0.0, momentum))
    # Layers do not all prune at once.
    assert [[step for step, _, _ in swaps] for swaps in moves] == [[4, 9, 14], [2, 7, 12]]


@pytest.mark.parametrize("set_to_none", [True, False], ids=["None", "zeros"])
@pytest.mark.parametrize("start", ["random", "gradient"])
@pytest.mark.parametrize("factor", [float("inf"), 3.0], ids=["an overflow", "one elsewhere"])
def test_a_skipped_step_is_not_recorded(factor, start, set_to_none):
    """A GradScaler skips a step by an overflow in any layer, and the next one records again."""
    options = {"schedule": WINDOWS, "location_search": "reselect", "init_locations": start}
    (plain, first), (other, second) = followed(**options), followed(**options)
    for step in range(12):
        second.zero_grad(set_to_none)
        for part in (slice(8), slice(8, None)):
            (factor * loss_of(other, step + 50, part)).backward()
        train(plain, first, 1, step)
        train(other, second, 1, step, set_to_none=set_to_none)
        assert same_state(everything(other), everything(plain))


# --- a start by gradient ---

RECORDED = 3
STARTS = {
    "alternating": AlternatingSchedule(4, 4, 40, recorded_steps=RECORDED),
    "short phases": AlternatingSchedule(1, 1, 40, recorded_steps=RECORDED),
    "fixed after it": AlternatingSchedule(4, 4, 0, recorded_steps=RECORDED),
}
# Along a gradient and by pruning and regrowing, with coefficients that start at zeros and at
# random.
BY = [("central", True), ("reselect", False), ("swap-raw", True), ("swap", False)]


def sums_of(model, steps):
    """α Z and α² h of both layers, with coefficients that do not move."""
    sums = []
    for number in (0, 2):
        layer, z, of_g, of_x = model[number].spectrum, 0.0, 0.0, 0.0
        for x, y in batches(steps):
            inputs = x if number == 0 else model[1](model[0](x))
            output = model[number](inputs.detach())
            final = model[2](model[1](output)) if number == 0 else output
            (g,) = torch.autograd.grad((final - y).square().mean(), output)
            inputs = inputs.detach()
            z = z + dct2(g.T @ inputs)
            of_g = of_g + dct2(g.T @ g).diagonal()
            of_x = of_x + dct2(inputs.T @ inputs).diagonal()
        h = layer.scaling**2 * torch.outer(of_g, of_x).flatten()
        sums.append((layer.scaling * z.flatten(), h))
    return sums


@pytest.mark.parametrize(
    ("search", "zero_init", "start"),
    [(*by, start) for start in STARTS for by in BY[:2]] + [(*by, "alternating") for by in BY[2:]],
)
def test_a_start_by_gradient_has_the_largest_predicted_decreases(search, zero_init, start):
    sums = sums_of(small(zero_init=zero_init), RECORDED)
    model, optimizer = followed(
        zero_init=zero_init,
        schedule=STARTS[start],
        location_search=search,
        init_locations="gradient",
    )
    random, a = all_indices(model), coefficients(model)
    for step in range(RECORDED):
        assert same(all_indices(model), random)
        train(model, optimizer, 1, step, set_to_none=False)  # a gradient of 0 would decay
        assert same(coefficients(model), a) or (not zero_init and step == RECORDED - 1)
    for layer, (z, h), first in zip(spectra(model), sums, a, strict=True):
        decrease = z.square() if search == "swap-raw" else z.square() / h
        count = len(layer.indices)
        assert set(flat(layer).tolist()) == set(decrease.topk(count).indices.tolist())
        assert torch.equal(layer.coefficients.detach(), first)
        assert layer.is_searching == (start != "fixed after it")
    train(model, optimizer, 9, RECORDED)
    assert not any(map(torch.equal, coefficients(model), a))


def test_a_start_without_a_gradient_stays_random_and_is_warned_of():
    layer = spectrum("central", init_locations="gradient")
    layer.search = GradientStart(layer)
    layer.search.begin()
    with pytest.warns(UserWarning, match="no gradient was recorded, so its locations stay random"):
        assert not move(layer).any()
