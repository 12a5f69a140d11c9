"""Where a search starts: at locations by gradient, or at those of a checkpoint."""

import copy

import pytest
import torch
from torch import nn

from loca_theory.adapters import AlternatingSchedule, LoCALinear, LocationTraining
from loca_theory.transforms import dct2

from .searching import (
    PAIRS,
    adamw,
    all_indices,
    assert_distinct,
    batches,
    by_prune_and_regrow,
    close,
    flat,
    in_groups,
    same,
    small,
    spectra,
    train,
)

# --- a start by gradient ---

OBSERVED = 3


def found_by(search, z, h, count):
    """The locations of the largest Z²/h, or of the largest |Z|."""
    promise = z.square() if search == "swap-raw" else z.square() / h
    return set(promise.topk(count).indices.tolist())


def sums_of(model, steps):
    """α Z and α² h of both layers, with coefficients that do not move."""
    found = []
    for number in (0, 2):
        layer, z, of_g, of_x = model[number].spectrum, 0.0, 0.0, 0.0
        for x, y in batches(steps):
            inputs = x if number == 0 else model[1](model[0](x))
            output = model[number](inputs.detach())
            rest = model[2](model[1](output)) if number == 0 else output
            (g,) = torch.autograd.grad((rest - y).square().mean(), output)
            inputs = inputs.detach()
            z = z + dct2(g.T @ inputs)
            of_g = of_g + dct2(g.T @ g).diagonal()
            of_x = of_x + dct2(inputs.T @ inputs).diagonal()
        h = layer.scaling**2 * torch.outer(of_g, of_x).flatten()
        found.append((layer.scaling * z.flatten(), h))
    return found


STARTS = {
    "alternating": ({}, AlternatingSchedule(4, 4, 40, recorded_steps=OBSERVED)),
    "short phases": ({}, AlternatingSchedule(1, 1, 40, recorded_steps=OBSERVED)),
    "fixed after it, by the schedule": ({}, AlternatingSchedule(
        4, 4, alternating_steps=0, recorded_steps=OBSERVED)),
    "fixed after it, by the layer": ({"learn_locations": False}, AlternatingSchedule(
        4, 4, alternating_steps=0, recorded_steps=OBSERVED)),
    "fixed after it, by the layer, in a schedule": (
        {"learn_locations": False}, AlternatingSchedule(4, 4, 40, recorded_steps=OBSERVED)),
}  # fmt: skip


# Along a gradient and by pruning and regrowing, with coefficients that start at zeros and at
# random.
BY = [("central", True), ("reselect", False), ("swap-raw", True), ("swap", False)]


@pytest.mark.parametrize(
    ("search", "zero_init", "start"),
    [(*by, start) for start in STARTS for by in BY[:2]] + [(*by, "alternating") for by in BY[2:]],
)
def test_a_start_by_gradient_is_where_the_first_steps_promise_most(search, zero_init, start):
    options, schedule = STARTS[start]
    model = small(search, init_locations="gradient", zero_init=zero_init, **options)
    sums = sums_of(model, OBSERVED)
    random, a = all_indices(model), [s.coefficients.detach().clone() for s in spectra(model)]
    training, optimizer = LocationTraining(model, schedule), in_groups(model)
    for step in range(OBSERVED):
        assert same(all_indices(model), random)
        assert all(s.needs_initialisation for s in spectra(model))
        train(model, optimizer, 1, start=step)
        assert same([s.coefficients for s in spectra(model)], a)
        assert training.steps_done == step + 1
    for layer, (z, h) in zip(spectra(model), sums, strict=True):
        count = layer.coefficients.shape[0]
        assert not layer.needs_initialisation
        assert set(flat(layer).tolist()) == found_by(search, z, h, count)
        assert_distinct(layer)
        if layer.locations is not None:
            ends = layer.shape - 1
            assert torch.equal((layer.locations.detach() * ends).round().long(), layer.indices)
    before = [s.coefficients.detach().clone() for s in spectra(model)]
    train(model, optimizer, 8, start=OBSERVED)
    assert not any(map(torch.equal, before, [s.coefficients for s in spectra(model)]))


