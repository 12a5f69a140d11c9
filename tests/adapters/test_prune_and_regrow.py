"""A spectrum that prunes and regrows components."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from loca_theory.adapters import LoCALinear
from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms import dct2

from .searching import (
    EXCHANGES,
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

# --- a spectrum that prune-and-regrow searches ---


def test_other_names_are_refused():
    with pytest.raises(InvalidArgumentError, match=r"location_search.*nowhere"):
        spectrum("nowhere")
    with pytest.raises(InvalidArgumentError, match=r"init_locations.*nowhere"):
        spectrum(init_locations="nowhere")


@by_prune_and_regrow
def test_locations_are_no_parameter(search):
    layer = spectrum(search)
    assert [name for name, _ in layer.named_parameters()] == ["coefficients"]
    assert layer.locations is None
    assert layer.prunes_and_regrows
    assert layer.learns_locations
    assert set(layer.state_dict()) == {"coefficients", "indices", "shape", "searching"}
    assert bool(layer.searching)


@by_prune_and_regrow
@pytest.mark.parametrize("phase", ["locations", "both"])
def test_there_is_no_phase_of_the_locations(search, phase):
    layer = spectrum(search)
    with pytest.raises(InvalidArgumentError, match=f"location_search='{search}' has no phase"):
        layer.set_phase(phase)
    layer.set_phase("coefficients")
    assert layer.phase == "coefficients"


@by_prune_and_regrow
@pytest.mark.parametrize("count", [1, 10, 53, 54], ids=lambda n: f"{n} of 54")
def test_locations_stay_distinct_and_who_moves_starts_from_zero(search, count):
    layer = spectrum(search, count=count)
    with torch.no_grad():
        layer.coefficients.mul_(0.1)  # so little that even a swap of one component is worth it
    total = 0
    for turn in range(12):
        before, a = flat(layer).clone(), layer.coefficients.detach().clone()
        layer.start_recording(turn / 12, turn)
        assert layer.is_recording
        backward(layer, seed=turn)
        moved = layer.prune_and_regrow()
        assert not layer.is_recording
        assert_distinct(layer)
        assert torch.equal(moved, flat(layer) != before)
        assert torch.equal(layer.coefficients.detach(), torch.where(moved, 0.0, a))
        close(layer.increment().detach(), dense(layer))
        total += int(moved.sum())
        with torch.no_grad():
            layer.coefficients.add_(0.01 * normal(count, seed=turn))
    # Where all locations are taken, none is free to move to.
    assert (total > 0) == (count < 54)


@by_prune_and_regrow
def test_who_has_seen_nothing_moves_nothing(search):
    layer = spectrum(search)
    before = copy.deepcopy(layer.state_dict())
    assert not layer.prune_and_regrow().any()
    layer.start_recording(0.0, 0)
    assert not layer.prune_and_regrow().any()
    layer.start_recording(0.0, 0)
    with torch.no_grad():
        layer(normal(3, 9))
    assert not layer.prune_and_regrow().any()
    after = layer.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    close(layer(normal(3, 9)).detach(), normal(3, 9) @ dense(layer).T)


@by_prune_and_regrow
def test_broken_gradients_move_nothing(search):
    layer = spectrum(search)
    before = flat(layer).clone()
    layer.start_recording(0.0, 0)
    layer(normal(3, 9)).backward(torch.full((3, 6), float("nan"), dtype=torch.float64))
    assert not layer.prune_and_regrow().any()
    assert torch.equal(flat(layer), before)


def dropped_of(layer):
    """The four of least |a|, of ten."""
    return layer.coefficients.detach().abs().topk(4, largest=False).indices.tolist()


def test_reselection_leaves_the_least_out_where_gradients_are_enabled():
    layer, x = spectrum(), normal(5, 9)
    full = x @ dense(layer).T
    without = x @ dense(layer, dropped_of(layer)).T
    assert (full - without).abs().max() > 0.01
    close(layer(x).detach(), full)
    layer.start_recording(0.0, 0)
    close(layer(x).detach(), without)
    # As dropout: a first pass without gradients, of a checkpoint, is a training pass too.
    with torch.no_grad():
        close(layer(x), without)
        close(layer.eval()(x), full)
    with torch.inference_mode():
        close(layer(x), full)
    layer.train()
    backward(layer)
    layer.prune_and_regrow()
    close(layer(x).detach(), x @ dense(layer).T)


def test_evaluation_without_gradients_is_of_the_whole_increment():
    model = LoCALinear(nn.Linear(9, 6), 10, zero_init=False, location_search="reselect").double()
    x = normal(5, 9)
    expected = model(x).detach()
    model.spectrum.start_recording(0.0, 0)
    with torch.no_grad():
        close(model.eval()(x), expected)


@pytest.mark.parametrize("enabled", [True, False], ids=["with gradients", "without"])
def test_the_increment_is_whole_while_some_are_left_out(enabled):
    layer = spectrum()
    layer.start_recording(0.0, 0)
    with torch.set_grad_enabled(enabled):
        close(layer.increment().detach(), dense(layer))


def test_a_merge_and_a_checkpoint_are_whole_while_some_are_left_out():
    model = LoCALinear(nn.Linear(9, 6), 10, zero_init=False, location_search="reselect").double()
    weight = model.base.weight.detach().clone()
    before = copy.deepcopy(model.spectrum.state_dict())
    model.spectrum.start_recording(0.0, 0)
    assert all(torch.equal(model.spectrum.state_dict()[name], before[name]) for name in before)
    close(model.merge().weight.detach(), weight + dense(model.spectrum))


@pytest.mark.parametrize("search", ["swap", "swap-raw"])
def test_swaps_leave_nothing_out(search):
    layer, x = spectrum(search), normal(5, 9)
    layer.start_recording(0.0, 0)
    close(layer(x).detach(), x @ dense(layer).T)


def test_freezing_ends_a_reselection_under_way():
    layer, x = spectrum(), normal(5, 9)
    layer.start_recording(0.0, 0)
    layer.freeze_locations()
    assert not layer.is_recording
    assert not layer.learns_locations
    assert not bool(layer.searching)
    close(layer(x).detach(), x @ dense(layer).T)


def test_loading_ends_a_reselection_under_way():
    # What was to be left out was chosen by coefficients that are gone.
    layer, other, x = spectrum(), spectrum(seed=5), normal(5, 9)
    layer.start_recording(0.0, 0)
    layer.load_state_dict(other.state_dict())
    close(layer(x).detach(), x @ dense(other).T)
    assert not layer.is_recording


def test_reselection_finds_the_best_locations_for_whom_it_left_out():
    # On the rows of an orthogonal input, Z²/h at a location is the square of what ΔW lacks there,
    # up to a factor of its row of the spectrum.
    layer, x = spectrum(shape=(8, 8), count=10), torch.eye(8, dtype=torch.float64)
    target = normal(8, 8, seed=3)
    chosen = dropped_of(layer)
    layer.start_recording(0.0, 0)
    y = layer(x)
    ((y - x @ target.T).square().sum() / 2).backward()
    g = x @ (dense(layer, chosen) - target).T
    z = layer.scaling * dct2(g.T @ x).flatten()
    rows, columns = dct2(g.T @ g).diagonal(), dct2(x.T @ x).diagonal()
    promise = z.square() / (layer.scaling**2 * torch.outer(rows, columns).flatten())
    stay = [k for k in range(10) if k not in chosen]
    promise[flat(layer)[stay]] = -1
    expected = set(promise.topk(4).indices.tolist())
    saved = flat(layer)[stay].clone()
    layer.prune_and_regrow()
    assert set(flat(layer)[chosen].tolist()) == expected
    assert torch.equal(flat(layer)[stay], saved)


def test_a_swap_by_several_equal_steps_is_that_by_one():
    # Of n equal losses, gradient and curvature are n times as large, and so are gain and loss.
    # Both are compared with each other: a layer must not get more reluctant by looking longer.
    found = []
    for repeats in (1, 5):
        layer = spectrum("swap", shape=(12, 12), count=40)
        with torch.no_grad():
            layer.coefficients.mul_(0.5)
        layer.start_recording(0.0, 0)
        for number in range(repeats):
            if number:
                layer.start_recording(0.0, 0)  # one more step of the optimiser
            backward(layer, seed=1)
        found.append((int(layer.prune_and_regrow().sum()), flat(layer).clone()))
    assert found[0][0] > 0
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("search", sorted({*EXCHANGES} - {"swap"}))
def test_the_scale_of_mixed_precision_does_not_decide(search):
    # GradScaler multiplies the loss, and every gradient that a hook sees, by thousands. (A swap
    # compares the curvature with the loss, and its description says that it cannot do so then.)
    found = []
    for scale in (1.0, 2.0**16):
        layer = spectrum(search, shape=(12, 12), count=40)
        layer.start_recording(0.0, 0)
        x, g = normal(7, 12), normal(7, 12, seed=4)
        (scale * (layer(x) * g).sum()).backward()
        moved = layer.prune_and_regrow()
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
def test_what_is_changed_in_place_afterwards_is_seen_all_the_same(leading, change):
    layer = LoCALinear(nn.Linear(9, 6), 10, zero_init=False, location_search="swap").double()
    x = normal(*leading, 9)
    layer.spectrum.start_recording(0.0, 0)
    watched = layer.spectrum._statistics
    change(layer(x)).sum().backward()
    assert watched
    seen = watched.gradient().view(6, 9)[tuple(layer.spectrum.indices.T)]
    close(seen, layer.spectrum.coefficients.grad)


def test_autocast_sees_what_is_seen_without():
    seen = []
    for enabled in (False, True):
        model = small("swap", dtype=torch.float32)
        for s in spectra(model):
            s.start_recording(0.0, 0)
        x, y = (part.float() for part in batches(1)[0])
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            loss = (model(x) - y).square().mean()
        loss.backward()
        seen.append([s._statistics.gradient() for s in spectra(model)])
    for plain, cast in zip(*seen, strict=True):
        # Inputs, weights and gradients of the two layers are each rounded to 2⁻⁹.
        assert float((plain - cast).norm() / plain.norm()) < 8 * 2**-9
        assert cast.dtype == torch.float32


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
@by_prune_and_regrow
def test_checkpointed_layers_are_seen_once(search, reentrant):
    seen = []
    for checkpointed in (False, True):
        model = small(search)
        for s in spectra(model):
            s.start_recording(0.0, 0)
        x, y = batches(1)[0]
        x.requires_grad_()
        output = checkpoint(model, x, use_reentrant=reentrant) if checkpointed else model(x)
        (output - y).square().mean().backward()
        seen.append([(s._statistics.gradient(),
        s._statistics.predicted_decreases(use_curvature=True))
                     for s in spectra(model)])  # fmt: skip
    for plain, again in zip(*seen, strict=True):
        close(again[0], plain[0])
        close(again[1], plain[1])


@pytest.mark.parametrize("position", [0, -1], ids=["first token", "last token"])
def test_a_gradient_at_one_position_is_seen_whatever_the_length(position):
    """As of a classifier that reads one token: many rows, few of them not zero, evenly spaced."""
    layer = LoCALinear(nn.Linear(9, 6), 10, location_search="swap", zero_init=False).double()
    x, g = normal(64, 32, 9), torch.zeros(64, 32, 6, dtype=torch.float64)
    g[:, position] = normal(64, 6, seed=3)
    layer.spectrum.start_recording(0.0, 0)
    layer(x).backward(g)
    seen = layer.spectrum._statistics
    everywhere = torch.cartesian_prod(torch.arange(6), torch.arange(9))
    rows = dct2(torch.einsum("btp,btr->pr", g, g)).diagonal()
    expected = torch.outer(rows, torch.ones(9, dtype=torch.float64)).flatten()
    found = seen.curvature(everywhere)
    # Along the outputs exactly; along the inputs the shape is that of some tokens, and the total
    # that of all.
    ratio = (found / expected).view(6, 9)
    assert torch.allclose(ratio, ratio[:1].expand(6, 9), rtol=1e-10)
    assert float(ratio[0].sum()) == pytest.approx(float(x.square().sum()), rel=1e-10)
