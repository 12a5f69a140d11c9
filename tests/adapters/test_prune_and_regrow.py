"""A spectrum that prunes and regrows components."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from loca_theory.adapters import LoCALinear, LocationTraining
from loca_theory.transforms import dct2

from .searching import (
    EACH_STEP,
    assert_distinct,
    backward,
    batches,
    by_prune_and_regrow,
    close,
    dense,
    flat,
    normal,
    small,
    spectra,
    spectrum,
)


def linear(search="reselect"):
    """A layer around a linear one, (6, 9), in a search."""
    torch.manual_seed(0)
    layer = LoCALinear(nn.Linear(9, 6), 10, zero_init=False).double()
    LocationTraining(layer, EACH_STEP, search=search, automatic=False)
    return layer


def small_recording(search="swap", **options):
    """Two layers that record the gradient of the next step."""
    model = small(**options)
    LocationTraining(model, EACH_STEP, search=search, automatic=False)
    for layer in spectra(model):
        layer.search.start_recording(0.0, 0)
    return model


# --- a spectrum in a search ---


@by_prune_and_regrow
@pytest.mark.parametrize("count", [1, 10, 53, 54], ids=lambda n: f"{n} of 54")
def test_locations_stay_distinct_and_a_component_that_moves_starts_from_zero(search, count):
    layer = spectrum(search, count=count)
    with torch.no_grad():
        layer.coefficients.mul_(0.1)  # so little that even a swap of one component is worth it
    total = 0
    for turn in range(12):
        before, a = flat(layer).clone(), layer.coefficients.detach().clone()
        layer.search.start_recording(turn / 12, turn)
        assert layer.search.is_recording
        backward(layer, seed=turn)
        moved = layer.search.move()
        assert not layer.search.is_recording
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
def test_without_a_recorded_gradient_nothing_moves(search):
    layer = spectrum(search)
    before = copy.deepcopy(layer.state_dict())
    assert not layer.search.move().any()
    layer.search.start_recording(0.0, 0)
    assert not layer.search.move().any()
    layer.search.start_recording(0.0, 0)
    with torch.no_grad():
        layer(normal(3, 9))
    assert not layer.search.move().any()
    after = layer.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    close(layer(normal(3, 9)).detach(), normal(3, 9) @ dense(layer).T)


@by_prune_and_regrow
def test_gradients_that_are_not_finite_move_nothing(search):
    layer = spectrum(search)
    before = flat(layer).clone()
    layer.search.start_recording(0.0, 0)
    layer(normal(3, 9)).backward(torch.full((3, 6), float("nan"), dtype=torch.float64))
    assert not layer.search.move().any()
    assert torch.equal(flat(layer), before)


def dropped_of(layer):
    """The four of least |a|, of ten."""
    return layer.coefficients.detach().abs().topk(4, largest=False).indices.tolist()


def test_reselection_drops_the_least_where_gradients_are_enabled():
    layer, x = spectrum(), normal(5, 9)
    full = x @ dense(layer).T
    without = x @ dense(layer, dropped_of(layer)).T
    assert (full - without).abs().max() > 0.01
    close(layer(x).detach(), full)
    layer.search.start_recording(0.0, 0)
    close(layer(x).detach(), without)
    # As dropout: a first pass without gradients, of a checkpoint, is a training pass too.
    with torch.no_grad():
        close(layer(x), without)
        close(layer.eval()(x), full)
    with torch.inference_mode():
        close(layer(x), full)
    layer.train().requires_grad_(False)
    close(layer(x), full)
    layer.requires_grad_()
    backward(layer)
    layer.search.move()
    close(layer(x).detach(), x @ dense(layer).T)


@pytest.mark.parametrize("enabled", [True, False], ids=["with gradients", "without"])
def test_the_increment_a_merge_and_a_checkpoint_keep_dropped_components(enabled):
    model = linear()
    layer, weight = model.spectrum, model.base.weight.detach().clone()
    before = copy.deepcopy(layer.state_dict())
    layer.search.start_recording(0.0, 0)
    with torch.set_grad_enabled(enabled):
        close(layer.increment().detach(), dense(layer))
    assert all(torch.equal(layer.state_dict()[name], before[name]) for name in before)
    close(model.merge().weight.detach(), weight + dense(layer))


@pytest.mark.parametrize("search", ["swap", "swap-raw"])
def test_swaps_drop_nothing(search):
    layer, x = spectrum(search), normal(5, 9)
    layer.search.start_recording(0.0, 0)
    close(layer(x).detach(), x @ dense(layer).T)


@pytest.mark.parametrize("loads", [True, False], ids=["loading", "finishing"])
def test_the_end_of_a_search_ends_a_reselection_under_way(loads):
    # What was dropped was chosen by coefficients that are gone.
    layer, x = spectrum(), normal(5, 9)
    layer.search.start_recording(0.0, 0)
    if loads:
        layer.load_state_dict(spectrum(seed=5).state_dict())
    else:
        layer.location_training.finish()
    assert layer.search is None
    close(layer(x).detach(), x @ dense(layer).T)


def test_reselection_finds_the_best_locations_for_what_it_dropped():
    # On the rows of an orthogonal input, Z²/h at a location is the square of what ΔW lacks there,
    # up to a factor of its row of the spectrum.
    layer, x = spectrum(shape=(8, 8), count=10), torch.eye(8, dtype=torch.float64)
    target = normal(8, 8, seed=3)
    chosen = dropped_of(layer)
    layer.search.start_recording(0.0, 0)
    y = layer(x)
    ((y - x @ target.T).square().sum() / 2).backward()
    g = x @ (dense(layer, chosen) - target).T
    z = layer.scaling * dct2(g.T @ x).flatten()
    rows, columns = dct2(g.T @ g).diagonal(), dct2(x.T @ x).diagonal()
    decrease = z.square() / (layer.scaling**2 * torch.outer(rows, columns).flatten())
    stay = [k for k in range(10) if k not in chosen]
    decrease[flat(layer)[stay]] = -1
    expected = set(decrease.topk(4).indices.tolist())
    saved = flat(layer)[stay].clone()
    layer.search.move()
    assert set(flat(layer)[chosen].tolist()) == expected
    assert torch.equal(flat(layer)[stay], saved)


def test_a_swap_by_several_equal_steps_is_that_by_one():
    # Of n equal losses, gradient and curvature are n times as large, and so are predicted decrease
    # and saliency. They are compared: a layer must not get more reluctant by recording longer.
    found = []
    for repeats in (1, 5):
        layer = spectrum("swap", shape=(12, 12), count=40)
        with torch.no_grad():
            layer.coefficients.mul_(0.5)
        for _ in range(repeats):
            layer.search.start_recording(0.0, 0)  # for every step of the optimiser
            backward(layer, seed=1)
        found.append((int(layer.search.move().sum()), flat(layer).clone()))
    assert found[0][0] > 0
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("search", ["reselect", "swap-raw"])
def test_the_scale_of_mixed_precision_does_not_decide(search):
    # GradScaler multiplies the loss, and every gradient that a hook sees, by thousands. (A swap
    # compares the curvature with the loss, and its description says that it cannot do so then.)
    found = []
    for scale in (1.0, 2.0**16):
        layer = spectrum(search, shape=(12, 12), count=40)
        layer.search.start_recording(0.0, 0)
        x, g = normal(7, 12), normal(7, 12, seed=4)
        (scale * (layer(x) * g).sum()).backward()
        moved = layer.search.move()
        assert moved.any()
        found.append(flat(layer).clone())
    assert torch.equal(*found)


# --- ways of running the model ---


CHANGES = {
    "an activation": torch.relu_,
    "a sum": lambda y: y.add_(1.0),
    "nothing": lambda y: y,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("leading", [(5,), (3, 4)], ids=["a batch", "sequences"])
def test_an_output_that_is_changed_in_place_is_recorded_all_the_same(leading, change):
    layer = linear("swap")
    x = normal(*leading, 9)
    layer.spectrum.search.start_recording(0.0, 0)
    statistics = layer.spectrum.search._statistics
    change(layer(x)).sum().backward()
    assert statistics
    seen = statistics.gradient().view(6, 9)[tuple(layer.spectrum.indices.T)]
    close(seen, layer.spectrum.coefficients.grad)


def test_autocast_records_what_is_recorded_without():
    seen = []
    for enabled in (False, True):
        model = small_recording(dtype=torch.float32)
        x, y = (part.float() for part in batches(1)[0])
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            loss = (model(x) - y).square().mean()
        loss.backward()
        seen.append([s.search._statistics.gradient() for s in spectra(model)])
    for plain, cast in zip(*seen, strict=True):
        # Inputs, weights and gradients of the two layers are each rounded to 2⁻⁹.
        assert float((plain - cast).norm() / plain.norm()) < 8 * 2**-9
        assert cast.dtype == torch.float32


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
@by_prune_and_regrow
def test_checkpointed_layers_are_recorded_once(search, reentrant):
    seen = []
    for checkpointed in (False, True):
        model = small_recording(search)
        x, y = batches(1)[0]
        x.requires_grad_()
        output = checkpoint(model, x, use_reentrant=reentrant) if checkpointed else model(x)
        (output - y).square().mean().backward()
        recorded = [s.search._statistics for s in spectra(model)]
        seen.append([(r.gradient(), r.predicted_decreases(use_curvature=True)) for r in recorded])
    for plain, again in zip(*seen, strict=True):
        close(again[0], plain[0])
        close(again[1], plain[1])


@pytest.mark.parametrize("position", [0, -1], ids=["first token", "last token"])
def test_a_gradient_at_one_position_is_recorded_whatever_the_length(position):
    """As of a classifier that reads one token: many rows, few of them not zero, evenly spaced."""
    layer = linear("swap")
    x, g = normal(64, 32, 9), torch.zeros(64, 32, 6, dtype=torch.float64)
    g[:, position] = normal(64, 6, seed=3)
    layer.spectrum.search.start_recording(0.0, 0)
    layer(x).backward(g)
    seen = layer.spectrum.search._statistics
    everywhere = torch.cartesian_prod(torch.arange(6), torch.arange(9))
    rows = dct2(torch.einsum("btp,btr->pr", g, g)).diagonal()
    expected = torch.outer(rows, torch.ones(9, dtype=torch.float64)).flatten()
    found = seen.curvature(everywhere)
    # Along the outputs exactly; along the inputs the shape is that of some tokens, and the total
    # that of all.
    ratio = (found / expected).view(6, 9)
    assert torch.allclose(ratio, ratio[:1].expand(6, 9), rtol=1e-10)
    assert float(ratio[0].sum()) == pytest.approx(float(x.square().sum()), rel=1e-10)