def test_after_a_start_by_gradient_fixed_locations_stay():
    model = small(init_locations="gradient")
    LocationTraining(model, AlternatingSchedule(2, 2, 0, recorded_steps=OBSERVED))
    optimizer = adamw(model)
    train(model, optimizer, OBSERVED)
    indices = all_indices(model)
    train(model, optimizer, 9, start=OBSERVED)
    assert same(all_indices(model), indices)
    assert not any(s.is_recording or s.learns_locations for s in spectra(model))


def test_zeros_for_gradients_do_not_decay_coefficients_either():
    model = small(init_locations="gradient")
    training = LocationTraining(model, AlternatingSchedule(2, 2, 0, recorded_steps=OBSERVED))
    optimizer, a = adamw(model), [s.coefficients.detach().clone() for s in spectra(model)]
    for x, y in batches(OBSERVED):
        optimizer.zero_grad(set_to_none=False)
        (model(x) - y).square().mean().backward()
        optimizer.step()
    assert same([s.coefficients for s in spectra(model)], a)
    assert training.steps_done == OBSERVED


@pytest.mark.parametrize("search", ["central", "reselect"])
def test_two_optimisers_are_no_two_steps_while_locations_are_initialised(search):
    model = small(search, init_locations="gradient")
    training = LocationTraining(model, AlternatingSchedule(2, 3, 20, recorded_steps=OBSERVED))
    optimizers = [torch.optim.SGD([s.coefficients for s in spectra(model)], lr=0.01)]
    if training.parameters():
        optimizers.append(torch.optim.SGD(training.parameters(), lr=0.01))
    for done, (x, y) in enumerate(batches(6)):
        assert training.steps_done == done
        (model(x) - y).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("search", ["central", "reselect"])
def test_what_was_loaded_is_not_started_again(search):
    model = small(search, init_locations="gradient")
    schedule = AlternatingSchedule(4, 4, 16, recorded_steps=OBSERVED)
    LocationTraining(model, schedule)
    train(model, in_groups(model), OBSERVED + 1)
    other = small(search, seed=4, init_locations="gradient")
    LocationTraining(other, schedule)  # as PEFT does, before it loads
    other.load_state_dict(model.state_dict())
    assert not any(s.needs_initialisation for s in spectra(other))
    assert not any(s.is_recording for s in spectra(other))
    indices, before = all_indices(other), [s.coefficients.detach().clone() for s in spectra(other)]
    assert same(indices, all_indices(model))
    train(other, in_groups(other), 3)
    assert same(all_indices(other), indices)
    assert not any(map(torch.equal, before, [s.coefficients for s in spectra(other)]))


def test_loaded_locations_move_along_their_gradient_alone():
    # A start that was prepared for and not needed must not become pruning and regrowing of a period
    # later.
    trained = small("central")
    schedule = AlternatingSchedule(2, 2, 40, recorded_steps=OBSERVED)
    plain, started = (
        small("central", seed=4, init_locations=start) for start in ("random", "gradient")
    )
    for model in (plain, started):
        LocationTraining(model, schedule)
        model.load_state_dict(trained.state_dict())
        train(model, in_groups(model), 12)
    assert same(all_indices(plain), all_indices(started))
    for one, other in zip(spectra(plain), spectra(started), strict=True):
        assert torch.equal(one.coefficients, other.coefficients)


def test_who_learns_nothing_of_locations_and_awaits_them_needs_a_training():
    layer = LoCALinear(nn.Linear(6, 5), 4, learn_locations=False, init_locations="gradient")
    optimizer = torch.optim.SGD([layer.spectrum.coefficients], lr=0.1)

    def take_steps():
        for _ in range(40):
            layer(torch.ones(2, 6)).sum().backward()
            optimizer.step()

    with pytest.warns(UserWarning, match="its locations are not being learned"):
        take_steps()


def test_a_start_by_gradient_that_sees_none_says_so():
    model = LoCALinear(nn.Linear(9, 6), 10, init_locations="gradient")
    training = LocationTraining(model, AlternatingSchedule(recorded_steps=1), automatic=False)
    before = model.spectrum.indices.clone()
    with pytest.warns(UserWarning, match="no gradient was recorded, so its locations stay random"):
        training.step()
    assert torch.equal(model.spectrum.indices, before)


# --- checkpoints ---


def trained(search, steps, **options):
    model = small(search, **options)
    LocationTraining(model, AlternatingSchedule(2, 3, 20, recorded_steps=2))
    train(model, in_groups(model), steps)
    return model


MOMENTS = {"at the start": 0, "in mid-search": 13, "finished": 22}


@pytest.mark.parametrize(
    ("moment", "learns"),
    [("at the start", True), ("in mid-search", True), ("in mid-search", False),
     ("finished", True)],
)  # fmt: skip
@pytest.mark.parametrize(("first", "second"), PAIRS, ids=[" into ".join(p) for p in PAIRS])
def test_a_checkpoint_of_one_search_goes_into_another(first, second, moment, learns):
    steps = MOMENTS[moment]
    model = trained(first, steps)
    state = copy.deepcopy(model.state_dict())
    loaded = small(second, seed=7, learn_locations=learns)
    loaded.load_state_dict(state)
    for key, value in model.state_dict().items():
        assert torch.equal(state[key], value), key
    x = batches(1)[0][0]
    with torch.no_grad():
        close(loaded.eval()(x), model.eval()(x))
    is_unfinished = steps < 20
    for layer, original in zip(spectra(loaded), spectra(model), strict=True):
        assert_distinct_if(second != "central" or not is_unfinished, layer)
        assert layer.learns_locations == (learns and is_unfinished)
        assert (layer.locations is not None) == (second == "central" and learns and is_unfinished)
        if layer.searching is not None:
            assert bool(layer.searching) == is_unfinished
        if first != "central":
            assert torch.equal(layer.indices, original.indices)
    again = small(second, seed=8, learn_locations=learns)
    again.load_state_dict(loaded.state_dict())
    assert same(all_indices(again), all_indices(loaded))


def assert_distinct_if(condition, layer):
    if condition:
        assert_distinct(layer)


@by_prune_and_regrow
def test_a_loaded_search_goes_on(search):
    loaded = small(search, seed=5)
    training = LocationTraining(loaded, AlternatingSchedule(2, 3, 20, recorded_steps=2))
    loaded.load_state_dict(trained(search, 13).state_dict())
    before = all_indices(loaded)
    train(loaded, adamw(loaded), 20)
    assert training.phase is None
    assert not any(map(torch.equal, before, all_indices(loaded)))


@by_prune_and_regrow
def test_a_loaded_finished_search_trains_on_without_moving(search):
    loaded = small(search, seed=5)
    training = LocationTraining(loaded, AlternatingSchedule(2, 3, 20, recorded_steps=2))
    loaded.load_state_dict(trained(search, 22).state_dict())
    before, a = all_indices(loaded), [s.coefficients.detach().clone() for s in spectra(loaded)]
    train(loaded, adamw(loaded), 12)
    assert training.phase is None
    assert same(all_indices(loaded), before)
    assert not any(map(torch.equal, a, [s.coefficients for s in spectra(loaded)]))
    assert not any(s.is_recording for s in spectra(loaded))


@pytest.mark.parametrize(
    ("search", "dtype"), [("reselect", torch.float16), ("swap", torch.bfloat16)], ids=str
)
def test_half_precision_layers_regrowth_and_keep_their_locations_through_a_file(search, dtype):
    model = small(search, dtype=dtype)
    LocationTraining(model, AlternatingSchedule(2, 3, 20, recorded_steps=2))
    before = all_indices(model)
    train(model, torch.optim.SGD([s.coefficients for s in spectra(model)], lr=0.02), 13)
    assert not any(map(torch.equal, before, all_indices(model)))
    loaded = small(search, seed=4, dtype=dtype)
    loaded.load_state_dict(model.state_dict())
    assert same(all_indices(loaded), all_indices(model))
    for layer in spectra(loaded):
        assert layer.coefficients.dtype == dtype
        assert layer.searching.dtype == torch.bool
        assert_distinct(layer)
